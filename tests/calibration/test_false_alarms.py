"""False alarms of every gate test, a look after each request, alpha 0.05, traffic as unkind as production's.

With few runs here, enough to see an error of twice alpha; the benchmark and `make test-exhaustive` take thousands.
"""

import logging

import numpy as np
import pytest

from tests.calibration.scenarios import ALPHA, BEYOND, GATES, SETTLE_S, UNEQUAL, bound, ended_arms, rate, split
from tests.calibration.simulator import first_hits

pytestmark = pytest.mark.calibration
LOG = logging.getLogger(__name__)  # measured figures: pytest --log-cli-level=INFO
FEW, MANY = 500, pytest.param(4000, marks=pytest.mark.exhaustive)
# seen in simulation: at least this many healthy candidates fall where an assumption is broken
HARM = {
    "1% over a fixed limit, bursts of load to 30%": 0.5,
    "acceptance of all strata pooled, mix turns over": 0.9,
    "attribution, order of ends at 40/s, without SETTLE": 0.15,
    "split, order of ends at 40/s, without SETTLE": 0.2,
    "5% over the limit, for promotion, order of ends at 40/s, not settled": 0.5,
    "pairs, order of ends at 20/s, slow halves of 5 s and 12 s, not settled": 0.2,
}


@pytest.mark.parametrize("runs", [FEW, MANY])
@pytest.mark.parametrize("name", GATES)
def test_a_healthy_candidate_falls_in_at_most_alpha(name, runs):
    """Clustered tokens, a mix that turns over, bursts of load and of traffic, the order in which answers end."""
    found = rate(GATES[name], 11, runs)

    LOG.info("%s: %.4f", name, found)
    assert found <= bound(runs)


@pytest.mark.parametrize("name", HARM)
def test_why_comparisons_strata_and_settling_are_needed(name):
    """The same traffic fails healthy candidates without them: what the docs give as the reason is so."""
    assert rate(BEYOND[name][0], 12, FEW) > HARM[name]


def test_few_runs_tell_a_test_that_errs_twice_as_often():
    """The tightest gate, at a bar for 2.5 alpha, does not get past the bound."""
    step, steps = GATES["1% over the limit, for promotion"](np.random.default_rng(11), FEW)

    assert np.isfinite(first_hits(step, 1 / (2.5 * ALPHA), FEW, steps)).mean() > bound(FEW)


def test_a_broken_split_is_found():
    """13% where 10% was configured, in nine runs of ten within 2000 requests; the order of ends hides nothing."""
    assert rate(split((0.1,), true=0.13), 13, FEW) > 0.9


@pytest.mark.exhaustive
@pytest.mark.parametrize("settle_s", [None, 0.0, 5.0, 15.0, SETTLE_S])
def test_how_long_a_share_must_settle(settle_s):
    """Answers take up to half a minute: less settling than that fails healthy candidates, 30 s do not."""
    found = rate(ended_arms(UNEQUAL, settle_s), 14, 2000)

    LOG.info("settling for %s s: %.4f", settle_s, found)
    assert (found <= bound(2000)) == (settle_s is not None and settle_s >= 15.0)
