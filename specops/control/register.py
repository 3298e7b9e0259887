"""Register what was built: artifacts, edges, pairs and releases, each with its audit entry, in one transaction.

Called by the importers, `specops release` and the quickstart. An edge that somebody draws has an entry of its own. The `uses`
edges from a pair or a release to its components follow from its content, so its entry lists them. Whether a release may be
lossy is decided by `core.lossy`, whether a pair holds by `core.pair_proof`.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from specops.control.lineage import link_shared
from specops.control.lineage_ports import Store, Unit
from specops.core.candidate import Candidate, build
from specops.core.lossy import require_exact
from specops.core.pair import Pair
from specops.core.release import Artifact, Edge, EdgeKind, Release
from specops.errors import IncompatibleRelease, InvalidRecord

_DIGEST = re.compile(r"[0-9a-f]{64}")


def register(
    store: Store,
    *,
    artifacts: Iterable[Artifact],
    edges: Iterable[Edge],
    releases: Iterable[Release],
    actor: str,
    now: datetime,
    pairs: Iterable[Pair] = (),
    allow_lossy: Iterable[str] = (),
) -> tuple[str, ...]:
    """Register everything or nothing; what is registered already stays as it is. Returns the release ids.

    Raises:
        IncompatibleRelease: a release is lossy and `allow_lossy` does not name how, or it is not its pair's.
        InvalidRecord: an edge would close a circle, or a name is taken.
    """
    allowed = frozenset(allow_lossy)
    with store.begin() as unit:
        entry = _Entries(unit=unit, actor=actor, now=now)
        _add_artifacts(unit, entry, tuple(artifacts))
        for edge in edges:
            _check_ends(edge)
            if unit.edges.add(edge):
                entry.drawn(edge)
        for pair in pairs:
            _add_pair(unit, entry, pair)
        return tuple(_add_release(unit, entry, release, allowed) for release in releases)


@dataclass(frozen=True, slots=True, kw_only=True)
class Enrolled:
    """What came of a candidate: the release with its id, and the pair where there is one."""

    release: Release
    pair: Pair | None


def enroll(store: Store, candidate: Candidate, *, actor: str, now: datetime, allow_lossy: Iterable[str] = ()) -> Enrolled:
    """Prove and register a release with everything that it is made of.

    A draft's teacher is taken from its `distilled_from` edge where the candidate does not say.

    Raises:
        IncompatibleRelease: the pair does not hold, or the release is lossy and nobody allowed it by name.
        InvalidRecord: the same configuration is registered under another name, or the name is taken.
    """
    if candidate.teacher is None and candidate.draft is not None:
        with store.read() as unit:
            teacher = _teacher(unit, candidate.draft.weights.digest, candidate.target.weights.digest)
        candidate = replace(candidate, teacher=teacher)
    built = build(candidate)
    known = registered_names(store, [built.release.digest]).get(built.release.digest, candidate.name)
    if known != candidate.name:
        raise InvalidRecord(
            f"this configuration is already registered as {known} ({built.release.id}), a second name {candidate.name} would "
            f"mean the same; use {known}"
        )
    register(
        store,
        artifacts=built.artifacts,
        edges=built.edges,
        releases=(built.release,),
        pairs=(built.pair,) if built.pair is not None else (),
        allow_lossy=allow_lossy,
        actor=actor,
        now=now,
    )
    return Enrolled(release=built.release, pair=built.pair)


def registered_names(store: Store, digests: Iterable[str]) -> dict[str, str]:
    """Return the names under which digests are registered already; those that are not are left out."""
    with store.read() as unit:
        return {digest: named.name for digest, named in unit.names.of(digests).items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entries:
    """Writes audit entries of one transaction."""

    unit: Unit
    actor: str
    now: datetime

    def write(self, tag: str, subject: str, payload: dict[str, Any]) -> None:
        """Append an entry."""
        self.unit.audit.append(tag=tag, actor=self.actor, subject=subject, payload=payload, at=self.now)

    def drawn(self, edge: Edge, *, found_by: str = "") -> None:
        """Append the entry of an edge; `found_by` says what drew it when no person did."""
        why = {"found_by": found_by} if found_by else {}
        self.write("lineage:edge:drawn", edge.source, {"kind": edge.kind, "target": edge.target} | why)


def _add_artifacts(unit: Unit, entry: _Entries, artifacts: tuple[Artifact, ...]) -> None:
    known = unit.names.of([a.digest for a in artifacts])
    for artifact in {a.digest: a for a in artifacts}.values():
        if artifact.digest in known:
            continue
        unit.artifacts.add(artifact)
        payload = {"kind": artifact.kind, "name": artifact.name, "files": len(artifact.files)}
        entry.write("lineage:artifact:registered", artifact.digest, payload)
        if artifact.tensors:
            for edge in link_shared(unit, artifact.digest):
                entry.drawn(edge, found_by="tensor digests")


def _check_ends(edge: Edge) -> None:
    """Check that both ends are whole digests: an abbreviation or a name would lead nowhere."""
    for end in (edge.source, edge.target):
        if not _DIGEST.fullmatch(end):
            raise InvalidRecord(f"an edge {edge.kind} ends at {end[:80]!r}, expected 64 hex digits; give the whole digest")


def _add_pair(unit: Unit, entry: _Entries, pair: Pair) -> None:
    if unit.pairs.add(pair):
        payload = {"method": pair.method, "vocabulary": pair.vocabulary.kind, "components": list(pair.components)}
        entry.write("lineage:pair:registered", pair.digest, payload)
    _draw_uses(unit, pair.digest, pair.components)


def _add_release(unit: Unit, entry: _Entries, release: Release, allowed: frozenset[str]) -> str:
    if not unit.names.of([release.digest]):
        require_exact(release, allowed)
        _check_pair(unit, release)
        unit.releases.add(release)
        payload = {"name": release.name, "digest": release.digest, "components": list(release.components)}
        payload |= {"lossy": list(release.lossy)} if release.lossy else {}
        entry.write("lineage:release:registered", release.id, payload)
    _draw_uses(unit, release.digest, release.components)
    return release.id


def _draw_uses(unit: Unit, source: str, components: Iterable[str]) -> None:
    for component in components:
        unit.edges.add(Edge(source=source, kind=EdgeKind.USES, target=component))


def _check_pair(unit: Unit, release: Release) -> None:
    """Check that a release that names a pair is made of that pair's parts."""
    if release.pair is None:
        return
    pair = unit.pairs.get(release.pair)
    parts = (
        ("target", release.target, pair.target),
        ("draft", release.draft, pair.draft),
        ("method", release.method, pair.method),
        ("tokenizer", release.tokenizer, pair.target_tokenizer),
        ("draft tokenizer", release.draft_tokenizer, pair.draft_tokenizer),
    )
    for what, mine, proved in parts:
        if mine != proved:
            raise IncompatibleRelease(
                f"release {release.name}: its {what} is {str(mine)[:16]}, pair {pair.digest[:16]} was proved for "
                f"{str(proved)[:16]}; prove the pair that it serves"
            )


def _teacher(unit: Unit, draft: str, target: str) -> str | None:
    """Return what a draft was distilled from, as registered; the target itself, if it is among several."""
    known = [e.target for e in unit.edges.out_of([draft]) if e.kind is EdgeKind.DISTILLED_FROM]
    return target if target in known else next(iter(known), None)
