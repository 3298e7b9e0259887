"""The simulator of many runs gives what the real tests give, run by run."""

import numpy as np
import pytest

from specops.stats import attribution, bernoulli, betting, two_sample
from specops.stats.wealth import Mode, Null, Wealth
from tests.calibration.simulator import attributions, two_samples, wealths

pytestmark = pytest.mark.calibration
RUNS, STEPS = 3, 150


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("bets", [betting.bets(Null.AT_LEAST, 0.6), bernoulli.bets(Null.AT_MOST, 0.1)])
def test_wealth_is_simulated_truly(bets, mode):
    """Same samples, same wealth after every request."""
    x = np.random.default_rng(1).choice([0.0, 0.3, 1.0], size=(STEPS, RUNS))
    step = wealths(bets, mode, RUNS, lambda n: x[n - 1])
    real = [Wealth.start(bets, mode) for _ in range(RUNS)]

    for n in range(1, STEPS + 1):
        real = [w.update(float(x[n - 1, r])) for r, w in enumerate(real)]
        assert step(n) == pytest.approx([w.e_value for w in real], rel=1e-9)


@pytest.mark.parametrize("mode", Mode)
def test_comparisons_are_simulated_truly(mode):
    """Same requests of two arms, same evidence after every request, for both comparisons."""
    rng = np.random.default_rng(2)
    labels = (rng.random((2, STEPS, RUNS)) < 0.3).astype(float)
    told = lambda n: (labels[0, n - 1], labels[1, n - 1])
    steps = (attributions(mode, RUNS, told, 0.3), two_samples(mode, RUNS, told))
    blocks = [two_sample.TwoSample.start(mode)] * RUNS
    events = [attribution.Attribution.start(mode=mode)] * RUNS

    for n in range(1, STEPS + 1):
        drawn = [(bool(c), bool(e)) for c, e in zip(*told(n), strict=True)]
        blocks = [t.update(candidate=c, over=e) for t, (c, e) in zip(blocks, drawn, strict=True)]
        events = [t.update(candidate=c, share=0.3) if e else t for t, (c, e) in zip(events, drawn, strict=True)]
        for step, real in zip(steps, (events, blocks), strict=True):
            assert step(n) == pytest.approx([t.e_value for t in real], rel=1e-9)
