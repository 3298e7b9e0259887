"""Monitors and gates: run length between false alarms, and delay, against the best that could be done."""

import logging

import numpy as np
import pytest

from specops.stats.wealth import Mode
from tests.calibration.monitors import (
    ACCEPTANCE_SHIFTS,
    ARL,
    MONITORS,
    ORACLE_BARS,
    acceptance_delays,
    gains,
    limit_delays,
    run_length,
)
from tests.calibration.simulator import attributions, cusum, first_hits, two_samples

pytestmark = pytest.mark.calibration
LOG = logging.getLogger(__name__)  # measured figures: pytest --log-cli-level=INFO
SIZES = [(300, 5_000), pytest.param((2000, 20_000), marks=pytest.mark.exhaustive)]  # runs, samples of each


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", MONITORS)
def test_the_run_length_is_at_least_the_configured_one(name, size):
    """Simulated samples between false alarms at nominal 10 000, less two standard errors."""
    found, error = run_length(MONITORS[name], 21, *size)

    LOG.info("%s: %.0f +- %.0f", name, found, error)
    assert found + 2 * error >= ARL


@pytest.mark.parametrize("share", ORACLE_BARS)
def test_the_delay_of_a_limit_is_near_the_oracle_s(share):
    """Mean delay at most 1.5 times that of the CUSUM that knows the shift and has no longer a run length."""
    rng, runs = np.random.default_rng(22), 500
    healthy = lambda _n: (rng.random(runs) < 0.01).astype(float)
    _, alarms = cusum(gains(share), ORACLE_BARS[share], runs, 10_000, healthy, renew=True)

    ours, oracle = limit_delays(share, 22, runs)

    LOG.info("to %s: %.1f against %.1f, ratio %.2f", share, ours, oracle, ours / oracle)
    assert runs * 10_000 / alarms == pytest.approx(ARL, rel=0.15)
    assert ours <= 1.5 * oracle


@pytest.mark.parametrize("mean", ACCEPTANCE_SHIFTS)
def test_the_delay_of_acceptance_is_near_the_bound(mean):
    """Per-request mean falls from 0.70, sd 0.14, run length 1e6: at most 1.25 times log(ARL) / KL_inf."""
    ours, bound = acceptance_delays(mean, 23, 1000)

    LOG.info("to %s: %.1f against %.1f, ratio %.2f", mean, ours, bound, ours / bound)
    assert ours <= 1.25 * bound


def test_a_canary_of_a_tenth_finds_a_slow_candidate():
    """Over the limit 1% -> 3% at a tenth of the traffic: median candidate requests of the two comparisons at alpha 0.05."""
    runs, share = 300, 0.1

    def labels(seed):
        rng = np.random.default_rng(seed)

        def told(_n):
            candidate = (rng.random(runs) < share).astype(float)
            return candidate, (rng.random(runs) < np.where(candidate > 0, 0.03, 0.01)).astype(float), share

        return told

    by_event, by_block = (
        float(np.median(first_hits(step, 20.0, runs, 7_000))) * share
        for step in (attributions(Mode.STEADY, runs, labels(24)), two_samples(Mode.STEADY, runs, labels(24)))
    )

    LOG.info("candidate requests: attribution %.0f, two-sample %.0f", by_event, by_block)
    assert by_event <= 380
    assert by_block <= 550
