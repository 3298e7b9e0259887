"""How much faster, at every look: the ratio of baseline to candidate time over same-request pairs in shadow.

Called by `core` for the metric `speedup`, because a policy should be about the benefit. A ratio R = baseline / candidate > 0 is
mapped to g(R) = R**4 / (1 + R**4) in (0, 1), so that one request that took a hundred times longer counts as one request.

Estimand (what the interval covers): the ratio rho with g(rho) = E g(R), a generalised (quasi-arithmetic) mean of the pairwise
ratios. Where every pair has the same ratio it is that ratio; swapping the arms inverts it exactly (g(1/R) = 1 - g(R)); for a
spread of log R that is symmetric about 0 it is 1. It is *not* the ratio of mean times and not throughput: `ratio` answers that
at fixed n. The power 4 makes a speed-up of 1.3 a mean of 0.74 instead of 0.57: fewer pairs to decide, outliers still bounded.

H0 at_most: g^-1 of E[g(R) | past] <= limit ("not faster than limit"); at_least is the other side. Guarantee: that of `wealth`
for its mode; the interval covers the running average of the conditional means, mapped back, at all times at once. Assumes only
that the pair's ratio is measured on the same request. Cost: one `Wealth`, about 5 us per pair.
Source: Waudby-Smith & Ramdas, arXiv 2010.09686, on the transformed ratio (the transform is ours).
"""

import math
from dataclasses import dataclass

from specops.errors import InvalidInput
from specops.stats import betting
from specops.stats.confidence import Moments, bounded_interval
from specops.stats.wealth import Bets, Mode, Null, Wealth

SHARPNESS = 4  # `_share` writes it out as two squares
LARGEST = 100.0  # a limit beyond it has g within 1e-8 of 1: nothing could be told apart


@dataclass(frozen=True, slots=True, kw_only=True)
class Speedup:
    """The generalised mean ratio with its confidence sequence; above 1 the candidate is faster. `high` may be infinite."""

    n: int
    ratio: float
    low: float
    high: float
    alpha: float


def sample(baseline_s: float, candidate_s: float) -> float:
    """Return g(baseline / candidate) in [0, 1] of one pair of times in the same unit, such as TPOT in seconds.

    Raises:
        InvalidInput: a time is not positive and finite.
    """
    if not (0.0 < baseline_s < math.inf and 0.0 < candidate_s < math.inf):
        raise InvalidInput(f"a pair of times must be positive and finite, got {baseline_s} and {candidate_s}; drop the pair")
    return _share(baseline_s, candidate_s)


def limit_of(ratio: float) -> float:
    """Return g(ratio), the limit on the scale of `sample`.

    Raises:
        InvalidInput: the ratio is not within [1/100, 100].
    """
    if not 1.0 / LARGEST <= ratio <= LARGEST:
        raise InvalidInput(f"the limit of a speed-up must be in [{1 / LARGEST:g}, {LARGEST:g}], got {ratio}; 1 is no change")
    return _share(ratio, 1.0)


def bets(null: Null, ratio: float) -> Bets:
    """Return bets of family "betting" against a speed-up.

    Raises:
        InvalidInput: the ratio is not within [1/100, 100].
    """
    return betting.bets(null, limit_of(ratio))


def wealth(null: Null, ratio: float = 1.0, mode: Mode = Mode.STEADY) -> Wealth:
    """Return a fresh wealth against H0: speed-up `null` ratio; feed it with `sample`.

    Raises:
        InvalidInput: the ratio is not within [1/100, 100].
    """
    return Wealth.start(bets(null, ratio), mode)


def speedup(moments: Moments, alpha: float) -> Speedup | None:
    """Return the speed-up and its confidence sequence from the moments of `sample` values.

    Returns:
        None without pairs.

    Raises:
        InvalidInput: alpha is not in (0, 1).
    """
    interval = bounded_interval(moments, alpha)
    if interval is None:
        return None
    ratio, low, high = (_ratio(v) for v in (interval.estimate, interval.low, interval.high))
    return Speedup(n=moments.n, ratio=ratio, low=low, high=high, alpha=alpha)


def _share(top: float, bottom: float) -> float:
    """Return top**4 / (top**4 + bottom**4), the larger one divided out first, so that nothing overflows.

    By products: the C library's pow differs between machines in the last bit, and this is evidence.
    """
    small = bottom / top if top >= bottom else top / bottom
    square = small * small
    quotient = square * square
    return 1.0 / (1.0 + quotient) if top >= bottom else quotient / (1.0 + quotient)


def _ratio(share: float) -> float:
    """Return g^-1: 0 at 0, infinite at 1."""
    return math.inf if share >= 1.0 else (share / (1.0 - share)) ** (1.0 / SHARPNESS)
