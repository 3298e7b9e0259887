"""The wealth is what its formulas say, a fair game under the null, and never leaves the range of a double."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specops.errors import InvalidInput, InvalidRecord
from specops.stats import bernoulli, betting
from specops.stats.wealth import MAX_LOG, Bets, Mode, Null, Wealth, within

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
    assert all(math.isfinite(log) for log in (*bad.stakes, *good.stakes))


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
    record = betting.wealth(Null.AT_LEAST, 0.5).to_record() | {"stakes": [0.0]}

    with pytest.raises(InvalidRecord, match="1 stakes"):
        Wealth.from_record(record, betting.bets(Null.AT_LEAST, 0.5))


@pytest.mark.parametrize(("pass_at", "clean"), [(0.05, 100), (0.10, 49), (0.15, 32), (0.20, 23), (0.25, 18)])
def test_clean_requests_needed_to_pass(pass_at, clean):
    """The table in policies/default.yaml: so many clean requests exclude a share of pass_at at alpha 0.01."""
    wealth = bernoulli.wealth(Null.AT_LEAST, pass_at)

    assert _feed(wealth, [0.0] * (clean - 1)).e_value < 100 <= _feed(wealth, [0.0] * clean).e_value


@settings(max_examples=100, deadline=None)
@given(family=FAMILIES, null=NULLS, mode=MODES, limit=LIMITS, samples=st.lists(UNIT, max_size=20), cut=st.integers(0, 20))
def test_evidence_is_the_same_however_it_is_cut(family, null, mode, limit, samples, cut):
    """Stopping anywhere, storing, restoring and going on gives exactly the value of one go, to the last bit."""
    whole = _feed(family.wealth(null, limit, mode), samples)

    first = _feed(family.wealth(null, limit, mode), samples[:cut])
    stored = Wealth.from_record(json.loads(json.dumps(first.to_record())), family.bets(null, limit))

    assert _feed(stored, samples[cut:]) == whole


@settings(max_examples=60, deadline=None)
@given(family=FAMILIES, null=NULLS, mode=MODES, limit=LIMITS, samples=st.lists(UNIT, max_size=15))
def test_a_record_of_the_first_version_is_read(family, null, mode, limit, samples):
    """Evidence stored as logarithms (log(1 + M) for the detector) goes on with the same wealth."""
    wealth = _feed(family.wealth(null, limit, mode), samples)
    plus = 1.0 if mode is Mode.MONITOR else 0.0
    logs = [math.log(stake + plus) if stake + plus else 0.0 for stake in wealth.stakes]
    record = {"mode": mode.value, "n": wealth.n, "peak": wealth.peak, "logs": logs}

    old = Wealth.from_record(record, family.bets(null, limit))

    assert old.e_value == pytest.approx(wealth.e_value, rel=1e-9, abs=1e-12)
    assert old.update(0.5).e_value == pytest.approx(wealth.update(0.5).e_value, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("log", [-5000.0, 400.0, 5000.0])
def test_an_old_record_far_from_one_is_read(log):
    """Logarithms beyond the range of a double keep their size."""
    bets = betting.bets(Null.AT_LEAST, 0.5)
    record = betting.wealth(Null.AT_LEAST, 0.5).to_record() | {"logs": [log] * 12, "n": 9, "peak": 2.0}

    assert Wealth.from_record(record, bets).log_e == pytest.approx(log)


@pytest.mark.parametrize("null", Null)
@pytest.mark.parametrize("mode", Mode)
def test_extreme_samples_for_very_long_stay_exact(null, mode):
    """20 000 samples that gain, then as many that lose: the log is what the factors say, and nothing overflows."""
    good, bad = (1.0, 0.0) if null is Null.AT_LEAST else (0.0, 1.0)
    wealth = _feed(betting.wealth(null, 0.5, mode), [bad] * 20_000)
    top = wealth.log_e
    later = _feed(wealth, [good] * 20_000)

    assert wealth.peak == math.exp(MAX_LOG)
    assert top == pytest.approx(20_000 * math.log(1.98) - math.log(12), abs=3)
    assert -math.inf <= later.log_e < top
    assert all(math.isfinite(stake) for stake in later.stakes)


def test_a_lost_wealth_still_has_a_logarithm():
    """Below the smallest double the value reads 0, its logarithm does not."""
    wealth = _feed(bernoulli.wealth(Null.AT_MOST, 0.5), [0.0] * 20_000)

    assert wealth.e_value == 0.0
    assert wealth.log_e < -1000


@settings(max_examples=60, deadline=None)
@given(family=FAMILIES, null=NULLS, limit=LIMITS, one=st.lists(UNIT, max_size=12), other=st.lists(UNIT, max_size=12))
def test_steady_wealth_of_two_streams_multiplies(family, null, limit, one, other):
    """Merging two replicas gives the wealth of all samples in one stream, and begins the peak anew."""
    start = family.wealth(null, limit)

    merged = _feed(start, one).merge(_feed(start, other))

    whole = _feed(start, one + other)
    assert (merged.n, merged.e_value) == (whole.n, pytest.approx(whole.e_value, rel=1e-9))
    assert merged.peak == max(1.0, merged.e_value)


def test_merging_far_streams_does_not_overflow():
    """Two huge wealths multiply to a capped one, a huge and a lost one meet again near 1."""
    high = _feed(betting.wealth(Null.AT_LEAST, 0.5), [0.0] * 5000)
    low = _feed(betting.wealth(Null.AT_LEAST, 0.5), [1.0] * 5000)

    assert high.merge(high).e_value == math.exp(MAX_LOG)
    assert high.merge(low).log_e < high.log_e
    assert low.merge(low).log_e == pytest.approx(2 * low.log_e, abs=4)


@pytest.mark.parametrize("mode", [Mode.CHANGE, Mode.MONITOR])
def test_what_depends_on_order_is_not_merged(mode):
    """A change-point wealth of two interleaved streams is not a function of the two."""
    wealth = betting.wealth(Null.AT_LEAST, 0.5, mode)

    with pytest.raises(InvalidInput, match="fold the outcomes"):
        wealth.merge(wealth)


def test_wealth_of_other_bets_is_not_merged():
    """Two limits are two hypotheses."""
    with pytest.raises(InvalidInput, match=r"0\.5 and .*0\.6"):
        betting.wealth(Null.AT_LEAST, 0.5).merge(betting.wealth(Null.AT_LEAST, 0.6))


@given(slope=st.floats(-1e6, 1e6), limit=st.floats(1e-12, 1 - 1e-12))
def test_no_bet_can_be_ruined(slope, limit):
    """Whatever slope is asked for, a sample of 0 or 1 leaves something of the stake."""
    bets = Bets(family="any", null=Null.AT_LEAST, limit=limit, slopes=(within(slope, limit),))

    assert min(bets.at_zero[0], bets.at_one[0]) > 0


@pytest.mark.parametrize("limit", [1e-15, 1e-9, 1 - 1e-9, 1 - 1e-15])
@pytest.mark.parametrize("family", [betting, bernoulli])
def test_limits_near_the_ends_do_not_crash(family, limit):
    """A policy may ask for 0.999999999; no sample then ruins the arithmetic."""
    for null in Null:
        wealth = _feed(family.wealth(null, limit, Mode.CHANGE), [0.0, 1.0, 0.5] * 50)
        assert 0 <= wealth.e_value <= math.exp(MAX_LOG)


@pytest.mark.parametrize(
    "spoil",
    [
        {"stakes": [math.nan] * 12},
        {"stakes": [-1.0] * 12},
        {"stakes": ["1"] * 12},
        {"exponent": 10**30},
        {"exponent": 0.5},
        {"stakes": [math.inf] * 12},
        {"logs": [math.inf] * 12},
        {"logs": [math.nan] * 12},
        {"logs": [-5000.0] * 12, "mode": "monitor"},
    ],
)
def test_a_spoilt_record_is_refused(spoil):
    """Stakes that are no numbers must not become evidence."""
    record = betting.wealth(Null.AT_LEAST, 0.5).to_record() | spoil

    with pytest.raises(InvalidRecord, match="replay it"):
        Wealth.from_record(record, betting.bets(Null.AT_LEAST, 0.5))
