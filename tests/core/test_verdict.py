"""The verdict of several checks is the worst of theirs."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specops.core.verdict import SEVERITY, Result, worst


def test_no_check_at_all_is_an_error():
    """An empty policy never passes."""
    assert worst([]) is Result.ERROR


@given(results=st.lists(st.sampled_from(Result), min_size=1))
def test_the_worst_is_one_of_them_and_none_is_worse(results):
    """FAIL outranks ERROR, ERROR outranks every kind of waiting, PASS needs them all."""
    found = worst(results)

    assert found in results
    assert all(SEVERITY[r] <= SEVERITY[found] for r in results)
    assert (found is Result.PASS) == (set(results) == {Result.PASS})


@pytest.mark.parametrize("result", list(Result))
def test_a_verdict_is_json_and_gives_its_reason(make_verdict, result):
    """The record has the time as text; the reason is that of the deciding findings."""
    verdict = make_verdict(result, "too slow")

    record = json.loads(json.dumps(verdict.to_record()))

    assert (record["result"], record["at"]) == (result.value, "2026-01-02T03:04:05+00:00")
    assert verdict.reason == "too slow"
