"""How the answers to lineage questions print: tables for people, records for `--json`. Called by `cli.lineage` only."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from specops.cli.render import emit_json, emit_table

if TYPE_CHECKING:
    from specops.control.impact import Impact
    from specops.control.lineage import Compared, Shown
    from specops.control.lineage_time import Trace
    from specops.core.lineage_diff import ArtifactDiff
    from specops.core.release import Artifact, Release

SHOWN = 20  # rows per table; --json has all


def releases(found: "list[Release]", *, json: bool) -> None:
    """Print the list of releases."""
    if json:
        return emit_json([r.to_record() | {"id": r.id, "digest": r.digest} for r in found])
    rows = [(r.name, r.id, r.method or "plain", r.num_speculative_tokens) for r in found]
    return emit_table("releases", ("name", "id", "method", "k"), rows)


def shown_record(found: "Shown") -> dict[str, Any]:
    """Return what `show --json` prints: the thing under its family's name, what it came from, and edges."""
    thing = found.thing
    value: dict[str, Any] = {"digest": thing.digest}
    if thing.release:
        value |= thing.release.to_record() | {"id": thing.release.id}
    elif thing.artifact:
        value |= _artifact(thing.artifact)
    else:
        value |= thing.pair or {}
    return {
        thing.family: value,
        "aliases": list(found.aliases),
        "artifacts": [_artifact(a) for a in found.artifacts],
        "edges": [{"source": e.source, "kind": e.kind, "target": e.target} for e in found.edges],
    }


def _artifact(artifact: "Artifact") -> dict[str, Any]:
    return {
        "digest": artifact.digest,
        "kind": artifact.kind,
        "name": artifact.name,
        "facts": artifact.facts,
        "properties": artifact.properties,
        "claims": artifact.claims,
        "files": len(artifact.files),
        "bytes": artifact.size,
    }


def shown(found: "Shown") -> None:
    """Print a thing, what it came from, and edges; what files merely say is marked as a claim."""
    thing = found.thing
    record = thing.release.to_record() if thing.release else thing.pair or {}
    rows = [("digest", thing.digest), *((k, v) for k, v in record.items() if v not in (None, {}, 0, (), []))]
    if thing.artifact:
        told = (("", thing.artifact.facts), ("", thing.artifact.properties), ("claimed: ", thing.artifact.claims))
        rows += [(f"{mark}{key}", value) for mark, each in told for key, value in each.items()]
        rows += [(f"file {f.path}", f"{f.size} bytes {f.sha256}") for f in thing.artifact.files[:SHOWN]]
    served = f", {' and '.join(found.aliases)}" if found.aliases else ""
    emit_table(f"{thing.family} {thing.name} {thing.kind}{served}", ("field", "value"), rows)
    emit_table(
        "artifacts",
        ("kind", "name", "digest", "files", "claims, not checked"),
        [(a.kind, a.name, a.digest[:12], len(a.files), ", ".join(map(str, a.claims))) for a in found.artifacts],
    )
    emit_table(
        "edges",
        ("from", "relation", "to"),
        [(found.names.get(e.source, e.source[:12]), e.kind, found.names.get(e.target, e.target[:12])) for e in found.edges],
    )


def compared(found: "Compared") -> None:
    """Print differences, then details of each component, then what they can change."""
    if not (found.differences or any(_differs(d) for d in found.details.values())):
        return typer.echo("no difference")
    if found.differences:
        emit_table(
            f"{found.left} -> {found.right}",
            ("component", found.left, found.right, "can change", "why"),
            [(d.component, _short(d.left), _short(d.right), d.can_change, d.why) for d in found.differences],
        )
    for component, detail in found.details.items():
        _detail(component, detail)
    for effect, names in found.can_change.items():
        typer.echo(f"can change {effect}: {', '.join(names) or 'nothing'}")
    return None


def _differs(detail: "ArtifactDiff") -> bool:
    return any(g.differs for g in detail.groups) or bool(detail.differences)


def _detail(component: str, detail: "ArtifactDiff") -> None:
    counts = ("same", "changed", "moved", "only_left", "only_right")
    emit_table(
        f"{component}: {detail.left[:12]} -> {detail.right[:12]}",
        (component, *(name.replace("_", " ") for name in counts), "first", "can change"),
        [(g.component, *(getattr(g, name) for name in counts), "; ".join(g.names), g.can_change) for g in detail.groups],
    )
    rows = [(d.component, _short(d.left), _short(d.right), d.can_change, d.why) for d in detail.differences[:SHOWN]]
    if rows:
        emit_table("", ("entry", "left", "right", "can change", "why"), rows)
    for note in detail.notes:
        typer.echo(f"{component}: {note}")


def impact(found: "Impact") -> None:
    """Print what depends on a thing, most urgent first: rollouts, releases and evidence, then pairs and artifacts."""
    if found.rollouts:
        running = [(r.id, r.state, r.baseline, r.candidate) for r in found.rollouts[:SHOWN]]
        emit_table("rollouts", ("id", "state", "baseline", "candidate"), running)
    for release in found.releases[:SHOWN]:
        through = ", ".join(release.components) or "its parts"
        title = f"release {release.name} {release.id}: can change {release.can_change}, through {through}"
        rows = [(e.kind, f"{e.at:%Y-%m-%d %H:%M}", (e.scope or "")[:12], e.loses, e.why) for e in release.evidence]
        if rows:
            emit_table(title, ("evidence", "at", "scope", "loses", "why"), rows)
        else:
            typer.echo(f"{title}; no evidence on record")
    for name, each in (("pairs", found.pairs), ("artifacts", found.artifacts)):
        if each:
            lines = [(d.kind, d.name, d.digest[:12], d.because or "through others") for d in each[:SHOWN]]
            emit_table(name, ("kind", "name", "digest", "because it is"), lines)
    counts = f"{len(found.artifacts)} artifacts, {len(found.pairs)} pairs, {len(found.releases)} releases"
    served = "; production serves one of them" if found.is_served else ""
    typer.echo(f"{found.kind} {found.name}: {counts}, {len(found.rollouts)} rollouts depend on it{served}")


def trace_record(found: "Trace") -> dict[str, Any]:
    """Return what `trace --json` prints: every link down to the files with their digests."""
    return {
        "kind": found.kind,
        "key": found.key,
        "outcomes": [{"rollout": a.rollout, "segment": a.segment, **a.outcome.to_record()} for a in found.answers],
        "rollouts": found.rollouts,
        "releases": [
            shown_record(s) | {"files": [{"artifact": a.digest, **asdict(f)} for a in s.artifacts for f in a.files]}
            for s in found.releases
        ],
        "audit": [
            {"index": e.index, "at": e.at, "tag": e.tag, "actor": e.actor, "subject": e.subject} for e in found.entries
        ],
        "notes": found.notes,
    }


def trace(found: "Trace") -> None:
    """Print the way back, one table per link."""
    if found.answers:
        emit_table(
            f"request {found.key}",
            ("rollout", "arm", "kind", "release", "at", "finish", "held in"),
            [
                (a.rollout, a.outcome.arm, a.outcome.kind, a.outcome.release_id, f"{a.outcome.at:%Y-%m-%d %H:%M:%S}",
                 a.outcome.finish, a.segment["path"] if a.segment else "the unsealed tail")
                for a in found.answers
            ],
        )  # fmt: skip
    for release in found.releases:
        rows = [(a.kind, a.name, f.path, f.size, f.sha256) for a in release.artifacts for f in a.files]
        emit_table(f"release {release.thing.name} {release.thing.kind}", ("kind", "artifact", "file", "bytes", "sha256"), rows)
    entries = [(e.index, f"{e.at:%Y-%m-%d %H:%M:%S}", e.tag, e.actor, e.subject[:32]) for e in found.entries[-SHOWN:]]
    emit_table("audit entries", ("#", "at", "tag", "actor", "subject"), entries)
    for note in found.notes:
        typer.echo(note)


def _short(value: object) -> str:
    """Cut a digest to what tells two apart; other values as they are."""
    text = "" if value is None else str(value)
    return text[:12] if len(text) == 64 else text  # noqa: PLR2004  # hex digits of a SHA-256
