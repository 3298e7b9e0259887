"""Register what was built: artifacts, edges and releases, each with its audit entry, in one transaction."""

from collections.abc import Iterable
from datetime import datetime

from specops.control.ports import Store
from specops.core.release import Artifact, Edge, Release


def register(
    store: Store,
    *,
    artifacts: Iterable[Artifact],
    edges: Iterable[Edge],
    releases: Iterable[Release],
    actor: str,
    now: datetime,
) -> tuple[str, ...]:
    """Register everything or nothing; what is registered already stays as it is. Returns the release ids."""
    ids = []
    with store.begin() as unit:
        known = {a.digest for a in unit.artifacts.all()}
        for artifact in artifacts:
            if artifact.digest in known:
                continue
            unit.artifacts.add(artifact)
            unit.audit.append(
                tag="lineage:artifact:registered",
                actor=actor,
                subject=artifact.digest,
                at=now,
                payload={"kind": artifact.kind, "name": artifact.name, "files": len(artifact.files)},
            )
        drawn = set(unit.edges.all())
        for edge in edges:
            if edge not in drawn:
                unit.edges.add(edge)
        listed = {r.id for r in unit.releases.all()}
        for release in releases:
            if release.id not in listed:
                unit.releases.add(release)
                unit.audit.append(
                    tag="lineage:release:registered",
                    actor=actor,
                    subject=release.id,
                    payload={"name": release.name, "digest": release.digest},
                    at=now,
                )
            ids.append(release.id)
    return tuple(ids)
