"""What one outcome, or one pair of outcomes, contributes to a check: a number in [0, 1], or nothing.

Called by `core.window` in its innermost loop. Nothing (None) is never 0: a request without drafted tokens has no acceptance, a
rejected one no latency, and whoever counts silence must be able to tell.
"""

import math

from specops.core.check import Check, Metric
from specops.core.outcome import Finish, Outcome
from specops.stats import speedup

COMPLETED = frozenset({Finish.STOP, Finish.LENGTH})


def sample_of(check: Check, outcome: Outcome) -> float | None:
    """Return the check's sample in [0, 1] from one outcome of either arm, or None where it has none."""
    metric, finish = check.metric, outcome.finish
    if metric is Metric.ERROR:
        if finish is Finish.REJECTED or finish is Finish.ABORT:
            return None
        return 1.0 if finish is Finish.ERROR else 0.0
    if finish not in COMPLETED:
        return None
    if metric is Metric.ACCEPTANCE_RATE:
        return outcome.acceptance.rate if outcome.acceptance else None
    if metric is Metric.TTFT_S:
        seconds = outcome.ttft_s
    elif metric is Metric.E2E_S:
        seconds = outcome.e2e_s
    else:
        seconds = outcome.tpot_s
    limit_s = check.limit_s
    if seconds is None or limit_s is None:
        return None
    return 1.0 if seconds > limit_s else 0.0


def pair_sample_of(check: Check, candidate: Outcome, baseline: Outcome) -> float | None:
    """Return the check's sample in [0, 1] from the two answers to one request: 1/2 is no difference.

    A speed-up, baseline / candidate seconds per token, moves to the scale of `stats.speedup`, so that one wild pair cannot
    dominate; a difference d in [-1, 1] becomes (1 + d) / 2. Limits are moved in the same way by `Check.to_sample`.
    """
    if check.metric is Metric.SPEEDUP:
        ours = candidate.tpot_s if candidate.finish in COMPLETED else None
        theirs = baseline.tpot_s if baseline.finish in COMPLETED else None
        if ours is None or theirs is None or not (0.0 < ours < math.inf and 0.0 < theirs < math.inf):
            return None  # a clock too coarse, or one that was set back between first and last token: no speed
        return speedup.sample(theirs, ours)
    mine, other = sample_of(check, candidate), sample_of(check, baseline)
    return None if mine is None or other is None else (1.0 + mine - other) / 2.0
