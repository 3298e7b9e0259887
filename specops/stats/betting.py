"""Bets for samples anywhere in [0, 1], such as the acceptance rate of one request.

Called by `core.window` for metrics that are rates per request. The unit is the request: tokens of one request are correlated,
and a test that takes them as independent raises a false alarm in practically every healthy rollout.

H0 at_least: conditional mean >= limit, gains on low samples. H0 at_most is its mirror image, gains on high samples.
Source: Waudby-Smith & Ramdas, arXiv 2010.09686, section 4.
"""

from functools import lru_cache

from specops.errors import InvalidInput
from specops.stats.wealth import Bets, Mode, Null, Wealth, within

FAMILY = "betting"
# Shares of the stake at risk, in equal ratios; below 1, so that no sample can ruin a bet. Twelve: more gain nothing, a mixture
# costs at most log(12) = 2.5. Literals, because powers differ in the last bit between machines.
RISKS = (0.02, 0.02849, 0.04058, 0.05781, 0.08235, 0.1173, 0.1671, 0.238, 0.339, 0.483, 0.688, 0.98)


@lru_cache(maxsize=256)
def bets(null: Null, limit: float) -> Bets:
    """Return twelve bets whose stake at risk runs from 2% to 98% in equal ratios.

    Args:
        null: which side of the limit is bet against.
        limit: the mean under test, strictly between 0 and 1.

    Raises:
        InvalidInput: the limit is not between 0 and 1.
    """
    if not 0.0 < limit < 1.0:
        raise InvalidInput(f"the limit of a bounded mean must be in (0, 1), got {limit}; no sample could speak against it")
    worst = -(1.0 - limit) if null is Null.AT_LEAST else limit  # the largest loss: x = 1, or x = 0
    return Bets(family=FAMILY, null=null, limit=limit, slopes=tuple(within(risk / worst, limit) for risk in RISKS))


def wealth(null: Null, limit: float, mode: Mode = Mode.STEADY) -> Wealth:
    """Return a fresh wealth against H0: conditional mean `null` `limit`.

    Raises:
        InvalidInput: the limit is not strictly between 0 and 1.
    """
    return Wealth.start(bets(null, limit), mode)
