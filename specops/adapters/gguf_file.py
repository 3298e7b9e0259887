"""A GGUF file as an artifact: tensors by digest, its metadata as properties, names of other models as claims.

Called by `specops lineage import gguf`. The format is `core.gguf`'s business, hashing `adapters.weights`'. A GGUF holds its own
tokenizer: it is kept as the digests of its token, score and merge lists, enough to tell two apart.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from specops.adapters.weights import Progress, hash_artifact
from specops.core.gguf import GgufHeader, parse_gguf
from specops.core.imports import Imported, bounded
from specops.core.release import ArtifactKind
from specops.errors import InvalidWeights

_PREFIXES = (
    "general.name", "general.author", "general.url", "general.source", "general.base_model", "general.license",
    "general.organization", "general.repo_url", "general.finetune", "general.basename", "general.datasets",
)  # fmt: skip  # what a GGUF says about the world outside it
_SIZES = {
    "context_length": "max_position_embeddings", "embedding_length": "hidden_size", "block_count": "num_hidden_layers",
    "attention.head_count": "num_attention_heads", "attention.head_count_kv": "num_key_value_heads",
    "feed_forward_length": "intermediate_size", "vocab_size": "vocab_size",
}  # fmt: skip
"""GGUF key below the architecture's name, and what config.json calls it."""


def import_gguf(
    file: Path, *, name: str, kind: ArtifactKind | None = None, progress: Progress | None = None
) -> Imported:
    """Hash a file with its tensors and describe it; nothing is registered.

    Args:
        file: a .gguf file, version 2 or 3.
        name: handle for people.
        kind: what it is; None: a target.
        progress: called with (bytes done, bytes in all).

    Raises:
        InvalidWeights: absent, not GGUF, or broken.
    """
    header = _header(file)
    artifact = hash_artifact(
        kind or ArtifactKind.TARGET, name, file.parent, files=[file.name], tensors=True, progress=progress
    )
    claims = {key: value for key, value in header.metadata.items() if key.startswith(_PREFIXES)}
    return Imported(
        artifacts=(replace(artifact, properties=_properties(header), claims=bounded(claims, str(file))),),
        notes=tuple(
            f"{key} {str(value)[:80]!r} stays a claim; draw the edge once its base is registered"
            for key, value in sorted(claims.items())
            if key.startswith("general.base_model") and key.endswith("name")
        ),
    )


def _header(file: Path) -> GgufHeader:
    try:
        with file.open("rb") as stream:
            return parse_gguf(stream.read, size=file.stat().st_size, where=str(file))
    except OSError as exc:
        raise InvalidWeights(f"cannot read {file}: {exc.strerror or exc}; give the path of a .gguf file") from exc


def _properties(header: GgufHeader) -> dict[str, Any]:
    """Return what the metadata says about these very bytes, under config.json's names where it has them."""
    kept = {key: value for key, value in header.metadata.items() if not key.startswith(_PREFIXES)}
    architecture = str(kept.get("general.architecture", ""))
    named = {ours: kept[f"{architecture}.{theirs}"] for theirs, ours in _SIZES.items() if f"{architecture}.{theirs}" in kept}
    types = sorted({tensor.dtype for tensor in header.tensors})
    said = {"format": f"gguf v{header.version}", "model_type": architecture, "tensor_types": types, "metadata": kept}
    properties: dict[str, Any] = bounded(said | named, "GGUF metadata")
    return properties
