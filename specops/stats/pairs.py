"""Pairs in shadow: the same request answered by both arms, compared by who was over a limit.

Called by `core` for checks against pairs. d = 1{candidate over the limit} - 1{baseline over the limit} in {-1, 0, 1}. What
slows both arms (a burst, a long prompt) gives d = 0 and is no evidence, so this test stays right where a fixed share does not.

H0 (at_most): E[d | past] <= margin. Guarantee: that of `wealth` for its mode. Assumes only this of each pair given those
before it: nothing about the distribution, and none of the two answers needs to be independent of the other. It is *exact* for
any margin in (-1, 1). It does assume that answering both does not slow one of them for good: a mirrored request that queues
behind its twin measures the queue. Cost: one `Wealth`, about 5 us per pair. H0 at_least is the other side, for non-inferiority.
Source: Waudby-Smith & Ramdas, arXiv 2010.09686, on x = (d + 1) / 2; at margin 0 it is a betting form of McNemar's sign test.
"""

from specops.errors import InvalidInput
from specops.stats import betting
from specops.stats.confidence import Interval, Moments, bounded_interval
from specops.stats.wealth import Bets, Mode, Null, Wealth


def sample(*, candidate_over: bool, baseline_over: bool) -> float:
    """Return x = (d + 1) / 2 of one pair: 1 if only the candidate was over the limit, 0 if only the baseline, else 1/2."""
    return (1.0 + candidate_over - baseline_over) / 2.0


def limit_of(margin: float) -> float:
    """Return the limit of the mean of x for a margin of the mean of d.

    Raises:
        InvalidInput: the margin is not strictly between -1 and 1.
    """
    if not -1.0 < margin < 1.0:
        raise InvalidInput(f"the margin of a paired difference of shares must be in (-1, 1), got {margin}; 0.01 is one point")
    return (1.0 + margin) / 2.0


def bets(null: Null, margin: float) -> Bets:
    """Return bets of family "betting" against a mean difference.

    Raises:
        InvalidInput: the margin is not strictly between -1 and 1.
    """
    return betting.bets(null, limit_of(margin))


def wealth(null: Null, margin: float = 0.0, mode: Mode = Mode.STEADY) -> Wealth:
    """Return a fresh wealth against H0: E[d | past] `null` margin; feed it with `sample`.

    Raises:
        InvalidInput: the margin is not strictly between -1 and 1.
    """
    return Wealth.start(bets(null, margin), mode)


def difference(moments: Moments, alpha: float) -> Interval | None:
    """Return the confidence sequence of the running mean of E[d | past], in [-1, 1], from the moments of `sample` values.

    Returns:
        None without pairs.

    Raises:
        InvalidInput: alpha is not in (0, 1).
    """
    interval = bounded_interval(moments, alpha)
    if interval is None:
        return None
    estimate, low, high = (2.0 * v - 1.0 for v in (interval.estimate, interval.low, interval.high))
    return Interval(estimate=estimate, low=low, high=high)
