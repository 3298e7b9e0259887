"""A model version or run of MLflow as artifacts: the files by content, all that MLflow says about them as claims.

Called by `specops lineage import mlflow`. MLflow lets anyone change tags, aliases and files without a trace, so nothing of it
is a fact here but the bytes that were hashed. Files must lie on a local disk; others are to be downloaded first.
"""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from specops.adapters.hf_folder import Binding, import_folder
from specops.adapters.mlflow_tracking import open_client, reaching
from specops.adapters.weights import hash_artifact
from specops.core.imports import Imported, bounded
from specops.core.release import ArtifactKind
from specops.errors import InvalidInput

_VERSION = re.compile(r"models:/(?P<name>[^/@]+)(?:/(?P<version>\d+)|@(?P<alias>[^/]+))")
_RUN = re.compile(r"(?:runs:/)?(?P<run>[0-9a-f]{32})(?:/(?P<path>.+))?")


def import_mlflow(tracking_uri: str, reference: str, *, name: str, kind: ArtifactKind | None = None) -> Imported:
    """Hash the files behind a reference; nothing is registered.

    Args:
        tracking_uri: MLflow tracking and registry URI.
        reference: `models:/NAME/VERSION`, `models:/NAME@ALIAS`, a run id, or `runs:/ID/PATH`.
        name: handle for people.
        kind: what the files are; None: read from config.json where there is one, else an error.

    Raises:
        InvalidInput: an unknown reference, or one whose files are not local or not a model.
        InvalidWeights: the files are broken or pickles.
        MissingExtra: mlflow is not installed.
        Unavailable: MLflow does not answer.
    """
    with reaching(tracking_uri):
        client = open_client(tracking_uri)
        uri, claims = _resolve(client, reference)
    folder = _local(uri, reference)
    found = _hashed(folder, name, kind)
    old = found.artifacts[0]
    first = replace(old, claims=old.claims | {"mlflow": bounded(claims | {"reference": reference}, reference)})
    return replace(found, artifacts=(first, *found.artifacts[1:]))


def _resolve(client: Any, reference: str) -> tuple[str, dict[str, Any]]:  # noqa: ANN401  # MlflowClient
    """Return where the files are, and what MLflow says about them."""
    if found := _VERSION.fullmatch(reference):
        name, version, alias = found["name"], found["version"], found["alias"]
        model = client.get_model_version_by_alias(name, alias) if alias else client.get_model_version(name, version)
        said = {"model": name, "version": str(model.version), "source": model.source, "run_id": model.run_id}
        tags = {"tags": dict(model.tags), "aliases": list(model.aliases), "description": model.description}
        return client.get_model_version_download_uri(name, model.version), said | tags
    if found := _RUN.fullmatch(reference):
        run = client.get_run(found["run"])
        said = {"run_id": run.info.run_id, "run_name": run.info.run_name, "tags": dict(run.data.tags)}
        path = f"/{found['path']}" if found["path"] else ""
        return run.info.artifact_uri + path, said | {"params": dict(run.data.params)}
    raise InvalidInput(f"{reference!r} is no MLflow reference; expected models:/NAME/VERSION, models:/NAME@ALIAS or a run id")


def _local(uri: str, reference: str) -> Path:
    parts = urlsplit(uri)
    if parts.scheme not in {"", "file"}:
        raise InvalidInput(
            f"the files of {reference} are at {parts.scheme}://, not on this disk; "
            "fetch them (mlflow artifacts download) and import the folder (specops lineage import hf)"
        )
    folder = Path(unquote(parts.path))
    if not folder.is_dir():
        raise InvalidInput(f"the files of {reference} should be in {folder}, which does not exist here; restore or fetch them")
    return folder


def _hashed(folder: Path, name: str, kind: ArtifactKind | None) -> Imported:
    """Hash a model folder, MLflow's own layout (files below `model/` or `data/`) included."""
    homes = sorted({p.parent for p in folder.rglob("config.json") if any(p.parent.glob("*.safetensors"))})
    if len(homes) == 1:
        return import_folder(homes[0], name=name, kind=kind, binding=Binding())
    if kind is None:
        raise InvalidInput(f"{folder} has {len(homes)} model folders, expected 1; say with --kind what its files are")
    return Imported(artifacts=(hash_artifact(kind, name, folder),))
