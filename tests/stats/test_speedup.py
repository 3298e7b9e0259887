"""Speed-up over pairs: symmetric, bounded, and on the scale of ratios."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specops.errors import InvalidInput
from specops.stats import speedup
from specops.stats.confidence import Moments
from specops.stats.wealth import Mode, Null

TIME = st.floats(1e-6, 1e6)


def _moments(pairs):
    moments = Moments()
    for baseline, candidate in pairs:
        moments = moments.update(speedup.sample(baseline, candidate))
    return moments


@given(baseline=TIME, candidate=TIME)
def test_swapping_the_arms_mirrors_a_sample(baseline, candidate):
    """g(1/R) = 1 - g(R), within [0, 1] even for a ratio of 10**12."""
    x, y = speedup.sample(baseline, candidate), speedup.sample(candidate, baseline)

    assert 0 <= x <= 1
    assert x + y == pytest.approx(1)


@given(times=st.lists(st.tuples(st.floats(0.5, 3), st.floats(0.5, 3)), min_size=1, max_size=20))
def test_swapping_the_arms_inverts_the_ratio(times):
    """Twice as fast one way is half as fast the other way, interval included."""
    one = speedup.speedup(_moments(times), 0.05)
    back = speedup.speedup(_moments([(c, b) for b, c in times]), 0.05)

    assert one.ratio * back.ratio == pytest.approx(1, rel=1e-9)
    assert one.low <= one.ratio <= one.high
    assert one.low * back.high == pytest.approx(1, rel=1e-2) or one.low == 0 or back.high == math.inf


def test_a_constant_speed_up_is_found():
    """Every pair at 1.5: the estimate is 1.5 and the interval closes in on it."""
    result = speedup.speedup(_moments([(0.03, 0.02)] * 200), 0.05)

    assert result.ratio == pytest.approx(1.5)
    assert 1.3 < result.low < 1.5 < result.high < 1.8
    assert result.n == 200


def test_a_benefit_is_proven_and_a_loss_is_found():
    """At 1.3 a dozen pairs reject "not faster"; at 1/1.3 they reject "at least as fast"; neither rejects the other way."""
    faster, slower = speedup.sample(1.3, 1.0), speedup.sample(1.0, 1.3)
    for null, good in ((Null.AT_MOST, faster), (Null.AT_LEAST, slower)):
        wealth, other = speedup.wealth(null), speedup.wealth(null, mode=Mode.CHANGE)
        for _ in range(14):
            wealth, other = wealth.update(good), other.update(1.0 - good)
        assert wealth.e_value > 20
        assert other.e_value < 1.5


def test_one_outlier_is_one_pair():
    """A candidate that stalled for an hour in one of fifty pairs moves the estimate by a few percent."""
    stalled = speedup.speedup(_moments([(0.03, 0.02)] * 49 + [(0.03, 3600.0)]), 0.05)

    assert stalled.ratio == pytest.approx(1.5, rel=0.05)


def test_nothing_and_everything():
    """No pairs, no ratio; an infinite bound stays a bound."""
    assert speedup.speedup(Moments(), 0.05) is None
    assert speedup.speedup(_moments([(1e6, 1e-6)]), 0.05).high == math.inf


@pytest.mark.parametrize("times", [(0.0, 1.0), (1.0, -1.0), (math.nan, 1.0), (math.inf, 1.0)])
def test_a_pair_without_two_times_is_refused(times):
    """Missing measurements are dropped by the caller, not guessed."""
    with pytest.raises(InvalidInput, match="drop the pair"):
        speedup.sample(*times)


@pytest.mark.parametrize("ratio", [0.0, 1e-3, 1e3, math.nan])
def test_a_limit_nobody_could_test_is_refused(ratio):
    """Beyond a factor of 100 the transform is flat."""
    with pytest.raises(InvalidInput, match="speed-up"):
        speedup.bets(Null.AT_MOST, ratio)
