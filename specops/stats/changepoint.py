"""Where a yes-or-no sequence changes its rate: the most likely split into two segments, and whether it could be chance.

Called by `core.trace_why` with the rounds of one request. Two segments only: it answers "from where on", not "how often".
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from specops.errors import InvalidInput

LEAST = 2  # flags: one in each segment


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """A sequence cut into two segments.

    Attributes:
        at: index of the second segment's first flag, in [1, n - 1].
        before, after: share of true flags in each segment.
        gain_nats: log likelihood of the two segments over that of one, >= 0.
        p_value: bound on the probability that flags in random order have such a split anywhere, in [0, 1].
    """

    at: int
    before: float
    after: float
    gain_nats: float
    p_value: float


def split(flags: Sequence[bool]) -> Split:
    """Return the split with the greatest Bernoulli likelihood; of equal ones the earliest.

    H0: the flags are exchangeable (any order is as likely). At the split, the number of true flags in the second segment is
    then hypergeometric; its two-sided tail (Fisher's exact test) times the n - 1 splits looked at bounds the level.

    Args:
        flags: at least two.

    Raises:
        InvalidInput: fewer than two flags.

    Source: Fisher 1935 for the tail, Bonferroni for the choice of split.
    """
    n, hits = len(flags), sum(map(bool, flags))
    if n < LEAST:
        raise InvalidInput(f"a split needs at least {LEAST} flags, got {n}; observe longer")
    whole, best, seen, at, seen_at = _log_likelihood(hits, n), -math.inf, 0, 1, 0
    for i in range(1, n):
        seen += bool(flags[i - 1])
        value = _log_likelihood(seen, i) + _log_likelihood(hits - seen, n - i)
        if value > best + 1e-12:  # sums in another order differ in the last bits
            best, at, seen_at = value, i, seen
    p_value = min(1.0, (n - 1) * _tail(hits - seen_at, n - at, hits, n))
    return Split(
        at=at, before=seen_at / at, after=(hits - seen_at) / (n - at), gain_nats=max(0.0, best - whole), p_value=p_value
    )


def _log_likelihood(hits: int, n: int) -> float:
    """Return the greatest log likelihood of `hits` in n flags."""
    return sum(count * math.log(count / n) for count in (hits, n - hits) if count)


def _tail(got: int, size: int, hits: int, n: int) -> float:
    """Return twice the smaller tail of the hypergeometric law at `got`: `size` drawn of n, of which `hits` are true."""
    low, high = max(0, size + hits - n), min(size, hits)
    below = math.fsum(_mass(i, size, hits, n) for i in range(low, got + 1))
    above = math.fsum(_mass(i, size, hits, n) for i in range(got, high + 1))
    return min(1.0, 2 * min(below, above))


def _mass(i: int, size: int, hits: int, n: int) -> float:
    return math.exp(_log_choose(hits, i) + _log_choose(n - hits, size - i) - _log_choose(n, size))


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
