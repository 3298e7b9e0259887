"""Promises kept by the product's own code, sample by sample: false alarms, false passes, run length, coverage, delay.

Seeded, with a look after each request. It is plain Python and so takes few runs here; `test_simulator.py` holds the simulation
of many runs to the same code, and `make test-exhaustive` takes 2000 runs of it. Requests are clustered as in production: each
has its own acceptance rate from a Beta law (sd about 0.13 between requests), so the tokens of one request are far from
independent.
"""

import logging
import math
import random
import statistics

import numpy as np
import pytest

from specops.stats import bernoulli, betting
from specops.stats.confidence import Moments, bounded_interval
from specops.stats.wealth import Mode, Null
from tests.calibration.scenarios import ALPHA, bound

pytestmark = pytest.mark.calibration
LOG = logging.getLogger(__name__)  # measured figures: pytest --log-cli-level=INFO

RUNS = [250, pytest.param(2000, marks=pytest.mark.exhaustive)]


def _rate(mean, concentration=12.0):
    """Return a sampler of per-request acceptance with the given mean."""
    return lambda rng: rng.betavariate(mean * concentration, (1 - mean) * concentration)


def _flag(share):
    return lambda rng: float(rng.random() < share)


def _requests_until(wealth, bar, sample, rng, limit):
    """Return the number of requests until the wealth reaches the bar, or None within `limit`."""
    for i in range(1, limit + 1):
        wealth = wealth.update(sample(rng))
        if wealth.e_value >= bar:
            return i
    return None


def _alarm_rate(wealth, sample, limit, runs):
    found = [_requests_until(wealth, 1 / ALPHA, sample, random.Random(seed), limit) for seed in range(runs)]
    return sum(n is not None for n in found) / runs


GATES = {
    "acceptance at its limit": (betting.wealth(Null.AT_LEAST, 0.45, Mode.CHANGE), _rate(0.45), 100),
    "errors at their limit": (bernoulli.wealth(Null.AT_MOST, 0.05, Mode.CHANGE), _flag(0.05), 100),
    "promotion of a bad draft": (betting.wealth(Null.AT_MOST, 0.45), _rate(0.45), 80),
    "promotion with too many errors": (bernoulli.wealth(Null.AT_LEAST, 0.25), _flag(0.25), 80),
}


@pytest.mark.parametrize("runs", RUNS)
@pytest.mark.parametrize("name", GATES)
def test_false_decisions_stay_within_alpha(name, runs):
    """At the worst mean the null allows, runs looked at after every request err at most alpha of the time."""
    rate = _alarm_rate(*GATES[name], runs)

    LOG.info("rate: %s", rate)
    assert rate <= bound(runs)


DETECTORS = {
    "acceptance": (betting.wealth(Null.AT_LEAST, 0.45, Mode.MONITOR), _rate(0.45)),
    "errors": (bernoulli.wealth(Null.AT_MOST, 0.05, Mode.MONITOR), _flag(0.05)),
}


@pytest.mark.parametrize("name", DETECTORS)
def test_the_run_length_is_kept(name):
    """Mean requests between false alarms at nominal 200, in the least favourable fine state, minus two standard errors."""
    wealth, sample = DETECTORS[name]
    runs = [_requests_until(wealth, 200.0, sample, random.Random(seed), 10**5) for seed in range(150)]

    LOG.info("arl: %s", statistics.mean(runs))
    assert statistics.mean(runs) + 2 * statistics.stdev(runs) / math.sqrt(len(runs)) >= 200.0


@pytest.mark.parametrize("case", [
    (0.60, 0, Mode.CHANGE, 100.0, 15, 60),
    (0.55, 60, Mode.CHANGE, 100.0, 40, 60),
    (0.55, 60, Mode.MONITOR, 1e5, 40, 60),
    (0.45, 60, Mode.MONITOR, 1e5, 65, 100),
])  # fmt: skip
def test_a_collapse_is_found(case):
    """Acceptance falls from 0.70 to 0.30: no alarm before, a bounded median and a bounded worst delay over 200 seeds."""
    limit, healthy, mode, bar, median, longest = case
    delays = []
    for seed in range(200):
        rng, wealth = random.Random(seed), betting.wealth(Null.AT_LEAST, limit, mode)
        for _ in range(healthy):
            wealth = wealth.update(_rate(0.70)(rng))
        assert wealth.peak < bar
        delays.append(_requests_until(wealth, bar, _rate(0.30), rng, 200) or math.inf)

    LOG.info("median and longest: %s", (statistics.median(delays), max(delays)))
    assert statistics.median(delays) <= median
    assert max(delays) <= longest


def test_the_delay_is_near_the_best_possible():
    """The detector needs at most 1.25 times log(ARL) / KL_inf, the first-order bound for an unknown bounded law."""
    rng, limit, arl = np.random.default_rng(1), 0.60, 1e6
    after = rng.beta(0.45 * 12, 0.55 * 12, size=20_000)
    bound = math.log(arl) / max(np.log1p(slope * (after - limit)).mean() for slope in np.linspace(-2.49, -0.01, 250))
    start = betting.wealth(Null.AT_LEAST, limit, Mode.MONITOR)

    delays = [_requests_until(start, arl, _rate(0.45), random.Random(seed), 10**4) for seed in range(60)]

    LOG.info("ratio: %s", statistics.mean(delays) / bound)
    assert statistics.mean(delays) <= 1.25 * bound


@pytest.mark.parametrize("runs", RUNS)
def test_the_interval_covers_at_every_look(runs):
    """The mean leaves the confidence sequence at any of eight looks in at most alpha of the runs."""
    looks, missed = {2, 5, 10, 20, 30, 50, 80, 120}, 0
    for seed in range(runs):
        rng, moments, out = random.Random(seed), Moments(), False
        for n in range(1, 121):
            moments = moments.update(_rate(0.7, 4.0)(rng))
            if n in looks:
                interval = bounded_interval(moments, ALPHA)
                out = out or not interval.low <= 0.7 <= interval.high
        missed += out

    LOG.info("missed: %s", missed / runs)
    assert missed / runs <= bound(runs)


def test_tokens_are_not_requests():
    """Why the unit is the request: the same bets on single tokens raise a false alarm in most healthy runs."""
    alarms = 0
    for seed in range(60):
        rng, wealth = random.Random(seed), bernoulli.wealth(Null.AT_LEAST, 0.45)
        for _ in range(25):
            rate = _rate(0.45)(rng)
            for _ in range(60):
                wealth = wealth.update(float(rng.random() < rate))
        alarms += wealth.peak >= 1 / ALPHA

    LOG.info("rate: %s", alarms / 60)
    assert alarms / 60 > 5 * ALPHA
