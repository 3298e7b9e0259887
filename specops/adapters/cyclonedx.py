"""A lineage slice as a CycloneDX 1.6 ML-BOM, for the scanners and auditors who read those.

Written as JSON by hand: the reference library has no model card. Deterministic: the serial number comes from the content, the
time is an argument. What is only claimed goes out as a property `specops:claim:...`, never as a fact of the format.

Source: CycloneDX 1.6 JSON schema (bom-1.6.schema.json), which the tests validate against.
"""

import json
import uuid
from datetime import UTC, datetime
from typing import Any

from specops.core.canonical import digest_of
from specops.core.release import Artifact, ArtifactKind, EdgeKind, Release
from specops.core.slice import LineageSlice

SPEC_VERSION = "1.6"
_MODELS = frozenset({ArtifactKind.TARGET, ArtifactKind.DRAFT})
_TYPES = {
    ArtifactKind.TARGET: "machine-learning-model",
    ArtifactKind.DRAFT: "machine-learning-model",
    ArtifactKind.SERVING_CODE: "application",
    ArtifactKind.PREPROCESSING: "application",
    ArtifactKind.HARDWARE: "device",
    ArtifactKind.ENVIRONMENT: "platform",
}
_DATA_TYPES = {
    ArtifactKind.CORPUS: "dataset",
    ArtifactKind.EVALUATION_SET: "dataset",
    ArtifactKind.RETRIEVAL_INDEX: "dataset",
    ArtifactKind.RECIPE: "definition",
    ArtifactKind.POLICY: "definition",
}
_DERIVED = (EdgeKind.DISTILLED_FROM, EdgeKind.FINE_TUNED_FROM, EdgeKind.QUANTIZED_FROM)


def to_cyclonedx(part: LineageSlice, *, at: datetime, version: str) -> dict[str, Any]:
    """Return the BOM as JSON-ready values.

    Args:
        part: the slice; its subject becomes the BOM's main component when it is a release.
        at: time of the BOM, with zone.
        version: version of specops, named as the tool.
    """
    artifacts = {a.digest: a for a in part.artifacts}
    components = [_component(artifact, part, artifacts) for artifact in part.artifacts]
    nodes = [*artifacts, *(r.digest for r in part.releases)]
    body: dict[str, Any] = {
        "bomFormat": "CycloneDX",
        "specVersion": SPEC_VERSION,
        "version": 1,
        "metadata": {
            "timestamp": at.astimezone(UTC).isoformat(timespec="seconds"),
            "tools": {"components": [{"type": "application", "name": "specops", "version": version}]},
        },
        "components": components + [_release(r, part) for r in part.releases if r.id != part.subject],
        "dependencies": [_dependencies(node, part, set(nodes)) for node in nodes],
    }
    main = next((r for r in part.releases if r.id == part.subject), None)
    if main is not None:
        body["metadata"]["component"] = _release(main, part)
    content = {key: value for key, value in body.items() if key != "metadata"}
    serial = uuid.uuid5(uuid.NAMESPACE_URL, f"specops:{part.subject}:{digest_of(content)}")
    return {"serialNumber": f"urn:uuid:{serial}"} | body


def _component(artifact: Artifact, part: LineageSlice, artifacts: dict[str, Artifact]) -> dict[str, Any]:
    kind = artifact.kind
    component: dict[str, Any] = {
        "type": _TYPES.get(kind, "data"),
        "bom-ref": artifact.digest,
        "name": artifact.name,
        "version": artifact.digest[:12],
        "components": [
            {
                "type": "file",
                "bom-ref": f"{artifact.digest}/{file.path}",
                "name": file.path,
                "hashes": _hashes(file.sha256, file.blake3),
                "properties": [_property("size", file.size)],
            }
            for file in artifact.files
        ],
        "properties": [
            _property("kind", kind),
            _property("digest", artifact.digest),
            *(_property(f"fact:{key}", value) for key, value in sorted(artifact.facts.items())),
            *(_property(f"claim:{key}", value) for key, value in sorted(artifact.claims.items())),
        ],
    }
    if component["type"] == "data":
        component["data"] = [{"type": _DATA_TYPES.get(kind, "configuration"), "name": artifact.name}]
    if kind in _MODELS:
        component["modelCard"] = _model_card(artifact, part, artifacts)
    parents = [artifacts[e.target] for e in part.from_of(artifact.digest) if e.kind in _DERIVED and e.target in artifacts]
    if parents:
        component["pedigree"] = {
            "ancestors": [
                {"type": _TYPES.get(p.kind, "data"), "name": p.name, "version": p.digest[:12]}
                | {"properties": [_property("digest", p.digest)]}
                for p in parents
            ],
            "notes": ", ".join(e.kind for e in part.from_of(artifact.digest) if e.kind in _DERIVED),
        }
    return component


def _model_card(artifact: Artifact, part: LineageSlice, artifacts: dict[str, Artifact]) -> dict[str, Any]:
    parameters: dict[str, Any] = {"task": "text-generation"}
    names = artifact.properties.get("architectures")
    if isinstance(names, list) and names:
        parameters["modelArchitecture"] = str(names[0])
    if artifact.properties.get("model_type"):
        parameters["architectureFamily"] = str(artifact.properties["model_type"])
    data = [{"ref": e.target} for e in part.from_of(artifact.digest) if e.kind is EdgeKind.TRAINED_ON and e.target in artifacts]
    if data:
        parameters["datasets"] = data
    return {
        "modelParameters": parameters,
        "properties": [_property(key, value) for key, value in sorted(artifact.properties.items())],
    }


def _release(release: Release, part: LineageSlice) -> dict[str, Any]:
    record = {key: value for key, value in release.to_record().items() if value not in (None, {}, (), 0)}
    findings = [e for e in part.evidence if e.subject == release.id]
    return {
        "type": "application",
        "bom-ref": release.digest,
        "name": release.name,
        "version": release.id,
        "properties": [
            _property("kind", "release"),
            _property("digest", release.digest),
            *(_property(f"release:{key}", value) for key, value in record.items() if key != "name"),
            *(_property(f"evidence:{e.kind}:{e.at}", digest_of(e.payload)) for e in findings),
        ],
    }


def _dependencies(node: str, part: LineageSlice, known: set[str]) -> dict[str, Any]:
    targets = [e.target for e in part.from_of(node) if e.kind.carries_change]
    for release in part.releases:
        if release.digest == node:
            targets += release.components
    found = sorted(set(targets) & known)
    return {"ref": node, "dependsOn": found} if found else {"ref": node}


def _hashes(sha256: str, blake3: str) -> list[dict[str, str]]:
    return [{"alg": "SHA-256", "content": sha256}] + ([{"alg": "BLAKE3", "content": blake3}] if blake3 else [])


def _property(name: str, value: object) -> dict[str, str]:
    """Property values of the format are text; other values go out as JSON."""
    return {"name": f"specops:{name}", "value": value if isinstance(value, str) else json.dumps(value, sort_keys=True)}
