"""Joining the two answers to one mirrored request: the baseline's live one and the candidate's shadow of it.

Called by `core.window` when a policy compares pairs. Either half may come first, and most baseline requests are never mirrored,
so halves wait in a short queue that is part of the evidence: its record makes a restart join the same pairs. When it is full
the oldest half goes; a candidate's half that goes unjoined is a request without a value.
"""

from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any, Self

from specops.core.outcome import Arm, Kind, Outcome

WAITING = 1024  # halves, mostly of requests never mirrored: at 30 live ones a second a slow twin may come 34 s later
_FIELDS = tuple((field.name, field.default) for field in fields(Outcome))


@dataclass(frozen=True, slots=True)
class Halves:
    """Outcomes without their other half, oldest first, and their request ids in the same order."""

    ids: tuple[str, ...] = ()
    outcomes: tuple[Outcome, ...] = ()

    def join(self, outcome: Outcome) -> tuple["Halves", Outcome | None, Outcome | None]:
        """Return the queue after this half, its other half if that was waiting, and the candidate's half given up, if any.

        A second half of the same arm under one id (a client that sends an id twice) replaces the first.
        """
        if outcome.request_id in self.ids:
            at = self.ids.index(outcome.request_id)
            other = self.outcomes[at]
            rest = Halves(self.ids[:at] + self.ids[at + 1 :], self.outcomes[:at] + self.outcomes[at + 1 :])
            if other.arm is not outcome.arm:
                return rest, other, None
            return Halves((*rest.ids, outcome.request_id), (*rest.outcomes, outcome)), None, _given_up(other)
        start = 1 if len(self.ids) >= WAITING else 0
        gone = _given_up(self.outcomes[0]) if start else None
        return Halves((*self.ids[start:], outcome.request_id), (*self.outcomes[start:], outcome)), None, gone

    def to_record(self) -> list[dict[str, Any]]:
        """Return JSON-ready values, without what has its default; `from_record` is the inverse."""
        return [_lean(outcome) for outcome in self.outcomes]

    @classmethod
    def from_record(cls, record: list[dict[str, Any]]) -> Self:
        """Build the queue from `to_record` values.

        Raises:
            InvalidRecord: a member is no outcome.
        """
        outcomes = tuple(Outcome.from_record(one) for one in record)
        return cls(tuple(o.request_id for o in outcomes), outcomes)


def is_half(outcome: Outcome) -> bool:
    """Tell whether an outcome may have a twin: a live answer of the baseline, or a mirrored one of the candidate."""
    if outcome.retried_on_baseline:
        return False
    return outcome.kind is (Kind.LIVE if outcome.arm is Arm.BASELINE else Kind.SHADOW)


def _lean(outcome: Outcome) -> dict[str, Any]:
    """Return the outcome's record without defaults: the queue is stored with every pass, and may be long."""
    values = ((name, getattr(outcome, name), default) for name, default in _FIELDS)
    record = {name: value for name, value, default in values if value != default or default is MISSING}
    record["at"] = outcome.at.isoformat()
    if outcome.acceptance is not None:
        record["acceptance"] = asdict(outcome.acceptance)
    return record


def _given_up(outcome: Outcome) -> Outcome | None:
    return outcome if outcome.arm is Arm.CANDIDATE else None
