"""Cut a part of the lineage out of a store, and take one in from elsewhere.

Called by `specops lineage export` and `import-bundle` inside one transaction. Files and formats are `adapters`' business: what
comes in here was checked already, and is registered whole or not at all, with an entry that says where it came from.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Protocol

from specops.control import lineage_ports
from specops.control.lineage import find
from specops.core.pair import Pair
from specops.core.release import Artifact, Edge
from specops.core.slice import Bundle, Evidence, LineageSlice, ProvenEntry

MAX_ENTRIES = 5_000  # audit entries that travel with a slice, the newest of each subject first


class Audit(lineage_ports.Audit, Protocol):
    """The audit log with proofs."""

    def prove(self, index: int, size: int | None = None) -> tuple[bytes, ...]:
        """Return an inclusion proof."""
        ...

    def notes(self) -> list[str]:
        """Return the signed checkpoints, smallest first."""
        ...


class Edges(lineage_ports.Edges, Protocol):
    """The graph, added to in bulk."""

    def add_many(self, edges: Iterable[Edge], /) -> int:
        """Add edges, all or none; return how many are new."""
        ...


class Findings(lineage_ports.Evidence, Protocol):
    """Findings with their scope."""

    def add(self, subject: str, kind: str, payload: dict[str, Any], at: datetime, scope: str | None = None, /) -> None:
        """Keep a finding."""
        ...


class Unit(lineage_ports.Unit, Protocol):
    """One transaction, seen by an exchange."""

    @property
    def audit(self) -> Audit:
        """The audit log."""
        ...

    @property
    def edges(self) -> Edges:
        """The graph."""
        ...

    @property
    def evidence(self) -> Findings:
        """Findings."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenIn:
    """How many of each were new."""

    artifacts: int
    edges: int
    pairs: int
    releases: int
    evidence: int


def collect(unit: Unit, key: str) -> Bundle:
    """Return a release, pair or artifact with all that it stands on, its findings, and the log's entries about them.

    Entries are proven against the newest signed checkpoint; younger ones stay behind.

    Raises:
        InvalidRecord: nothing, or more than one thing, is known as `key`.
    """
    thing = find(unit, key)
    releases = (thing.release,) if thing.release else ()
    roots = [thing.digest, *(d for r in releases for d in r.components)]
    nodes = [*roots, *unit.edges.ingredients(roots)]
    named = unit.names.of(nodes)
    artifacts = [unit.artifacts.get(d) for d in nodes if d in named and named[d].family == "artifact"]
    whole = [_with_tensors(unit, a) for a in dict.fromkeys(a.digest for a in artifacts)]
    pairs = [record for d in nodes if d in named and named[d].family == "pair" for _, record in unit.names.pairs(d)]
    within = set(nodes)
    edges = tuple(e for e in unit.edges.out_of(nodes) if e.target in within)
    findings = [e for r in releases for e in unit.evidence.of(r.id)]
    part = LineageSlice(
        subject=thing.release.id if thing.release else thing.digest,
        artifacts=tuple(sorted(whole, key=lambda a: (a.kind, a.name, a.digest))),
        edges=edges,
        releases=releases,
        pairs=tuple(Pair.from_record(record) for record in pairs),
        evidence=tuple(_finding(e) for e in findings),
    )
    subjects = [*(r.id for r in releases), *(a.digest for a in part.artifacts), *(p.digest for p in part.pairs)]
    note, entries = _proven(unit, subjects)
    return Bundle(part=part, audit=entries, note=note)


def take_in(unit: Unit, bundle: Bundle, *, origin: str, actor: str, now: datetime) -> TakenIn:
    """Register what a checked bundle holds; what is known already stays as it is, so doing it twice changes nothing.

    Args:
        unit: a transaction that may write.
        bundle: what `adapters.lineage_bundle.read_bundle` returned.
        origin: the key line of whoever sealed it.
        actor: who takes it in.
        now: time of the entry, UTC.

    Raises:
        InvalidRecord: an edge would close a cycle, or a release's name is taken here by another configuration.
    """
    part = bundle.part
    mine = (*(a.digest for a in part.artifacts), *(p.digest for p in part.pairs), *(r.digest for r in part.releases))
    known = unit.names.of(mine)
    for artifact in part.artifacts:
        unit.artifacts.add(artifact)
    for pair in part.pairs:
        unit.pairs.add(pair)
    for release in part.releases:
        unit.releases.add(release)
    edges = unit.edges.add_many(part.edges)
    new_evidence = _new_findings(unit, part)
    for finding in new_evidence:
        unit.evidence.add(
            finding.subject, finding.kind, finding.payload, datetime.fromisoformat(finding.at), finding.scope
        )
    taken = TakenIn(
        artifacts=sum(a.digest not in known for a in part.artifacts),
        pairs=sum(p.digest not in known for p in part.pairs),
        releases=sum(r.digest not in known for r in part.releases),
        edges=edges,
        evidence=len(new_evidence),
    )
    if taken.artifacts or taken.pairs or taken.releases or taken.edges or taken.evidence:
        unit.audit.append(
            tag="lineage:bundle:imported",
            actor=actor,
            subject=part.subject,
            at=now,
            payload={"origin": origin, "artifacts": taken.artifacts, "releases": taken.releases, "pairs": taken.pairs}
            | {"edges": taken.edges, "evidence": taken.evidence},
        )
    return taken


def _with_tensors(unit: Unit, digest: str) -> Artifact:
    """Return an artifact with its tensor digests, which are rows of their own."""
    return replace(unit.artifacts.get(digest), tensors=unit.artifacts.tensors_of(digest))


def _finding(row: dict[str, Any]) -> Evidence:
    return Evidence(subject=row["subject"], kind=row["kind"], payload=row["payload"], at=row["at"], scope=row.get("scope"))


def _new_findings(unit: Unit, part: LineageSlice) -> list[Evidence]:
    """Return the findings that are not there yet, word for word."""
    known = [_finding(row) for subject in {e.subject for e in part.evidence} for row in unit.evidence.of(subject)]
    return [e for e in part.evidence if e not in known]


def _proven(unit: Unit, subjects: list[str]) -> tuple[str, tuple[ProvenEntry, ...]]:
    """Return the newest signed checkpoint and the entries about the subjects that lie under it, with their proofs."""
    notes = unit.audit.notes()
    if not notes:
        return "", ()
    size = int(notes[-1].split("\n")[1])  # origin, size, root: C2SP tlog-checkpoint
    entries = sorted((e for s in dict.fromkeys(subjects) for e in unit.audit.of(s) if e.index < size), key=lambda e: e.index)
    kept = entries[-MAX_ENTRIES:]
    return notes[-1], tuple(ProvenEntry(index=e.index, raw=e.to_bytes(), proof=unit.audit.prove(e.index, size)) for e in kept)
