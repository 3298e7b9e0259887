"""Bets for yes-or-no samples: "slower than the limit", "ended in an error".

Called by `core.window` for latency and errors. A tail is judged by how often a fixed limit is exceeded, not by a quantile band:
the band of a p99 excludes nothing before some 70 000 samples, a share of exceedances tells 1% from 5% after about 75.

Every bet is the likelihood ratio of one alternative share against the limit.
H0 at_most: share <= limit, gains on exceedances. H0 at_least: share >= limit, gains on clean requests: the promotion side.
Source: mixture likelihood ratio, Robbins 1970; as bets, arXiv 2010.09686.
"""

from functools import lru_cache

from specops.errors import InvalidInput
from specops.stats.wealth import Bets, Mode, Null, Wealth, within

FAMILY = "bernoulli"
# Odds of the alternative over odds of the limit; literals, because powers differ in the last bit between machines.
# Exceedances: dense near the limit, where delays are long (1% -> 1.5, 1.8 ...), sparse where two or three requests decide.
ABOVE = (1.5, 1.8, 2.1, 2.5, 3.0, 3.7, 4.7, 6.2, 9.0, 15.0, 35.0, 200.0)
# Clean requests (promotion): equal ratios, inverted.
BELOW = (1.4, 2.198, 3.451, 5.418, 8.506, 13.35, 20.97, 32.92, 51.68, 81.14, 127.4, 200.0)


@lru_cache(maxsize=256)
def bets(null: Null, limit: float) -> Bets:
    """Return twelve likelihood-ratio bets against a share.

    Args:
        null: which side of the limit is bet against.
        limit: the share under test, strictly between 0 and 1.

    Raises:
        InvalidInput: the limit is not between 0 and 1.
    """
    if not 0.0 < limit < 1.0:
        raise InvalidInput(f"the limit of a share must be in (0, 1), got {limit}; to allow none at all use a fatal error class")
    odds = [limit / (1.0 - limit) * r for r in (ABOVE if null is Null.AT_MOST else [1.0 / b for b in BELOW])]
    slopes = tuple(within((o / (1.0 + o) - limit) / (limit * (1.0 - limit)), limit) for o in odds)
    return Bets(family=FAMILY, null=null, limit=limit, slopes=slopes)


def wealth(null: Null, limit: float, mode: Mode = Mode.STEADY) -> Wealth:
    """Return a fresh wealth against H0: conditional share `null` `limit`.

    Raises:
        InvalidInput: the limit is not strictly between 0 and 1.
    """
    return Wealth.start(bets(null, limit), mode)
