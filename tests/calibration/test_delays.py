"""Monitors: run length between false alarms, and delay, against the best that could be done.

The best for a limit: the likelihood-ratio CUSUM that knows both shares, exactly optimal for them (Moustakides 1986), at a bar
that gives the same run length. For acceptance, whose law nobody knows: log(ARL) / KL_inf, the first-order bound.
"""

import logging
import math

import numpy as np
import pytest

from specops.stats import bernoulli, betting
from specops.stats.wealth import Mode, Null
from tests.calibration.simulator import attributions, clustered_rates, cusum, first_hits, run_length, two_samples, wealths

pytestmark = pytest.mark.calibration
LOG = logging.getLogger(__name__)  # measured figures: pytest --log-cli-level=INFO
ARL = 1e4
ORACLE_BARS = {0.02: 3.31, 0.03: 4.19, 0.05: 4.97, 0.10: 5.84}  # by bisection on the simulated run length, 2e7 requests


def _gains(share):
    return math.log((1 - share) / 0.99), math.log(share / 0.01)


RESTING = {
    "1% over the limit": (bernoulli.bets(Null.AT_MOST, 0.01), lambda rng: lambda runs: (rng.random(runs) < 0.01).astype(float)),
    "acceptance": (betting.bets(Null.AT_LEAST, 0.70), lambda rng: clustered_rates(rng, 0.70, 0.12)),
}


@pytest.mark.parametrize("name", RESTING)
def test_the_run_length_is_at_least_the_configured_one(name):
    """Simulated requests between false alarms at nominal 10 000, over 5e6 requests, less two standard errors."""
    (bets, source), runs = RESTING[name], 500

    samples = source(np.random.default_rng(21))
    found, error = run_length(bets, ARL, runs, 10_000, lambda _n: samples(runs))

    LOG.info("%s: %.0f +- %.0f", name, found, error)
    assert found + 2 * error >= ARL


@pytest.mark.parametrize("share", ORACLE_BARS)
def test_the_delay_of_a_limit_is_near_the_oracle_s(share):
    """Mean delay at most 1.5 times that of the CUSUM that knows the shift and has no longer a run length."""
    rng, runs = np.random.default_rng(22), 1000
    flags = lambda p: lambda _n: (rng.random(runs) < p).astype(float)
    _, alarms = cusum(_gains(share), ORACLE_BARS[share], runs, 10_000, flags(0.01), renew=True)
    oracle, _ = cusum(_gains(share), ORACLE_BARS[share], runs, 20_000, flags(share), renew=False)

    ours = first_hits(wealths(bernoulli.bets(Null.AT_MOST, 0.01), Mode.MONITOR, runs, flags(share)), ARL, runs, 20_000)

    LOG.info("to %s: %.1f against %.1f, ratio %.2f", share, ours.mean(), oracle.mean(), ours.mean() / oracle.mean())
    assert runs * 10_000 / alarms == pytest.approx(ARL, rel=0.12)
    assert ours.mean() <= 1.5 * oracle.mean()


@pytest.mark.parametrize("mean", [0.63, 0.60, 0.50])
def test_the_delay_of_acceptance_is_near_the_bound(mean):
    """Per-request mean falls from 0.70, sd 0.14, run length 1e6: at most 1.25 times log(ARL) / KL_inf."""
    rng, runs, size = np.random.default_rng(23), 1000, mean * (1 - mean) / 0.14**2 - 1
    rates = lambda count: rng.beta(mean * size, (1 - mean) * size, size=count)
    after = rates(200_000)
    bound = math.log(1e6) / max(float(np.log1p(-risk * (after - 0.70)).mean()) for risk in np.linspace(0.01, 3.3, 100))

    ours = first_hits(wealths(betting.bets(Null.AT_LEAST, 0.70), Mode.MONITOR, runs, lambda _n: rates(runs)), 1e6, runs, 5000)

    LOG.info("to %s: %.1f against %.1f, ratio %.2f", mean, ours.mean(), bound, ours.mean() / bound)
    assert ours.mean() <= 1.25 * bound


def test_a_canary_of_a_tenth_finds_a_slow_candidate():
    """Over the limit 1% -> 3% at a tenth of the traffic: median candidate requests of the two comparisons at alpha 0.05."""
    runs, share = 400, 0.1

    def labels(seed):
        rng = np.random.default_rng(seed)

        def told(_n):
            candidate = (rng.random(runs) < share).astype(float)
            return candidate, (rng.random(runs) < np.where(candidate > 0, 0.03, 0.01)).astype(float)

        return told

    by_event, by_block = (
        float(np.median(first_hits(step, 20.0, runs, 12_000))) * share
        for step in (attributions(Mode.STEADY, runs, labels(24), share), two_samples(Mode.STEADY, runs, labels(24)))
    )

    LOG.info("candidate requests: attribution %.0f, two-sample %.0f", by_event, by_block)
    assert by_event <= 380
    assert by_block <= 550
