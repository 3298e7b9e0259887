"""Which arm an event came from: fair at any share, found when the share of events is not that of traffic."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specops.errors import InvalidInput, InvalidRecord
from specops.stats.attribution import RATIOS, Attribution, Split
from specops.stats.stakes import MAX_VALUE, Mode
from specops.stats.wealth import Null

SHARE = st.floats(0.01, 0.99)
EVENTS = st.lists(st.tuples(st.booleans(), SHARE), max_size=25)
MODES, NULLS = st.sampled_from(Mode), st.sampled_from(Null)


def _feed(test, events):
    for candidate, share in events:
        test = test.update(candidate=candidate, share=share)
    return test


def _requests(split, arms, shares):
    for arm in arms:
        split = split.update(arm, shares)
    return split


def test_one_event_by_hand():
    """An error of a candidate with a tenth of the traffic multiplies the stake on ratio r by r / (0.1 r + 0.9)."""
    test = Attribution.start().update(candidate=True, share=0.1)

    assert test.e_value == pytest.approx(math.fsum(r / (0.1 * r + 0.9) for r in RATIOS) / len(RATIOS))
    assert (test.n, test.candidate_n, test.expected) == (1, 1, 0.1)


@settings(max_examples=100, deadline=None)
@given(null=NULLS, ratio=st.floats(0.2, 5), past=EVENTS, share=SHARE)
def test_the_game_is_fair_at_the_ratio(null, ratio, past, share):
    """At the ratio under test the expected next wealth is the present one, whatever share each event had."""
    now = _feed(Attribution.start(null, ratio), past)
    q = share * ratio / (share * ratio + 1 - share)

    won, lost = (now.update(candidate=c, share=share).e_value for c in (True, False))

    assert q * won + (1 - q) * lost == pytest.approx(now.e_value, rel=1e-9)


@settings(max_examples=100, deadline=None)
@given(null=NULLS, true=st.floats(0.1, 10), past=EVENTS, share=SHARE)
def test_the_game_loses_inside_the_null(null, true, past, share):
    """On the side of the null the expected next wealth is no larger."""
    inside = (true <= 1) == (null is Null.AT_MOST)
    now = _feed(Attribution.start(null if inside else next(n for n in Null if n is not null)), past)
    q = share * true / (share * true + 1 - share)

    won, lost = (now.update(candidate=c, share=share).e_value for c in (True, False))

    assert q * won + (1 - q) * lost <= now.e_value * (1 + 1e-9)


@settings(max_examples=60, deadline=None)
@given(events=EVENTS, cut=st.integers(0, 25), mode=MODES, null=NULLS)
def test_evidence_is_the_same_however_it_is_cut(events, cut, mode, null):
    """Through JSON, to the last bit."""
    start = Attribution.start(null, 1.5, mode)

    first = json.loads(json.dumps(_feed(start, events[:cut]).to_record()))

    assert _feed(Attribution.from_record(first), events[cut:]) == _feed(start, events)


def test_a_candidate_with_too_many_errors_is_found():
    """Eight errors in a row from a tenth of the traffic; as many from the baseline are no evidence."""
    assert _feed(Attribution.start(), [(True, 0.1)] * 8).e_value > 1e4
    assert _feed(Attribution.start(), [(False, 0.1)] * 8).e_value < 1
    assert _feed(Attribution.start(Null.AT_LEAST, 2.0), [(False, 0.5)] * 8).e_value > 20  # not twice the baseline's


@pytest.mark.parametrize(("candidate", "share"), [(True, 1.0), (False, 0.0)])
def test_an_event_without_a_rival_says_nothing(candidate, share):
    """While one arm has all the traffic, all events are its own."""
    start = Attribution.start()

    assert start.update(candidate=candidate, share=share) is start


@pytest.mark.parametrize(("candidate", "share"), [(True, 0.0), (False, 1.0), (True, 1.5), (True, -0.1), (True, math.nan)])
def test_an_event_of_an_arm_without_traffic_is_refused(candidate, share):
    """A wrong share would be evidence for nothing."""
    with pytest.raises(InvalidInput, match="share"):
        Attribution.start().update(candidate=candidate, share=share)


@pytest.mark.parametrize("ratio", [0.0, 1e4, math.nan])
def test_a_ratio_nobody_could_test_is_refused(ratio):
    """Within a factor of a thousand."""
    with pytest.raises(InvalidInput, match="ratio"):
        Attribution.start(ratio=ratio)


def test_nothing_overflows():
    """Ten thousand errors of one arm stay within a double, and the logarithm goes on."""
    test = _feed(Attribution.start(mode=Mode.MONITOR), [(True, 0.01)] * 10_000)

    assert test.e_value == test.peak == MAX_VALUE
    assert test.log_e > 1e4


@pytest.mark.parametrize("spoil", [{"stakes": [1.0]}, {"null": "x"}, {"n": None}, {"ratio": "x"}])
def test_a_spoilt_record_is_refused(spoil):
    """Another number of stakes, or a field of another kind."""
    with pytest.raises(InvalidRecord, match="replay"):
        Attribution.from_record(Attribution.start().to_record() | spoil)


def test_the_split_agrees_with_ville():
    """Golden: ville 0.1.0, BernoulliTest(0.1, prior=(10, 90)) on 60 times (1, 0, 0, 0, 0) ends at log 9.522712867853613."""
    shares = {"candidate": 0.1, "baseline": 0.9}

    split = _requests(Split.start(("candidate", "baseline")), (["candidate"] + ["baseline"] * 4) * 60, shares)

    assert math.log(split.e_value) == pytest.approx(9.522712867853613, abs=1e-6)
    assert math.log(split.peak) == pytest.approx(9.876105807924802, abs=1e-6)
    assert (split.n, split.counts) == (300, (60, 240))


@settings(max_examples=60, deadline=None)
@given(past=st.lists(st.sampled_from("abc"), max_size=20), a=st.floats(0.01, 0.5), b=st.floats(0.01, 0.4))
def test_the_split_is_a_fair_game(past, a, b):
    """When requests follow the configured shares, changed or not, the expected next wealth is the present one."""
    now = _requests(Split.start(("a", "b", "c")), past, {"a": 0.2, "b": 0.3, "c": 0.5})
    shares = {"a": a, "b": b, "c": 1 - a - b}

    expected = sum(shares[arm] * now.update(arm, shares).e_value for arm in shares)

    assert expected == pytest.approx(now.e_value, rel=1e-9)


@given(arms=st.lists(st.sampled_from("ab"), max_size=30), cut=st.integers(0, 30))
def test_a_split_is_the_same_however_it_is_cut(arms, cut):
    """Through JSON, to the last bit."""
    start, shares = Split.start(("a", "b")), {"a": 0.3, "b": 0.7}

    first = json.loads(json.dumps(_requests(start, arms[:cut], shares).to_record()))

    assert _requests(Split.from_record(first), arms[cut:], shares) == _requests(start, arms, shares)


def test_an_arm_may_be_idle():
    """A share of 0 is a share; a request on that arm is not."""
    split = Split.start(("a", "b")).update("a", {"a": 1.0, "b": 0.0})

    assert split.e_value == pytest.approx(1.0)
    with pytest.raises(InvalidInput, match="positive for 'b'"):
        split.update("b", {"a": 1.0, "b": 0.0})


@pytest.mark.parametrize(("arm", "shares"), [("c", {"a": 0.5, "b": 0.5}), ("a", {"a": 1.0}), ("a", {"a": 0.5, "b": 0.4})])
def test_a_split_over_other_arms_is_refused(arm, shares):
    """Unknown arms and shares that do not add up."""
    with pytest.raises(InvalidInput):
        Split.start(("a", "b")).update(arm, shares)


@pytest.mark.parametrize("arms", [("a",), ("a", "a")])
def test_a_split_needs_two_arms(arms):
    """One arm cannot be split."""
    with pytest.raises(InvalidInput, match="two or more"):
        Split.start(arms)


@pytest.mark.parametrize("spoil", [{"stakes": []}, {"counts": 3}, {"peak": "x"}])
def test_a_spoilt_split_is_refused(spoil):
    """Missing stakes, or fields of another kind."""
    with pytest.raises(InvalidRecord, match="replay"):
        Split.from_record(Split.start(("a", "b")).to_record() | spoil)
