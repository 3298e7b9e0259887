"""Tried again and again: a candidate that is worse is promoted at last with probability at most 2 * alpha.

Each trial begins on new evidence at the worst share of errors that the null allows, is looked at after each request, and is
retried by hand when it has not passed. With one bar for all trials the promise breaks, so the check can fail.
"""

import logging
import math

import numpy as np
import pytest

from specops.core.plan import Rollout, Step, StepKind
from specops.stats import bernoulli
from specops.stats.wealth import Mode, Null
from tests.calibration.simulator import wealths

pytestmark = pytest.mark.calibration
LOG = logging.getLogger(__name__)

RUNS, ALPHA, TRIALS, REQUESTS, LIMIT = 4000, 0.05, 8, 800, 0.25
SLACK = 2 * math.sqrt(2 * ALPHA * (1 - 2 * ALPHA) / RUNS)


def _peaks(rng):
    """Return the largest e-value for the candidate in each run of one trial."""
    step = wealths(bernoulli.bets(Null.AT_LEAST, LIMIT), Mode.STEADY, RUNS, lambda _: (rng.random(RUNS) < LIMIT).astype(float))
    peaks = np.zeros(RUNS)
    for n in range(1, REQUESTS + 1):
        peaks = np.maximum(peaks, step(n))
    return peaks


def test_a_bad_candidate_is_promoted_at_most_twice_as_often_as_in_one_trial():
    """Eight trials in a row: at most 2 * alpha with the bars that a rollout sets, and more than that with one bar for all."""
    rollout = Rollout(
        id="r", baseline="a", candidate="b", policy_digest="d", pipeline="p", steps=(Step(kind=StepKind.CANARY, weight=0.5),)
    )
    rng, ours, naive = np.random.default_rng(7), np.zeros(RUNS, dtype=bool), np.zeros(RUNS, dtype=bool)

    for _ in range(TRIALS):
        peaks = _peaks(rng)
        ours |= peaks >= rollout.pass_factor / ALPHA
        naive |= peaks >= 1.0 / ALPHA
        rollout = rollout.begun_anew(reason="again")

    LOG.info("promoted in %d trials: %.4f, one bar %.4f, promised %.2f", TRIALS, ours.mean(), naive.mean(), 2 * ALPHA)
    assert ours.mean() <= 2 * ALPHA + SLACK
    assert naive.mean() > 2 * ALPHA + SLACK
