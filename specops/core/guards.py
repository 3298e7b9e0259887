"""Pinned acceptance: so many requests in a row with nothing accepted, or with everything, is a defect and not chance.

Folded by `core.window`, read by `core.judge` as a fatal class. Acceptance of exactly 0 means that the draft speaks another
language than the target (wrong vocabulary, wrong weights); of exactly 1 on many long answers, that nothing is verified or that
the target drafts for itself. How many in a row are too many is the policy's to say.
"""

from dataclasses import dataclass
from typing import Any, Self

from specops.core.outcome import Acceptance

PINNED_LOW, PINNED_HIGH = "acceptance_pinned_low", "acceptance_pinned_high"
ENOUGH_DRAFTED = 8  # tokens; two rounds at k=4: a shorter answer neither extends a run nor ends it


@dataclass(frozen=True, slots=True)
class Pinned:
    """Present and longest run of requests in a row at each end. The longest sticks, so rare looks miss nothing."""

    low: int = 0
    high: int = 0
    longest_low: int = 0
    longest_high: int = 0

    def update(self, counts: Acceptance) -> "Pinned":
        """Return the runs with one more completed request; the same value when nothing changed."""
        if counts.drafted < ENOUGH_DRAFTED:
            return self
        low = self.low + 1 if counts.accepted == 0 else 0
        high = self.high + 1 if counts.accepted == counts.drafted else 0
        if low == high == self.low == self.high:
            return self
        return Pinned(low, high, max(low, self.longest_low), max(high, self.longest_high))

    @property
    def counts(self) -> dict[str, int]:
        """Longest run by the name of its fatal class."""
        return {PINNED_LOW: self.longest_low, PINNED_HIGH: self.longest_high}

    def to_record(self) -> list[int]:
        """Return JSON-ready values; `from_record` is the inverse."""
        return [self.low, self.high, self.longest_low, self.longest_high]

    @classmethod
    def from_record(cls, record: list[Any]) -> Self:
        """Build the runs from `to_record` values."""
        low, high, longest_low, longest_high = record
        return cls(low, high, longest_low, longest_high)
