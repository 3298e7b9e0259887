"""A model folder as one part of a candidate: hashed, taken apart, and read.

Called by `specops release`. A folder that was registered before keeps its registered identity, provided that every registered
file is still what it was; the folder's other files are taken in as they are.
"""

from dataclasses import replace
from pathlib import Path

from specops.adapters.hf_folder import Binding, import_folder
from specops.adapters.pair_folder import read_side
from specops.core.candidate import Model
from specops.core.imports import Imported
from specops.core.release import Artifact, ArtifactKind
from specops.errors import InvalidInput, LineageBroken


def bring(
    folder: Path, *, name: str, kind: ArtifactKind, binding: Binding | None = None, registered: Artifact | None = None
) -> Model:
    """Hash a folder and read what it says.

    Args:
        folder: holds config.json, tokenizer.json and safetensors.
        name: handle for people.
        kind: target or draft.
        binding: what a person vouches for.
        registered: the artifact that must lie there; its digest then stays the weights' identity.

    Raises:
        LineageBroken: a registered file is gone or changed; the message names it.
        InvalidInput: the folder cannot be read.
    """
    found = import_folder(folder, name=name, kind=kind, binding=binding)
    if registered is not None:
        found = _as_registered(found, registered, folder)
    return Model(imported=found, side=read_side(folder, found.artifacts[0].digest))


def bring_registered(artifact: Artifact, *, binding: Binding | None = None) -> Model:
    """Read a registered model again, from where it was seen.

    Raises:
        LineageBroken: what lies there is not what was registered.
        InvalidInput: nobody knows where it lies, or it is not there.
    """
    if not artifact.location or not Path(artifact.location).is_dir():
        seen = artifact.location or "nowhere"
        raise InvalidInput(f"{artifact.name} was registered from {seen}, which is no folder here; give the folder itself")
    return bring(Path(artifact.location), name=artifact.name, kind=artifact.kind, binding=binding, registered=artifact)


def _as_registered(found: Imported, registered: Artifact, folder: Path) -> Imported:
    """Put the registered artifact in the place of the weights just hashed."""
    there = {f.path: f for a in found.artifacts for f in a.files}
    for want in registered.files:
        got = there.get(want.path)
        if got is None or (got.size, got.sha256) != (want.size, want.sha256):
            what = "is gone from" if got is None else "is not what was registered in"
            raise LineageBroken(f"{want.path} of {registered.name} {what} {folder}; restore it or register what is there")
    old = found.artifacts[0].digest
    edges = (replace(e, source=registered.digest) if e.source == old else e for e in found.edges)
    return replace(found, artifacts=(registered, *found.artifacts[1:]), edges=tuple(edges))
