"""Joining the two answers to one mirrored request: the baseline's live one and the candidate's shadow of it.

Called by `core.window` when a policy compares pairs. Either half may come first, and most baseline requests are never mirrored,
so halves wait in a short queue that is part of the evidence: its record makes a restart join the same pairs. When it is full
the oldest half goes; a candidate's half that goes unjoined is a request without a value.
"""

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from typing import Any, Self

from specops.core.outcome import Arm, Kind, Outcome

WAITING = 1024  # halves, mostly of requests never mirrored: at 30 live ones a second a slow twin may come 34 s later
_BLOCK = 64  # steps between two joins of the generations: near the root of twice WAITING, where both costs are equal
_FIELDS = tuple((one.name, one.default) for one in fields(Outcome))


@dataclass(frozen=True, slots=True, eq=False)
class Halves:
    """Outcomes without their other half, by request id and oldest first; equal if the same outcomes wait in the same order.

    Held in two generations, so that a step copies some entries and never the queue: `old` stays as it is while ids that left
    it are added to `left`, and `new` takes what comes; after `_BLOCK` steps they become one again.
    """

    old: Mapping[str, Outcome] = field(default_factory=dict)
    left: frozenset[str] = frozenset()
    new: Mapping[str, Outcome] = field(default_factory=dict)

    def join(self, outcome: Outcome) -> tuple["Halves", Outcome | None, Outcome | None]:
        """Return the queue after this half, its other half if that was waiting, and the candidate's half given up, if any.

        A second half of the same arm under one id (a client that sends an id twice) replaces the first.
        """
        key = outcome.request_id
        other = self.new.get(key) or (self.old.get(key) if key not in self.left else None)
        if other is not None and other.arm is not outcome.arm:
            return self._next(gone=other, come=None), other, None
        if other is None and len(self) >= WAITING:
            other = next(self._by_age())
        return self._next(gone=other, come=outcome), None, other if other and other.arm is Arm.CANDIDATE else None

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """What waits, oldest first."""
        return tuple(self._by_age())

    @property
    def ids(self) -> tuple[str, ...]:
        """Request ids of what waits, oldest first."""
        return tuple(outcome.request_id for outcome in self._by_age())

    def __len__(self) -> int:
        return len(self.old) - len(self.left) + len(self.new)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Halves) and self.outcomes == other.outcomes

    def __hash__(self) -> int:
        return hash(self.outcomes)

    def _by_age(self) -> Iterator[Outcome]:
        for key, outcome in self.old.items():
            if key not in self.left:
                yield outcome
        yield from self.new.values()

    def _next(self, *, gone: Outcome | None, come: Outcome | None) -> "Halves":
        left, new = self.left, dict(self.new)
        if gone is not None and new.pop(gone.request_id, None) is None:
            left |= {gone.request_id}
        if come is not None:
            new[come.request_id] = come
        if len(left) < _BLOCK and len(new) < _BLOCK:
            return Halves(self.old, left, new)
        return Halves({key: outcome for key, outcome in self.old.items() if key not in left} | new)

    def to_record(self) -> list[dict[str, Any]]:
        """Return JSON-ready values, without what has its default; `from_record` is the inverse."""
        return [_lean(outcome) for outcome in self._by_age()]

    @classmethod
    def from_record(cls, record: list[dict[str, Any]]) -> Self:
        """Build the queue from `to_record` values.

        Raises:
            InvalidRecord: a member is no outcome.
        """
        return cls({one.request_id: one for one in map(Outcome.from_record, record)})


def is_half(outcome: Outcome) -> bool:
    """Tell whether an outcome may have a twin: the baseline's answer to its own live request, or a mirrored one."""
    if outcome.retried_on_baseline or outcome.is_shed:
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
