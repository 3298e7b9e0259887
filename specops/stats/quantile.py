"""Confidence sequence of one quantile, such as the p99 of TTFT: for reports, where people ask for seconds.

Called by reports; decides nothing. Gates use the share over a limit (`bernoulli`), which needs hundreds of requests where the
band of a p99 needs tens of thousands.

Claim: for all n at once, P(the p-quantile leaves [low, high]) <= alpha. Assumes: each sample is at most the true quantile with
conditional probability exactly p (iid samples of any law, ties allowed). Latency under bursts is not iid: then read it as a
figure of the period. The number of samples at or below the true quantile is binomial; a Beta mixture of likelihoods around p,
B(a + h, b + n - h) / B(a, b) / (p**h (1 - p)**(n - h)) >= 1 / alpha, excludes counts h, and so order statistics.
Source: Howard & Ramdas, arXiv 1906.09712, section 3 (fixed quantile), with the beta-binomial bound of Howard et al., arXiv
1810.08240, proposition 7.

Cost: O(log n) given sorted samples (O(n) memory). `Buckets` is the compact state instead: counts by magnitude, mergeable in
any order; its bounds round outwards to bucket edges, 2% apart, and stay valid.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, Self

from specops.errors import InvalidInput, InvalidRecord

GROWTH = 1.02  # ratio of neighbouring bucket edges
LEAST, BUCKETS = 1e-6, 1400  # seconds; 1e-6 * 1.02**1400 is more than 10**6 s
_EDGES = tuple(float(f"{LEAST * GROWTH**i:.12g}") for i in range(BUCKETS))  # rounded, so that every machine has the same


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantileInterval:
    """Estimate and bounds in the samples' unit; `low` may be -inf and `high` inf while n is too small for them."""

    n: int
    p: float
    estimate: float
    low: float
    high: float


def counts_within(n: int, p: float, alpha: float, planned: int = 10_000) -> tuple[int, int]:
    """Return the least and greatest number of n samples at or below the true p-quantile that is not excluded.

    Args:
        n: samples so far, >= 0.
        p: the quantile, in (0, 1).
        alpha: 1 - coverage over all n at once, in (0, 1).
        planned: number of samples at which the bounds are to be narrowest, >= 1; a wrong guess widens, never breaks them.

    Raises:
        InvalidInput: a value is out of range.
    """
    if not (0.0 < p < 1.0 and 0.0 < alpha < 1.0) or n < 0 or planned < 1:
        raise InvalidInput(f"a quantile needs p and alpha in (0, 1), n >= 0 and planned >= 1, got {p}, {alpha}, {n}, {planned}")
    bar = -math.log(alpha)
    strength = max(1.0, planned / (2.0 * bar + math.log(1.0 + 2.0 * bar)))  # the optimum of a normal mixture at n = planned
    a, b = strength * p, strength * (1.0 - p)

    def excluded(h: int) -> bool:
        return _log_beta(a + h, b + n - h) - _log_beta(a, b) - h * math.log(p) - (n - h) * math.log1p(-p) >= bar

    middle = min(n, max(0, round(n * p)))  # the log wealth is convex in h and <= 0 near n p
    low = _edge(0, middle, excluded)
    high = n - _edge(0, n - middle, lambda misses: excluded(n - misses))
    return low, high


def quantile_interval(ordered: Sequence[float], p: float, alpha: float, planned: int = 10_000) -> QuantileInterval | None:
    """Return the p-quantile of sorted samples with its confidence sequence.

    Args:
        ordered: samples in ascending order; not checked, as that would cost O(n).
        p: the quantile, in (0, 1).
        alpha: 1 - coverage over all n at once.
        planned: see `counts_within`.

    Returns:
        None without samples.

    Raises:
        InvalidInput: a value is out of range.
    """
    n = len(ordered)
    low, high = counts_within(n, p, alpha, planned)
    if n == 0:
        return None
    return QuantileInterval(
        n=n, p=p, estimate=ordered[min(n - 1, math.ceil(n * p) - 1)],
        low=ordered[low - 1] if low else -math.inf, high=ordered[high] if high < n else math.inf,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Buckets:
    """Counts of positive samples by magnitude: sorted (bucket, count) pairs, at most 1401. State does not grow with n."""

    counts: tuple[tuple[int, int], ...] = ()

    def update(self, value: float) -> Self:
        """Return the counts with one more sample >= 0; values beyond the ends go to the end buckets.

        Raises:
            InvalidInput: the sample is negative or not finite.
        """
        if not 0.0 <= value < math.inf:
            raise InvalidInput(f"a time must be >= 0 and finite, got {value}; drop requests without a measurement")
        bucket = bisect_left(_EDGES, value)
        at = bisect_right(self.counts, (bucket,))
        if at < len(self.counts) and self.counts[at][0] == bucket:
            return type(self)((*self.counts[:at], (bucket, self.counts[at][1] + 1), *self.counts[at + 1 :]))
        return type(self)((*self.counts[:at], (bucket, 1), *self.counts[at:]))

    def merge(self, other: "Buckets") -> "Buckets":
        """Return the counts of both; exact and independent of order."""
        table = dict(self.counts)
        for bucket, count in other.counts:
            table[bucket] = table.get(bucket, 0) + count
        return Buckets(tuple(sorted(table.items())))

    @property
    def n(self) -> int:
        """Samples so far."""
        return sum(count for _, count in self.counts)

    def interval(self, p: float, alpha: float, planned: int = 10_000) -> QuantileInterval | None:
        """Return the p-quantile (as the upper edge of its bucket) with its confidence sequence, rounded outwards.

        Returns:
            None without samples.

        Raises:
            InvalidInput: a value is out of range.
        """
        n = self.n
        low, high = counts_within(n, p, alpha, planned)
        if n == 0:
            return None
        return QuantileInterval(
            n=n, p=p, estimate=self._edge_of(min(n, math.ceil(n * p)), upper=True),
            low=self._edge_of(low, upper=False) if low else -math.inf,
            high=self._edge_of(high + 1, upper=True) if high < n else math.inf,
        )  # fmt: skip

    def _edge_of(self, rank: int, *, upper: bool) -> float:
        """Return an edge of the bucket that holds the sample of this rank (1 is the smallest)."""
        ranks = list(accumulate(count for _, count in self.counts))
        bucket = self.counts[bisect_left(ranks, rank)][0]
        if upper:
            return _EDGES[bucket] if bucket < len(_EDGES) else math.inf
        return _EDGES[bucket - 1] if bucket else 0.0

    def to_record(self) -> dict[str, Any]:
        """Return JSON-ready values; `from_record` is the inverse."""
        return {"growth": GROWTH, "least": LEAST, "counts": [list(pair) for pair in self.counts]}

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Self:
        """Build the counts from `to_record` values.

        Raises:
            InvalidRecord: the record has other edges or is no list of pairs in ascending order.
        """
        try:
            pairs = tuple((int(bucket), int(count)) for bucket, count in record["counts"])
            same = (record["growth"], record["least"]) == (GROWTH, LEAST)
        except (KeyError, TypeError, ValueError) as exc:
            raise InvalidRecord(f"not a record of a quantile: {exc!r}; replay the outcomes") from exc
        in_order = all(a[0] < b[0] for a, b in pairwise(pairs))
        if not (same and in_order and all(0 <= bucket <= BUCKETS and count > 0 for bucket, count in pairs)):
            raise InvalidRecord("a record of a quantile has other buckets than this version; replay the outcomes")
        return cls(pairs)


def _edge(outside: int, inside: int, is_excluded: Callable[[int], bool]) -> int:
    """Return the outermost count that is not excluded, between an end and one that is not."""
    if not is_excluded(outside):
        return outside
    while inside - outside > 1:
        middle = (inside + outside) // 2
        inside, outside = (inside, middle) if is_excluded(middle) else (middle, outside)
    return inside


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
