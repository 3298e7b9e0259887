"""Candidate against baseline at the same time: a fair game inside a block, whatever the arrival."""

import json
import math
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specops.errors import InvalidRecord
from specops.stats.stakes import MAX_VALUE, Mode
from specops.stats.two_sample import RATIOS, TwoSample

REQUESTS = st.lists(st.tuples(st.booleans(), st.booleans()), max_size=40)
MODES = st.sampled_from(Mode)


def _feed(test, requests):
    for candidate, over in requests:
        test = test.update(candidate=candidate, over=over)
    return test


def _expected(now, arms, p_candidate, p_baseline):
    """Return the expected wealth after one block with these arms in order."""
    total = 0.0
    for overs in product([True, False], repeat=len(arms)):
        shares = [p_candidate if candidate else p_baseline for candidate in arms]
        weight = math.prod(p if over else 1 - p for p, over in zip(shares, overs, strict=True))
        total += weight * _feed(now, zip(arms, overs, strict=True)).e_value
    return total


def test_one_block_by_hand():
    """One request each, only the candidate's over: p_c / p times (1 - p_b) / (1 - p), with p_b = 1/2 before any data."""
    test = _feed(TwoSample.start(), [(False, False), (True, True)])

    alternatives = [r / (1 + r) for r in RATIOS]
    factors = [(c / p) * (0.5 / (1 - p)) for c in alternatives for p in [(c + 0.5) / 2]]
    assert test.e_value == pytest.approx(math.fsum(factors) / len(factors))
    assert (test.n, test.candidates, test.candidate_hits, test.baselines, test.baseline_hits) == (1, 1, 1, 1, 0)


@pytest.mark.parametrize("arms", [(True, False), (False, True), (False, False, False, True), (True, True, True, False)])
@settings(max_examples=25, deadline=None)
@given(past=REQUESTS, p_baseline=st.floats(0.001, 0.999), better=st.floats(0, 1))
def test_a_block_never_gains_when_the_candidate_is_no_worse(arms, past, p_baseline, better):
    """Turner, Ly, Grunwald, theorem 1, one-sided: expectation <= present wealth for p_candidate <= p_baseline."""
    now = _feed(TwoSample.start(), past)
    now = _feed(now, [(not now.open_candidates, False)]) if now.open_candidates or now.open_baselines else now

    assert _expected(now, arms, p_baseline * better, p_baseline) <= now.e_value * (1 + 1e-9)
    assert _expected(now, arms, p_baseline, p_baseline) <= now.e_value * (1 + 1e-9)


@settings(max_examples=60, deadline=None)
@given(requests=REQUESTS, cut=st.integers(0, 40), mode=MODES)
def test_evidence_is_the_same_however_it_is_cut(requests, cut, mode):
    """Also in the middle of a block, through JSON, to the last bit."""
    whole = _feed(TwoSample.start(mode), requests)

    first = json.loads(json.dumps(_feed(TwoSample.start(mode), requests[:cut]).to_record()))

    assert _feed(TwoSample.from_record(first), requests[cut:]) == whole


@given(requests=REQUESTS)
def test_every_request_is_counted_once(requests):
    """In a closed block or in the open one."""
    test = _feed(TwoSample.start(), requests)

    assert test.candidates + test.open_candidates + test.baselines + test.open_baselines == len(requests)
    assert test.candidate_hits + test.open_candidate_hits == sum(c and o for c, o in requests)
    assert 0 < test.e_value <= test.peak


def test_a_worse_candidate_is_found_at_a_tenth_of_the_traffic():
    """One in ten requests; half of the candidate's are slow, a tenth of the baseline's: 200 requests suffice."""
    requests = [(i % 10 == 9, i % 20 == 19 if i % 10 == 9 else i % 9 == 0) for i in range(400)]

    assert _feed(TwoSample.start(), requests).e_value > 20
    assert _feed(TwoSample.start(), [(not c, o) for c, o in requests]).e_value < 1


def test_a_healthy_start_does_not_bury_a_collapse():
    """After 2000 healthy requests a candidate that is always slow is found sooner with a wealth for changes."""
    healthy, bad = [(i % 2 == 0, False) for i in range(2000)], [(i % 2 == 0, i % 2 == 0) for i in range(40)]

    assert _feed(TwoSample.start(Mode.CHANGE), healthy + bad).e_value > 1e3
    assert _feed(TwoSample.start(Mode.MONITOR), healthy + bad).e_value > 1e3


def test_nothing_overflows():
    """Thousands of blocks that all say the same stay within a double, and the logarithm goes on."""
    test = _feed(TwoSample.start(), [(i % 2 == 0, i % 2 == 0) for i in range(20_000)])

    assert test.e_value == test.peak == MAX_VALUE
    assert test.log_e > 1000


@pytest.mark.parametrize("spoil", [{"stakes": [1.0]}, {"n": "x"}, {"mode": "odd"}, {"exponent": None}])
def test_a_spoilt_record_is_refused(spoil):
    """Another number of stakes, or a field of another kind."""
    with pytest.raises(InvalidRecord, match="replay"):
        TwoSample.from_record(TwoSample.start().to_record() | spoil)


def test_a_record_without_a_field_is_refused():
    """A missing count is not guessed."""
    record = TwoSample.start().to_record()
    del record["open_baselines"]

    with pytest.raises(InvalidRecord, match="open_baselines"):
        TwoSample.from_record(record)
