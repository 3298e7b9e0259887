"""What depends on a thing, and which drafts no longer fit what is served. Called by the CLI and the console, reads only.

The walk is the store's, what a change does is `core.impact`'s. A draft that was distilled from another target still serves
exactly the target's output law; it is slower (SafeAILab/EAGLE #98), which is why staleness is a question of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from specops.control.act import PRODUCTION
from specops.control.lineage import Thing, find
from specops.control.lineage_ports import Unit
from specops.core.impact import lose, touch
from specops.core.lineage import Effect
from specops.core.release import Artifact, ArtifactKind, EdgeKind, Release
from specops.errors import InvalidRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependant:
    """Something that depends on the changed thing; `because` is its relation to it, empty where others lie between."""

    digest: str
    kind: str
    name: str
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceAtRisk:
    """A finding and what it loses: all, speed, basis, or nothing."""

    kind: str
    at: datetime
    scope: str | None
    loses: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseAtRisk:
    """A release that depends on the changed thing."""

    id: str
    name: str
    components: tuple[str, ...]
    can_change: Effect
    why: str
    evidence: tuple[EvidenceAtRisk, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutAtRisk:
    """A rollout in which such a release took part; running ones come first."""

    id: str
    state: str
    baseline: str
    candidate: str
    is_over: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Impact:
    """Everything that has to be looked at again when a thing changes."""

    digest: str
    name: str
    kind: str
    artifacts: tuple[Dependant, ...]
    pairs: tuple[Dependant, ...]
    releases: tuple[ReleaseAtRisk, ...]
    rollouts: tuple[RolloutAtRisk, ...]
    is_served: bool


def impact(unit: Unit, key: str) -> Impact:
    """Return what depends on a thing: artifacts, pairs, releases with their evidence, and rollouts."""
    thing = find(unit, key)
    depending = unit.names.depending_on(thing.digests)
    direct = {e.source: f"{e.kind} it" for e in unit.edges.into(thing.digests) if e.kind.carries_change}
    of: dict[str, list[Dependant]] = {"artifact": [], "pair": [], "release": []}
    for what in depending:
        because = direct.get(what.digest, "")
        of[what.family].append(Dependant(digest=what.digest, kind=what.kind, name=what.name, because=because))
    changed = frozenset(what.digest for what in depending).union(thing.digests)
    releases = [unit.releases.get(d.digest) for d in of["release"]]
    releases += [r for r in unit.releases.without_edges() if r.digest != thing.digest and not changed.isdisjoint(r.components)]
    releases += [thing.release] if thing.release else []
    at_risk = _at_risk(unit, thing, releases, changed)
    ids = {r.id for r in releases}
    rollouts = [r for r in unit.rollouts.all() if r.baseline in ids or r.candidate in ids]
    return Impact(
        digest=thing.digest,
        name=thing.name,
        kind=thing.kind,
        artifacts=_sorted(of["artifact"]),
        pairs=_sorted(of["pair"]),
        releases=at_risk,
        rollouts=tuple(
            RolloutAtRisk(id=r.id, state=r.state, baseline=r.baseline, candidate=r.candidate, is_over=r.is_terminal)
            for r in sorted(rollouts, key=lambda r: (r.is_terminal, r.id))
        ),
        is_served=unit.aliases.get(PRODUCTION) in ids,
    )


def _sorted(found: list[Dependant]) -> tuple[Dependant, ...]:
    """Put direct dependants first, then by kind and name."""
    return tuple(sorted(found, key=lambda d: (not d.because, d.kind, d.name, d.digest)))


def _at_risk(
    unit: Unit, thing: Thing, releases: Sequence[Release], changed: frozenset[str]
) -> tuple[ReleaseAtRisk, ...]:
    origin = thing.artifact.kind if thing.artifact else None
    findings: dict[str, list[tuple[str, datetime, str | None]]] = {}
    for subject, kind, at, scope in unit.evidence.listed([r.id for r in releases]):
        findings.setdefault(subject, []).append((kind, at, scope))
    risks = []
    for release in releases:
        touched = touch(release, origin, changed.__contains__)
        lost = []
        for kind, at, scope in findings.get(release.id, ()):
            loss = lose(touched, kind, origin)
            lost.append(EvidenceAtRisk(kind=kind, at=at, scope=scope, loses=loss.loses, why=loss.why))
        risks.append(
            ReleaseAtRisk(
                id=release.id,
                name=release.name,
                components=touched.components,
                can_change=touched.can_change,
                why=touched.why,
                evidence=tuple(lost),
            )
        )
    return tuple(sorted(risks, key=lambda r: r.name))


@dataclass(frozen=True, slots=True, kw_only=True)
class StaleDraft:
    """A draft whose teacher is not the served target; `teachers` are names, `releases` those that use it."""

    digest: str
    name: str
    teachers: tuple[str, ...]
    why: str
    releases: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Staleness:
    """The target that drafts were compared with, how many are fresh, and those that are not."""

    target: str
    target_name: str
    fresh: int
    stale: tuple[StaleDraft, ...]


def stale(unit: Unit, target: str | None = None) -> Staleness:
    """Return the drafts whose teacher is not the served target (or another one that is named).

    Raises:
        InvalidRecord: nothing is served and no target is named, or the named thing is no target.
    """
    served = _served(unit, target)
    line = set(unit.edges.ingredients([served]))  # what the served target was made from
    drafts = unit.artifacts.of_kind(ArtifactKind.DRAFT)
    teachers: dict[str, list[str]] = {}
    for edge in unit.edges.out_of([d.digest for d in drafts]):
        if edge.kind is EdgeKind.DISTILLED_FROM:
            teachers.setdefault(edge.source, []).append(edge.target)
    names = unit.names.of([served, *(t for each in teachers.values() for t in each)])
    users: dict[str, list[str]] = {}
    for release in unit.releases.all():
        users.setdefault(release.draft or "", []).append(release.name)
    found = []
    for draft in drafts:
        taught = teachers.get(draft.digest, [])
        if served not in taught:
            shown = tuple(names[t].name if t in names else t[:16] for t in taught)
            found.append(
                StaleDraft(
                    digest=draft.digest,
                    name=draft.name,
                    teachers=shown,
                    why=_why(draft, taught, line),
                    releases=tuple(users.get(draft.digest, ())),
                )
            )
    name = names[served].name if served in names else served[:16]
    return Staleness(target=served, target_name=name, fresh=len(drafts) - len(found), stale=tuple(found))


def _served(unit: Unit, target: str | None) -> str:
    if target is not None:
        thing = find(unit, target)
        if thing.release is None and thing.kind != ArtifactKind.TARGET:
            raise InvalidRecord(f"{target} is a {thing.kind or thing.family}, not a target; name a target or a release")
        return thing.release.target if thing.release else thing.digest
    current = unit.aliases.get(PRODUCTION)
    if current is None:
        raise InvalidRecord(f"the alias {PRODUCTION} was never set, so no target is served; name one with --target")
    return unit.releases.get(current).target


def _why(draft: Artifact, teachers: Sequence[str], line: set[str]) -> str:
    if not teachers:
        said = f"; its files only claim {', '.join(f'{k} {v}' for k, v in draft.claims.items())}" if draft.claims else ""
        return f"no teacher is recorded{said}; bind it with a distilled_from edge when it is known"
    if line.intersection(teachers):
        return "the served target was made from its teacher since (fine-tuned, quantised); measure acceptance again or retrain"
    return "it was distilled from another target; its proposals fit that one"
