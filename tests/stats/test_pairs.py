"""Pairs: what slows both arms is no evidence; what slows one is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specops.errors import InvalidInput
from specops.stats import pairs
from specops.stats.confidence import Moments
from specops.stats.wealth import Mode, Null

PAIR = st.tuples(st.booleans(), st.booleans())


def _feed(wealth, answers):
    for candidate, baseline in answers:
        wealth = wealth.update(pairs.sample(candidate_over=candidate, baseline_over=baseline))
    return wealth


TABLE = [(True, True, 0.5), (False, False, 0.5), (True, False, 1.0), (False, True, 0.0)]


@pytest.mark.parametrize(("candidate", "baseline", "x"), TABLE)
def test_a_pair_is_one_of_three_samples(candidate, baseline, x):
    """A difference of 1, 0 or -1 becomes 1, 1/2 or 0."""
    assert pairs.sample(candidate_over=candidate, baseline_over=baseline) == x


@given(answers=st.lists(st.booleans(), max_size=30), mode=st.sampled_from([Mode.STEADY, Mode.CHANGE]))
def test_a_burst_that_hits_both_arms_is_no_evidence(answers, mode):
    """Equal answers leave the wealth exactly at 1."""
    assert _feed(pairs.wealth(Null.AT_MOST, mode=mode), [(a, a) for a in answers]).e_value == pytest.approx(1.0)


@given(answers=st.lists(PAIR, max_size=20), margin=st.floats(-0.5, 0.5))
def test_the_game_is_fair_at_the_margin(answers, margin):
    """With E[d] equal to the margin the expected next wealth is the present one, however often both are over."""
    now = _feed(pairs.wealth(Null.AT_MOST, margin), answers)
    tie = 0.3 * (1 - abs(margin))
    up, down = (1 - tie + margin) / 2, (1 - tie - margin) / 2

    expected = up * now.update(1.0).e_value + tie * now.update(0.5).e_value + down * now.update(0.0).e_value

    assert expected == pytest.approx(now.e_value, rel=1e-9)


def test_a_candidate_that_is_slow_alone_is_found():
    """Eight pairs in which only the candidate is slow reach 1 / 0.05; swapped, they prove non-inferiority instead."""
    slow, fast = [(True, False)] * 8, [(False, True)] * 8

    assert _feed(pairs.wealth(Null.AT_MOST), slow).e_value > 20
    assert _feed(pairs.wealth(Null.AT_LEAST, 0.02), fast).e_value > 20
    assert _feed(pairs.wealth(Null.AT_MOST), fast).e_value < 1


def test_the_interval_is_on_the_scale_of_shares():
    """Ten points more slow requests among a thousand pairs: the interval holds 0.1 and excludes 0."""
    moments = Moments()
    for i in range(1000):
        moments = moments.update(pairs.sample(candidate_over=i % 5 == 0, baseline_over=i % 10 == 0))

    interval = pairs.difference(moments, 0.05)

    assert interval.estimate == pytest.approx(0.1)
    assert 0 < interval.low < 0.1 < interval.high < 0.2
    assert pairs.difference(Moments(), 0.05) is None


@pytest.mark.parametrize("margin", [-1.0, 1.0, float("nan")])
def test_a_margin_no_pair_could_reach_is_refused(margin):
    """Differences of shares lie strictly between -1 and 1."""
    with pytest.raises(InvalidInput, match="margin"):
        pairs.bets(Null.AT_MOST, margin)
