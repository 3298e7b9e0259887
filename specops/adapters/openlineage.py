"""A lineage slice as OpenLineage run events, for Marquez and other catalogues.

OpenLineage names datasets, it does not identify them: so the name carries the digest, and models, which it has no class for
(OpenLineage #4035), go out as datasets with a facet of ours. Pure: events are returned, sending them is the caller's choice.

Source: OpenLineage 2-0-2 object model (https://openlineage.io/spec/2-0-2/OpenLineage.json).
"""

import uuid
from datetime import UTC, datetime
from typing import Any

from specops.core.canonical import digest_of
from specops.core.release import Artifact, Release
from specops.core.slice import Evidence, LineageSlice

SCHEMA = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
PRODUCER = "https://pypi.org/project/specops"
FACETS = "https://specops.dev/openlineage/1-0-0.json"
"""Identifies the shape of our facets, documented in docs/reference/formats.md; nothing is served there."""


def to_openlineage(part: LineageSlice, *, at: datetime, namespace: str = "specops") -> tuple[dict[str, Any], ...]:
    """Return one COMPLETE event per release (its components are inputs) and one per finding about a release.

    Args:
        part: the slice.
        at: event time of the registrations, with zone; findings carry their own.
        namespace: OpenLineage namespace of jobs and datasets.
    """
    known = {a.digest: a for a in part.artifacts}
    by_id = {r.id: r for r in part.releases}
    when = at.astimezone(UTC).isoformat(timespec="seconds")
    events = [_registered(r, part, known, namespace, when) for r in part.releases]
    events += [_found(e, by_id[e.subject], namespace) for e in part.evidence if e.subject in by_id]
    return tuple(events)


def _registered(
    release: Release, part: LineageSlice, known: dict[str, Artifact], namespace: str, when: str
) -> dict[str, Any]:
    reached: list[str] = list(release.components)
    for digest in reached:  # grows while it is walked
        reached += [e.target for e in part.from_of(digest) if e.kind.carries_change and e.target not in reached]
    inputs = [_dataset(known[d], namespace) for d in reached if d in known]
    return _event(
        run=release.digest,
        job=f"release.{release.name}",
        namespace=namespace,
        when=when,
        inputs=inputs,
        outputs=[_release_dataset(release, namespace)],
        run_facets={"specops_release": _facet({"id": release.id, "digest": release.digest})},
    )


def _found(evidence: Evidence, release: Release, namespace: str) -> dict[str, Any]:
    content = {"kind": evidence.kind, "digest": digest_of(evidence.payload), "scope": evidence.scope}
    return _event(
        run=digest_of([evidence.subject, evidence.kind, evidence.at, content["digest"]]),
        job=f"evidence.{evidence.kind}",
        namespace=namespace,
        when=evidence.at,
        inputs=[_release_dataset(release, namespace)],
        outputs=[],
        run_facets={"specops_evidence": _facet({k: v for k, v in content.items() if v is not None})},
    )


def _event(
    *, run: str, job: str, namespace: str, when: str, inputs: list[Any], outputs: list[Any], run_facets: dict[str, Any]
) -> dict[str, Any]:
    return {
        "eventType": "COMPLETE",
        "eventTime": when,
        "producer": PRODUCER,
        "schemaURL": SCHEMA,
        "run": {"runId": str(uuid.uuid5(uuid.NAMESPACE_URL, f"specops:{run}")), "facets": run_facets},
        "job": {"namespace": namespace, "name": job, "facets": {}},
        "inputs": inputs,
        "outputs": outputs,
    }


def _dataset(artifact: Artifact, namespace: str) -> dict[str, Any]:
    said = {"kind": artifact.kind, "digest": artifact.digest, "name": artifact.name, "bytes": str(artifact.size)}
    version = {"datasetVersion": artifact.digest}
    return {
        "namespace": namespace,
        "name": f"{artifact.kind}/{artifact.digest}",
        "facets": {"version": _standard(version, "DatasetVersionDatasetFacet"), "specops_artifact": _facet(said)},
    }


def _release_dataset(release: Release, namespace: str) -> dict[str, Any]:
    said = {"id": release.id, "digest": release.digest, "method": release.method or "plain"}
    return {
        "namespace": namespace,
        "name": f"release/{release.digest}",
        "facets": {
            "version": _standard({"datasetVersion": release.id}, "DatasetVersionDatasetFacet"),
            "specops_release": _facet(said),
        },
    }


def _facet(content: dict[str, Any]) -> dict[str, Any]:
    return {"_producer": PRODUCER, "_schemaURL": FACETS} | content


def _standard(content: dict[str, Any], name: str) -> dict[str, Any]:
    url = f"https://openlineage.io/spec/facets/1-0-1/{name}.json#/$defs/{name}"
    return {"_producer": PRODUCER, "_schemaURL": url} | content
