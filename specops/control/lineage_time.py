"""The past: what served at a moment, and from a request, an MLflow run or a report back to the bytes.

Called by the CLI. `core.history` decides what served; a trace only follows stored links, and says where one is missing.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from specops.control.act import PRODUCTION
from specops.control.lineage import Shown, show
from specops.control.lineage_ports import Store, Unit
from specops.core.audit import AuditEntry
from specops.core.history import Move, Served, served_at
from specops.core.outcome import Outcome
from specops.errors import InvalidInput

RunTags = Callable[[str], Mapping[str, str] | None]
"""Return the tags of an MLflow run; None when there is no such run."""

REPORT = "report"  # kind of the evidence that a report was written


def served(unit: Unit, at: datetime) -> Served:
    """Say what served at a moment, in which shares, and who had moved it.

    Raises:
        InvalidInput: the time has no zone.
    """
    if at.tzinfo is None:
        raise InvalidInput(f"{at.isoformat()} has no zone; write it as 2026-11-29T12:00:00+00:00 or with a Z at the end")
    moves = [Move(release_id=m.release_id, actor=m.actor, at=m.at) for m in unit.aliases.history(PRODUCTION)]
    return served_at(moves, unit.history.entries("rollout:", until=at), at)


def record_report(
    store: Store, *, rollout_id: str, files: Mapping[str, str], actor: str, now: datetime
) -> None:
    """Remember the reports that were written about a rollout, by name and SHA-256, so that a file can be traced back."""
    with store.begin() as unit:
        unit.evidence.add(rollout_id, REPORT, {"files": dict(files)}, now)
        unit.audit.append(
            tag="report:bundle:written", actor=actor, subject=rollout_id, payload={"files": dict(files)}, at=now
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One outcome of a traced request, its rollout, and the sealed segment that holds it (None: not sealed yet)."""

    rollout: str
    outcome: Outcome
    segment: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """The way from a request, run or report to releases, artifacts and files; entries about them, oldest first."""

    kind: str
    key: str
    answers: tuple[Answer, ...]
    rollouts: tuple[str, ...]
    releases: tuple[Shown, ...]
    entries: tuple[AuditEntry, ...]
    notes: tuple[str, ...]


def trace(
    unit: Unit, key: str, *, sha256: str | None = None, run_tags: RunTags | None = None, rollout: str | None = None
) -> Trace:
    """Follow a request id, a report or an MLflow run id back to the bytes; tried in this order.

    Args:
        unit: a read transaction.
        key: what a person holds: request id, report's digest or path, run id.
        sha256: digest of the file, where `key` is one.
        run_tags: reads the tags of an MLflow run; None: MLflow is not asked.
        rollout: search the outcomes of this rollout only.

    Raises:
        InvalidInput: nothing on record leads on from it.
    """
    if not key.isprintable():  # also half a surrogate pair, which no database can look for
        raise InvalidInput(f"{key!r} cannot be on record; give a request id, a written report, or a run id")
    if sha256 is None:
        found = [Answer(rollout=r, outcome=o, segment=s) for r, o, s in unit.history.request(key, rollout)]
        if found:
            releases = [a.outcome.release_id for a in found]
            return _trace(unit, "request", key, answers=found, rollouts=[a.rollout for a in found], releases=releases)
    for line in unit.evidence.of_kind(REPORT):
        if (sha256 or key) in line["payload"].get("files", {}).values():
            about = [r for r in unit.rollouts.all() if r.id == line["subject"]]
            ends = [end for r in about for end in (r.baseline, r.candidate)]
            return _trace(unit, "report", key, rollouts=[line["subject"]], releases=ends)
    tags = run_tags(key) if run_tags and sha256 is None else None
    if tags is not None:
        return _of_run(unit, key, tags)
    looked = "reports by digest" if sha256 else "outcomes, reports" + (" and MLflow runs" if run_tags else "")
    raise InvalidInput(f"{key} is not on record; looked among {looked}: give a request id, a written report, or a run id")


def _of_run(unit: Unit, key: str, tags: Mapping[str, str]) -> Trace:
    """Follow a run by its tags. MLflow lets anyone change them, so what they name is looked up, not believed."""
    names = [tags[name] for name in ("specops.release_digest", "specops.release_id", "specops.candidate") if tags.get(name)]
    rollouts = [tags[name] for name in ("specops.rollout", "specops.rollout_id") if tags.get(name)]
    known = list(dict.fromkeys(r.id for name in names for r in unit.releases.find(name)))
    if not known and not rollouts:
        raise InvalidInput(f"MLflow run {key} has no tag of a release that is registered here; its tags: {sorted(tags)}")
    note = "MLflow's tags can be changed by anyone; the release was looked up by what they say"
    return _trace(unit, "run", key, rollouts=rollouts, releases=known, notes=[note])


def _trace(
    unit: Unit,
    kind: str,
    key: str,
    *,
    rollouts: list[str],
    releases: list[str],
    answers: list[Answer] | None = None,
    notes: list[str] | None = None,
) -> Trace:
    shown, said = [], list(notes or ())
    for name in dict.fromkeys(releases):
        if unit.releases.find(name):
            shown.append(show(unit, name))
        else:
            said.append(f"release {name} is not registered here")
    subjects = dict.fromkeys([*rollouts, *(d for s in shown for d in (s.thing.kind, *(a.digest for a in s.artifacts)))])
    entries = {e.index: e for subject in subjects for e in unit.audit.of(subject)}
    return Trace(
        kind=kind,
        key=key,
        answers=tuple(answers or ()),
        rollouts=tuple(dict.fromkeys(rollouts)),
        releases=tuple(shown),
        entries=tuple(entries[index] for index in sorted(entries)),
        notes=tuple(said),
    )
