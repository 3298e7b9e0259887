"""Strata: one claim, several limits, and a mix of traffic that is free to move."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specops.errors import InvalidInput, InvalidRecord
from specops.stats import betting
from specops.stats.stratified import Stratified
from specops.stats.wealth import Mode, Null, Wealth

BETS = {"code": betting.bets(Null.AT_LEAST, 0.6), "prose": betting.bets(Null.AT_LEAST, 0.3)}
SAMPLES = st.lists(st.tuples(st.sampled_from(list(BETS)), st.floats(0, 1)), max_size=25)


def _feed(evidence, samples):
    for stratum, x in samples:
        evidence = evidence.update(stratum, x)
    return evidence


@settings(max_examples=60, deadline=None)
@given(samples=SAMPLES, mode=st.sampled_from(Mode))
def test_strata_move_on_their_own(samples, mode):
    """Each wealth is that of its own samples; the whole is the average, or the sum of detectors."""
    evidence = _feed(Stratified.start(BETS, mode), samples)

    alone = []
    for name, bets in BETS.items():
        wealth = Wealth.start(bets, mode)
        for _, x in (s for s in samples if s[0] == name):
            wealth = wealth.update(x)
        alone.append(wealth)
    share = 1.0 if mode is Mode.MONITOR else 0.5
    assert evidence.wealths == tuple(alone)
    assert evidence.e_value == pytest.approx(share * math.fsum(w.e_value for w in alone))
    assert (evidence.weakest, evidence.n) == (min(w.e_value for w in alone), len(samples))
    assert evidence.peak >= evidence.e_value


@settings(max_examples=60, deadline=None)
@given(samples=SAMPLES, cut=st.integers(0, 25), mode=st.sampled_from(Mode))
def test_evidence_is_the_same_however_it_is_cut(samples, cut, mode):
    """Through JSON, to the last bit."""
    start = Stratified.start(BETS, mode, {"code": 0.25, "prose": 0.75})

    first = json.loads(json.dumps(_feed(start, samples[:cut]).to_record()))

    assert _feed(Stratified.from_record(first, BETS), samples[cut:]) == _feed(start, samples)


def test_a_change_of_mix_is_no_evidence_and_a_fall_in_one_stratum_is():
    """Prose at 0.35 pulls the pooled mean below 0.6 and is fine; code at 0.4 is not, and is not hidden by the rest."""
    fine = [("code", 0.7)] * 50 + [("prose", 0.35)] * 500
    fallen = [("code", 0.4), *[("prose", 0.35)] * 9] * 80

    assert _feed(Stratified.start(BETS, Mode.CHANGE), fine).peak < 2
    assert _feed(Stratified.start(BETS, Mode.CHANGE), fallen).peak > 100


def test_the_estimate_is_for_a_fixed_mix():
    """Code 0.7 and prose 0.3 at equal shares are 0.5, however many of each were seen."""
    evidence = _feed(Stratified.start(BETS, Mode.STEADY), [("code", 0.7)] * 90 + [("prose", 0.3)] * 900)

    interval = evidence.estimate({"code": 0.5, "prose": 0.5}, 0.05)

    assert interval.estimate == pytest.approx(0.5)
    assert 0.4 < interval.low < 0.5 < interval.high < 0.6
    assert evidence.estimate({"prose": 1.0}, 0.05).estimate == pytest.approx(0.3)


def test_a_stratum_without_samples_has_no_estimate():
    """A part of the mix that nobody saw is not guessed; one without a share is not missed."""
    evidence = Stratified.start(BETS, Mode.STEADY).update("code", 0.7)

    assert evidence.estimate({"code": 0.5, "prose": 0.5}, 0.05) is None
    assert evidence.estimate({"code": 1.0, "prose": 0.0}, 0.05).estimate == pytest.approx(0.7)
    assert evidence.weakest <= 1.0


@pytest.mark.parametrize("call", [
    lambda e: Stratified.start({}, Mode.STEADY),
    lambda e: Stratified.start(BETS, Mode.STEADY, {"code": 1.0}),
    lambda e: Stratified.start(BETS, Mode.STEADY, {"code": 0.9, "prose": 0.9}),
    lambda e: Stratified.start(BETS, Mode.STEADY, {"code": 1.5, "prose": -0.5}),
    lambda e: e.update("poems", 0.5),
    lambda e: e.update("code", 1.5),
    lambda e: e.estimate({"poems": 1.0}, 0.05),
    lambda e: e.estimate({"code": 0.5}, 0.05),
    lambda e: e.estimate({}, 0.05),
    lambda e: e.estimate({"code": 1.5, "prose": -0.5}, 0.05),
])  # fmt: skip
def test_strata_that_were_not_declared_are_refused(call):
    """Strata, weights and shares are fixed beforehand and add up."""
    with pytest.raises(InvalidInput):
        call(Stratified.start(BETS, Mode.STEADY))


@pytest.mark.parametrize("spoil", [{"names": ["poems"]}, {"wealths": []}, {"moments": 3}])
def test_a_spoilt_record_is_refused(spoil):
    """Other strata, or fewer wealths than strata."""
    with pytest.raises(InvalidRecord, match="replay"):
        Stratified.from_record(Stratified.start(BETS, Mode.STEADY).to_record() | spoil, BETS)
