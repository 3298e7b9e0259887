"""The wealth is what its formulas say, a fair game under the null, and never leaves the range of a double."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specops.errors import InvalidInput, InvalidRecord
from specops.stats import bernoulli, betting
from specops.stats.wealth import MAX_LOG, Mode, Null, Wealth

UNIT = st.floats(0, 1)
LIMITS = st.floats(0.01, 0.99)
NULLS, MODES, FAMILIES = st.sampled_from(Null), st.sampled_from(Mode), st.sampled_from([betting, bernoulli])


def _feed(wealth, samples):
    for x in samples:
        wealth = wealth.update(x)
    return wealth


def _by_hand(bets, mode, samples):
    """Return the wealth from its definition: a sum over the sample at which a stake begins."""
    values = []
    for slope in bets.slopes:
        factors = [1 + slope * (x - bets.limit) for x in samples]
        runs = [math.prod(factors[k:]) for k in range(len(factors))]
        prior = [0.5 if k == 0 else 0.5 / (k * (k + 1)) for k in range(len(runs))]
        weighed = math.fsum(w * r for w, r in zip(prior, runs, strict=True)) + 1 - math.fsum(prior)
        values.append({Mode.STEADY: math.prod(factors), Mode.MONITOR: math.fsum(runs), Mode.CHANGE: weighed}[mode])
    return math.fsum(values) / len(values)


@pytest.mark.parametrize(("mode", "first"), [(Mode.STEADY, 1.0), (Mode.CHANGE, 1.0), (Mode.MONITOR, 0.0)])
def test_wealth_before_any_sample(mode, first):
    """An e-process starts with one coin, the detector with none."""
    wealth = betting.wealth(Null.AT_LEAST, 0.5, mode)

    assert (wealth.n, wealth.e_value, wealth.peak) == (0, first, first)
    assert wealth.log_e == (0.0 if first else -math.inf)


@settings(max_examples=150, deadline=None)
@given(family=FAMILIES, null=NULLS, mode=MODES, limit=LIMITS, samples=st.lists(UNIT, min_size=1, max_size=12))
def test_wealth_equals_its_definition(family, null, mode, limit, samples):
    """The recursion in logarithms gives the plain sum of products."""
    wealth = _feed(family.wealth(null, limit, mode), samples)

    assert wealth.e_value == pytest.approx(_by_hand(wealth.bets, mode, samples), rel=1e-9, abs=1e-9)


@settings(max_examples=150, deadline=None)
@given(family=FAMILIES, null=NULLS, mode=MODES, limit=LIMITS, samples=st.lists(UNIT, max_size=10))
def test_the_game_is_fair_at_the_limit(family, null, mode, limit, samples):
    """With mean equal to the limit the expected next wealth is the present one, plus one for the detector."""
    now = _feed(family.wealth(null, limit, mode), samples)

    expected = limit * now.update(1.0).e_value + (1 - limit) * now.update(0.0).e_value

    assert expected == pytest.approx(now.e_value + (mode is Mode.MONITOR), rel=1e-9, abs=1e-9)


@settings(max_examples=100, deadline=None)
@given(family=FAMILIES, limit=LIMITS, mean=UNIT, samples=st.lists(UNIT, max_size=8))
def test_the_game_loses_inside_the_null(family, limit, mean, samples):
    """With a mean that is fine the expected next wealth is no larger."""
    null = Null.AT_LEAST if mean >= limit else Null.AT_MOST
    now = _feed(family.wealth(null, limit, Mode.CHANGE), samples)

    assert mean * now.update(1.0).e_value + (1 - mean) * now.update(0.0).e_value <= now.e_value * (1 + 1e-9) + 1e-12


@settings(max_examples=60, deadline=None)
@given(mode=MODES, limit=st.floats(0.05, 0.95), samples=st.lists(UNIT, max_size=20))
def test_the_two_sides_are_mirror_images(mode, limit, samples):
    """Reflecting samples and limit swaps "at least" and "at most"."""
    one = _feed(betting.wealth(Null.AT_LEAST, limit, mode), samples)
    other = _feed(betting.wealth(Null.AT_MOST, 1 - limit, mode), [1 - x for x in samples])

    assert one.e_value == pytest.approx(other.e_value, rel=1e-6, abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(family=FAMILIES, null=NULLS, mode=MODES, limit=LIMITS, samples=st.lists(UNIT, max_size=20))
def test_a_record_restores_every_bit(family, null, mode, limit, samples):
    """Evidence goes through JSON unchanged, so that a restart cannot move a verdict."""
    wealth = _feed(family.wealth(null, limit, mode), samples)

    record = json.loads(json.dumps(wealth.to_record(), allow_nan=False))

    assert Wealth.from_record(record, family.bets(null, limit)) == wealth


@pytest.mark.parametrize("mode", Mode)
def test_neither_endless_good_nor_endless_bad_samples_overflow(mode):
    """Thousands of extreme samples stay finite both ways, and the detector recovers from good ones at once."""
    bad = _feed(betting.wealth(Null.AT_LEAST, 0.9, mode), [0.0] * 1000)
    good = _feed(betting.wealth(Null.AT_LEAST, 0.9, mode), [1.0] * 1000)

    assert bad.e_value == bad.peak == math.exp(MAX_LOG)
    assert 0.0 <= good.e_value < (13.0 if mode is Mode.MONITOR else 1.0)
    assert all(math.isfinite(log) for log in (*bad.logs, *good.logs))


def test_the_peak_remembers():
    """The largest wealth stays after good samples have lost the present one."""
    wealth = _feed(betting.wealth(Null.AT_LEAST, 0.5), [0.0] * 10)
    later = _feed(wealth, [1.0] * 10)

    assert later.e_value < later.peak == wealth.e_value


@pytest.mark.parametrize("x", [-0.1, 1.1, math.nan, math.inf])
def test_a_sample_outside_the_range_is_refused(x):
    """A metric in the wrong unit must not become evidence."""
    with pytest.raises(InvalidInput, match="must be in"):
        betting.wealth(Null.AT_LEAST, 0.5).update(x)


@pytest.mark.parametrize("family", [betting, bernoulli])
@pytest.mark.parametrize("limit", [0.0, 1.0, -1.0, math.nan])
def test_a_limit_that_cannot_be_tested_is_refused(family, limit):
    """At 0 and 1 no sample can speak on one of the sides."""
    with pytest.raises(InvalidInput, match="must be in"):
        family.wealth(Null.AT_MOST, limit)


def test_a_record_of_other_bets_is_refused():
    """Evidence of a version with another number of bets is not guessed at."""
    record = betting.wealth(Null.AT_LEAST, 0.5).to_record() | {"logs": [0.0]}

    with pytest.raises(InvalidRecord, match="1 stakes"):
        Wealth.from_record(record, betting.bets(Null.AT_LEAST, 0.5))


@pytest.mark.parametrize(("pass_at", "clean"), [(0.05, 100), (0.10, 49), (0.15, 32), (0.20, 23), (0.25, 18)])
def test_clean_requests_needed_to_pass(pass_at, clean):
    """The table in policies/default.yaml: so many clean requests exclude a share of pass_at at alpha 0.01."""
    wealth = bernoulli.wealth(Null.AT_LEAST, pass_at)

    assert _feed(wealth, [0.0] * (clean - 1)).e_value < 100 <= _feed(wealth, [0.0] * clean).e_value
