"""Questions about the lineage: what is this, how do two differ, what is around it; and edges between equal tensors.

Called by the CLI and the console inside a read transaction; each answer is a frozen record. What a difference means is decided
in `core.lineage` and `core.lineage_diff`; dependants are `control.impact`'s, the past is `control.lineage_time`'s.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from specops.control.act import PRODUCTION
from specops.control.lineage_ports import Unit
from specops.core.lineage import Difference, Effect
from specops.core.lineage import diff as diff_releases
from specops.core.lineage_diff import ArtifactDiff, diff_artifacts
from specops.core.release import Artifact, ArtifactKind, Edge, EdgeKind, Release
from specops.errors import InvalidRecord

Read = Callable[[Artifact, str], bytes | None]
"""Return a registered file's bytes, or None where they are not at hand or not what was registered."""

MIN_SHARED = 0.01  # of the smaller one's values: norms full of ones are equal by chance, and under 0.1% of a model


@dataclass(frozen=True, slots=True, kw_only=True)
class Thing:
    """What a person asked about: `family` artifact, pair or release; one of the last three fields is there."""

    digest: str
    family: str
    kind: str
    name: str
    artifact: Artifact | None = None
    release: Release | None = None
    pair: dict[str, Any] | None = None

    @property
    def digests(self) -> tuple[str, ...]:
        """Every digest that edges and releases may know it by; tokenizers are also named by their content alone."""
        content = self.artifact.facts.get("content_sha256") if self.artifact else None
        return (self.digest, content) if isinstance(content, str) else (self.digest,)


def find(unit: Unit, key: str) -> Thing:
    """Return the one release, pair or artifact of this name, id, digest or first digits of one (eight at least).

    Raises:
        InvalidRecord: there is none, or there are several.
    """
    found = [_of_release(r) for r in unit.releases.find(key)]
    found += [_of_artifact(a) for a in unit.artifacts.find(key)]
    found += [
        Thing(digest=digest, family="pair", kind=str(record.get("relation", "")), name=f"pair {digest[:12]}", pair=record)
        for digest, record in unit.names.pairs(key)
    ]
    if not found:
        raise InvalidRecord(f"nothing is registered as {key}; give a name, id or digest: specops lineage show lists releases")
    if len(found) > 1:
        names = ", ".join(f"{t.kind if t.family == 'artifact' else t.family} {t.name} {t.digest[:16]}" for t in found[:8])
        raise InvalidRecord(f"{key} is {len(found)} things: {names}; give the digest of one")
    return found[0]


_MODELS = frozenset({ArtifactKind.TARGET, ArtifactKind.DRAFT})


def model_digest(unit: Unit, key: str) -> str:
    """Return the whole digest of the one registered model of this name, digest or first digits of one (eight at least).

    Raises:
        InvalidRecord: nothing or several things are registered as this, or it is no target and no draft.
    """
    found = unit.artifacts.find(key)
    models = [a for a in found if a.kind in _MODELS]
    if not found:
        raise InvalidRecord(f"no model is registered as {key!r}; register it first (specops lineage import hf)")
    if not models:
        raise InvalidRecord(f"{key} is a {found[0].kind}, expected a target or draft; give a model's name or digest")
    if len(models) > 1:
        names = ", ".join(f"{a.kind} {a.name} {a.digest[:16]}" for a in models[:8])
        raise InvalidRecord(f"{key} is {len(models)} models: {names}; give the digest of one")
    return models[0].digest


def _of_release(release: Release) -> Thing:
    return Thing(digest=release.digest, family="release", kind=release.id, name=release.name, release=release)


def _of_artifact(artifact: Artifact) -> Thing:
    return Thing(digest=artifact.digest, family="artifact", kind=artifact.kind, name=artifact.name, artifact=artifact)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A thing, all that it came from, and the edges between; `names` says what each end of an edge is."""

    thing: Thing
    artifacts: tuple[Artifact, ...]
    edges: tuple[Edge, ...]
    names: Mapping[str, str]
    aliases: tuple[str, ...]


def show(unit: Unit, key: str) -> Shown:
    """Return a thing with everything that it was made from."""
    thing = find(unit, key)
    start = [thing.digest, *(thing.release.components if thing.release else ())]
    reached = [*start, *unit.edges.ingredients(start)]
    named = unit.names.of(reached)
    artifacts = [unit.artifacts.get(d) for d in reached if d in named and named[d].family == "artifact"]
    edges = unit.edges.out_of(reached)
    names = {d: n.name for d, n in unit.names.of([e.target for e in edges] + reached).items()}
    is_served = thing.release is not None and unit.aliases.get(PRODUCTION) == thing.release.id
    mine = tuple(sorted(artifacts, key=lambda a: (a.kind, a.name, a.digest)))
    return Shown(thing=thing, artifacts=mine, edges=tuple(edges), names=names, aliases=(PRODUCTION,) if is_served else ())


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Two releases or artifacts compared. `details` go down to tensors and entries, by component of the release."""

    left: str
    right: str
    differences: tuple[Difference, ...]
    details: Mapping[str, ArtifactDiff]

    @property
    def can_change(self) -> dict[str, list[str]]:
        """Names of what differs, by what it can change; `output and speed` stands under both."""
        effects = [(d.component, d.can_change) for d in self.differences]
        if not self.differences:
            effects = [(g.component, g.can_change) for each in self.details.values() for g in each.groups if g.differs]
            effects += [(d.component, d.can_change) for each in self.details.values() for d in each.differences]
        return {
            "output": [name for name, e in effects if e in (Effect.OUTPUT, Effect.OUTPUT_AND_SPEED)],
            "speed": [name for name, e in effects if e in (Effect.SPEED, Effect.OUTPUT_AND_SPEED)],
            "neither": [name for name, e in effects if e is Effect.NEITHER],
        }


def diff(unit: Unit, left: str, right: str, *, read: Read = lambda _artifact, _path: None) -> Compared:
    """Compare two releases component by component, or two artifacts, down to tensors, tokenizer entries and keys.

    Raises:
        InvalidRecord: one is unknown, or they are not two releases, two models (target or draft), or two artifacts of a kind.
    """
    a, b = find(unit, left), find(unit, right)
    if a.artifact and b.artifact:
        if a.artifact.kind is not b.artifact.kind and not {a.artifact.kind, b.artifact.kind} <= _MODELS:
            raise InvalidRecord(f"{a.name} is a {a.kind}, {b.name} a {b.kind}; compare two artifacts of one kind")
        detail = {} if a.digest == b.digest else {"artifact": _detail(unit, a.artifact, b.artifact, read)}
        return Compared(left=a.name, right=b.name, differences=(), details=detail)
    if not (a.release and b.release):
        raise InvalidRecord(f"{left} is a {a.family}, {right} a {b.family}; compare two releases or two artifacts")
    differences = diff_releases(a.release, b.release)
    details = {}
    for each in differences:
        ends = [_component(unit, value) for value in (each.left, each.right)]
        if ends[0] and ends[1]:
            details[each.component] = _detail(unit, ends[0], ends[1], read)
    seen = tuple(_looked_into(each, details.get(each.component)) for each in differences)
    return Compared(left=a.name, right=b.name, differences=seen, details=details)


def _looked_into(difference: Difference, detail: ArtifactDiff | None) -> Difference:
    """Return a difference with what its details leave of it: another file with the same tensors changes nothing."""
    if detail is None or detail.can_change is not Effect.NEITHER:
        return difference
    return replace(difference, can_change=Effect.NEITHER, why="; ".join(detail.notes) or "nothing that is computed differs")


def _component(unit: Unit, value: object) -> Artifact | None:
    """Return the artifact that a release's field names; tokenizers may be named by their content alone."""
    if not isinstance(value, str) or len(value) != 64:  # noqa: PLR2004  # hex digits of a SHA-256
        return None
    found = unit.artifacts.find(value)
    found = found or [a for a in unit.artifacts.of_kind(ArtifactKind.TOKENIZER) if a.facts.get("content_sha256") == value]
    return found[0] if found else None


def _detail(unit: Unit, left: Artifact, right: Artifact, read: Read) -> ArtifactDiff:
    parsed = [_tokenizer(a, read) for a in (left, right)]
    both = (parsed[0], parsed[1]) if parsed[0] is not None and parsed[1] is not None else None
    tensors = (unit.artifacts.tensors_of(left.digest), unit.artifacts.tensors_of(right.digest))
    return diff_artifacts(left, right, tensors=tensors, tokenizers=both)


def _tokenizer(artifact: Artifact, read: Read) -> dict[str, Any] | None:
    """Return the parsed `tokenizer.json` of an artifact that has one."""
    path = next((f.path for f in artifact.files if f.path.rsplit("/", 1)[-1] == "tokenizer.json"), None)
    raw = read(artifact, path) if path else None
    try:
        value = json.loads(raw) if raw is not None else None
    except (ValueError, RecursionError):
        return None  # not JSON: the digests differ and say so
    return value if isinstance(value, dict) else None


def link_shared(unit: Unit, digest: str) -> tuple[Edge, ...]:
    """Draw `shares_tensors_with` edges to artifacts that hold tensors of the same content; return the new ones.

    Call it after an artifact was added, in the same transaction. Under 1% of the smaller one's values is left out: norms and
    scalars are equal by chance.
    """
    edges = [
        Edge(source=min(digest, s.other), kind=EdgeKind.SHARES_TENSORS_WITH, target=max(digest, s.other))
        for s in unit.artifacts.sharing(digest)
        if s.share >= MIN_SHARED
    ]
    known = set(unit.edges.out_of([digest])) | set(unit.edges.into([digest]))
    fresh = tuple(edge for edge in edges if edge not in known)
    for edge in fresh:
        unit.edges.add(edge)
    return fresh


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """Nodes (digest, label, kind) and edges to draw; `left_out` nodes did not fit."""

    nodes: tuple[tuple[str, str, str], ...]
    edges: tuple[tuple[str, str, str], ...]
    left_out: int


def graph(unit: Unit, key: str | None, *, limit: int = 200) -> Graph:
    """Return what to draw: all that a thing came from and what depends on it, nearest first; without one, of every release."""
    things = [find(unit, key)] if key else [_of_release(r) for r in unit.releases.all()]
    start = list(dict.fromkeys(d for t in things for d in (*t.digests, *(t.release.components if t.release else ()))))
    around = [*start, *unit.edges.ingredients(start)]
    if key:
        around += unit.edges.dependants(start)
    named = unit.names.of(dict.fromkeys(around))
    known = [d for d in dict.fromkeys(around) if d in named]
    drawn = frozenset(known[:limit])
    edges = [(e.source, e.kind.value, e.target) for e in unit.edges.out_of(drawn) if e.target in drawn]
    joined = {(source, target) for source, _, target in edges}
    releases = [r for d in known[:limit] if named[d].family == "release" for r in unit.releases.find(d)]
    edges += [
        (r.digest, "uses", part)
        for r in releases
        for part in r.components
        if part in drawn and (r.digest, part) not in joined
    ]
    nodes = [
        (d, named[d].name, named[d].kind if named[d].family == "artifact" else named[d].family) for d in known[:limit]
    ]
    return Graph(nodes=tuple(nodes), edges=tuple(edges), left_out=len(known) - len(drawn))
