"""The data suite's word is stored where control reads it, once per new batch of outcomes."""

import pytest

from specops.control.inspect import inspect_outcomes


@pytest.fixture
def inspect(store, clock):
    """Return a function that runs a suite with a fixed answer."""
    return lambda *errors: inspect_outcomes(store, lambda _outcomes: errors, actor="suite", clock=clock)


@pytest.fixture
def add(store, make_outcome):
    """Return a function that stores one more outcome of the rollout."""

    def append():
        with store.begin() as unit:
            unit.outcomes.append("ro-1", [make_outcome()])

    return append


def _suites(store):
    with store.read() as unit:
        return [e["payload"] for e in unit.evidence.of("ro-1") if e["kind"] == "data_suite"]


def test_nothing_is_said_about_no_outcomes(store, begin, inspect):
    """A rollout without outcomes is not looked at."""
    begin(store)
    assert inspect("bad") == ()
    assert _suites(store) == []


def test_the_same_outcomes_are_looked_at_once(store, begin, inspect, add):
    """A second look waits for new outcomes."""
    begin(store)
    add()
    assert len(inspect()) == 1
    assert inspect() == ()
    add()
    assert inspect("bad")[0].endswith("on 2 outcomes of ro-1: 1 errors")
    assert _suites(store) == [{"outcomes": 1, "errors": []}, {"outcomes": 2, "errors": ["bad"]}]


def test_a_failure_is_audited_when_it_is_new(store, begin, inspect, add, tags):
    """The same errors again are evidence but no further audit entry."""
    begin(store)
    for errors in (("bad",), ("bad",), ("worse",), ()):
        add()
        inspect(*errors)
    assert tags(store).count("outcomes:suite:failed") == 2
