"""What served at a moment, from the moves of an alias and the audit entries of rollouts.

Called by `control.lineage_time`. It reads what was recorded, so it is as exact as the records: the route at a gateway follows a
committed decision within a poll, some hundred milliseconds later.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from specops.core.audit import AuditEntry
from specops.core.rollout import TERMINAL, State

_FIRST_STEP = re.compile(r"weight ([\d.e+-]+) mirror ([\d.e+-]+)")
_STARTED, _ABORTED = "rollout:plan:started", "rollout:plan:aborted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """An alias came to point to a release: who moved it, when (UTC)."""

    release_id: str
    actor: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutThen:
    """A rollout at a moment: live share and mirrored share in [0, 1], and who did the last thing to it."""

    id: str
    baseline: str
    candidate: str
    state: str
    weight: float
    mirror: float
    since: datetime
    actor: str
    tag: str

    @property
    def is_over(self) -> bool:
        """It had ended: all traffic was the baseline's, or the candidate's once finished."""
        return self.state in TERMINAL


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What served at a moment: shares by release id (sum 1; empty: nothing on record), why, alias and rollout then."""

    at: datetime
    shares: tuple[tuple[str, float], ...]
    why: str
    alias: Move | None
    rollout: RolloutThen | None


def served_at(moves: Iterable[Move], entries: Sequence[AuditEntry], at: datetime) -> Served:
    """Say what served at a moment.

    Args:
        moves: moves of the alias `production`, oldest first.
        entries: audit entries of rollouts (`rollout:...`), oldest first.
        at: the moment, with zone; what happened at it counts.
    """
    alias = next((move for move in reversed(list(moves)) if move.at <= at), None)
    states: dict[str, RolloutThen] = {}
    for entry in entries:
        if entry.at <= at:
            known = states.pop(entry.subject, None)
            after = _after(known, entry)
            if after is not None:
                states[entry.subject] = after  # at the end: the rollout that something was last done to
    last = next(reversed(states.values()), None)
    live = next((r for r in reversed(states.values()) if not r.is_over), None)
    if live is not None:
        both = ((live.baseline, 1 - live.weight), (live.candidate, live.weight))
        shares = tuple((name, share) for name, share in both if share)
        why = f"rollout {live.id}, {live.state} since {live.since.isoformat()} ({live.tag} by {live.actor})"
        return Served(at=at, shares=shares, why=why, alias=alias, rollout=live)
    if alias is not None and (last is None or alias.at >= last.since):
        why = f"alias production, moved by {alias.actor} at {alias.at.isoformat()}"
        return Served(at=at, shares=((alias.release_id, 1.0),), why=why, alias=alias, rollout=last)
    if last is not None:
        keeper = "candidate" if last.state == State.FINISHED else "baseline"
        why = f"rollout {last.id} was {last.state} at {last.since.isoformat()}: all traffic stayed with its {keeper}"
        return Served(at=at, shares=((getattr(last, keeper), 1.0),), why=why, alias=alias, rollout=last)
    return Served(at=at, shares=(), why="nothing on record had served by then", alias=alias, rollout=None)


def _after(known: RolloutThen | None, entry: AuditEntry) -> RolloutThen | None:
    """Return a rollout after an entry; entries that carry neither state nor weight leave it as it was."""
    told: dict[str, Any] = entry.payload
    if known is None and "baseline" not in told:
        return None
    first = _FIRST_STEP.search(str(next(iter(told.get("steps") or ()), ""))) if entry.tag == _STARTED else None
    weight, mirror = (float(first[1]), float(first[2])) if first else (None, None)
    state = State.RUNNING if entry.tag == _STARTED else State.ABORTED if entry.tag == _ABORTED else told.get("state")
    if known is not None and state is None and "weight" not in told:
        return known
    is_over = state in TERMINAL
    share = 1.0 if state == State.FINISHED else 0.0
    return RolloutThen(
        id=entry.subject,
        baseline=str(told.get("baseline", known.baseline if known else "")),
        candidate=str(told.get("candidate", known.candidate if known else "")),
        state=str(state or (known.state if known else "running")),
        weight=share if is_over else _number(told.get("weight", weight), known.weight if known else 0.0),
        mirror=0.0 if is_over else _number(told.get("mirror", mirror), known.mirror if known else 0.0),
        since=entry.at,
        actor=entry.actor,
        tag=entry.tag,
    )


def _number(value: object, default: float) -> float:
    """Return a share that an entry holds as text; `default` when it holds none."""
    try:
        share = float(str(value))
    except ValueError:
        return default
    return share if 0 <= share <= 1 else default
