"""Acceptance by position, for reports and for `breakeven`: how far into a draft the target agrees.

Called by reports and the offline evaluation; decides nothing. Rounds of one request are correlated, so the interval takes
requests as clusters (delta method, `ratio`): fixed n, not for watching. Cost: six numbers per position.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any, Self

from specops.errors import InvalidInput, InvalidRecord
from specops.stats.ratio import RatioSums, ratio_of_sums

MAX_POSITIONS = 64


def positions(histogram: Sequence[int]) -> tuple[float, ...]:
    """Return the shares of rounds in which at least 1, 2, ... drafted tokens were accepted.

    Args:
        histogram: item a counts the rounds with a accepted tokens.

    Raises:
        InvalidInput: a negative count.
    """
    counts = _checked(histogram)
    rounds = sum(counts)
    return tuple(sum(counts[j:]) / rounds for j in range(1, len(counts))) if rounds else ()


def conditional(histogram: Sequence[int]) -> tuple[float | None, ...]:
    """Return the shares accepted at position 1, 2, ... of the rounds that reached it; None where none did.

    Rounds whose draft was shorter than the longest one count as stopped, so with variable k read it from equal k only.

    Raises:
        InvalidInput: a negative count.
    """
    counts = _checked(histogram)
    reached = [sum(counts[j:]) for j in range(len(counts))]
    return tuple(after / before if before else None for before, after in pairwise(reached))


def acceptance_length(histogram: Sequence[int]) -> float | None:
    """Return 1 + accepted / rounds (tau), in [1, k + 1]; None without rounds.

    Raises:
        InvalidInput: a negative count.
    """
    counts = _checked(histogram)
    rounds = sum(counts)
    return 1.0 + sum(a * n for a, n in enumerate(counts)) / rounds if rounds else None


@dataclass(frozen=True, slots=True)
class PositionSums:
    """One `RatioSums` per position: (rounds with at least j accepted, rounds), one pair per request.

    `every` holds the rounds of all requests with nothing on top: the sums of a position that nobody has reached yet.
    """

    sums: tuple[RatioSums, ...] = ()
    every: RatioSums = field(default_factory=RatioSums)

    def update(self, histogram: Sequence[int]) -> "PositionSums":
        """Return the sums with one more request; one without rounds changes nothing.

        Raises:
            InvalidInput: a negative count, or more than 64 positions.
        """
        counts = _checked(histogram)
        rounds = float(sum(counts))
        if not rounds:
            return self
        padded = self._padded(len(counts) - 1)
        grown = [sums.update(float(sum(counts[j:])), rounds) for j, sums in enumerate(padded, start=1)]
        return PositionSums(tuple(grown), self.every.update(0.0, rounds))

    def intervals(self, alpha: float = 0.05) -> tuple[tuple[float, float, float] | None, ...]:
        """Return (share, low, high) per position, each at fixed n with coverage about 1 - alpha; None below two requests.

        Raises:
            InvalidInput: alpha is not in (0, 1).
        """
        return tuple(ratio_of_sums(sums, alpha) for sums in self.sums)

    def merge(self, other: "PositionSums") -> "PositionSums":
        """Return the sums over both sets of requests."""
        pairs = zip(self._padded(len(other.sums)), other._padded(len(self.sums)), strict=True)  # noqa: SLF001  # same class
        return PositionSums(tuple(a.merge(b) for a, b in pairs), self.every.merge(other.every))

    def _padded(self, width: int) -> tuple[RatioSums, ...]:
        return self.sums + (self.every,) * (width - len(self.sums))

    def to_record(self) -> dict[str, Any]:
        """Return JSON-ready values; `from_record` is the inverse."""
        return {"every": asdict(self.every), "sums": [asdict(sums) for sums in self.sums]}

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Self:
        """Build sums from `to_record` values.

        Raises:
            InvalidRecord: a field is missing or unknown.
        """
        try:
            return cls(tuple(RatioSums(**sums) for sums in record["sums"]), RatioSums(**record["every"]))
        except (KeyError, TypeError) as exc:
            raise InvalidRecord(f"not a record of acceptance by position: {exc!r}; replay the outcomes") from exc


def _checked(histogram: Sequence[int]) -> Sequence[int]:
    if len(histogram) > MAX_POSITIONS + 1 or any(count < 0 for count in histogram):
        raise InvalidInput(f"an acceptance histogram has at most {MAX_POSITIONS + 1} counts >= 0, got {list(histogram)!r:.80}")
    return histogram
