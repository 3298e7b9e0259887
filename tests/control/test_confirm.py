"""A confirmation set is used once for a release, and that is written down before its results are seen."""

import pytest

from specops.control.confirm import begin_confirmation, read_figures, read_result, record_confirmation
from specops.errors import IllegalTransition, InvalidInput

SET = "5e" * 32


@pytest.fixture
def begun(store, releases, clock):
    """Register both releases and use the set for one of them."""
    with store.begin() as unit:
        for release in releases:
            unit.releases.add(release)
    return begin_confirmation(store, "spec", SET, actor="ann", now=clock())


@pytest.fixture
def record(store, clock):
    """Return a function that records a result."""
    words = {"passed": True, "figures": {"acceptance": 0.71}, "actor": "ann"}
    return lambda release="spec", **changes: record_confirmation(store, release, SET, now=clock(), **(words | changes))


def test_beginning_is_in_the_log_before_any_result(begun, store, record, releases, tags):
    """The use comes first, the result after it, with figures by digest in the log and in full as evidence."""
    record()

    assert tags(store, releases[1].id)[-2:] == ["release:confirmation:begun", "release:confirmation:recorded"]
    with store.read() as unit:
        kinds = [(e["kind"], e["payload"].get("figures")) for e in unit.evidence.of(releases[1].id)]
    assert kinds == [("confirmation", None), ("confirmation_result", {"acceptance": 0.71})]


def test_a_second_use_says_who_and_when(begun, store, releases, clock):
    """By name or by id, with or without a result: beginning used it up."""
    for name in ("spec", releases[1].id):
        with pytest.raises(IllegalTransition, match=r"by ann at 2026-11-29T12:00:00.*hold out another set"):
            begin_confirmation(store, name, SET, actor="bob", now=clock())


def test_another_release_may_use_it_and_is_counted(begun, store, clock):
    """The count says how much the set is worn."""
    second = begin_confirmation(store, "plain", SET, actor="ann", now=clock())

    assert (begun.uses, second.uses) == (1, 2)
    assert begin_confirmation(store, "spec", "6f" * 32, actor="ann", now=clock()).uses == 1


def test_a_result_needs_a_beginning_and_stays(begun, record):
    """None before, none a second time."""
    with pytest.raises(IllegalTransition, match="has begun no confirmation"):
        record("plain")
    record(passed=False)
    with pytest.raises(IllegalTransition, match="by ann; it stays"):
        record()


@pytest.mark.parametrize("digest", ["", "abc", "Z" * 64, "5E" * 32, "5e" * 32 + "\n"])
def test_a_set_is_named_by_its_digest(store, clock, digest):
    """A name can be given to another file."""
    with pytest.raises(InvalidInput, match="64 hex digits"):
        begin_confirmation(store, "spec", digest, actor="ann", now=clock())


@pytest.mark.parametrize("figures", [{"a": float("nan")}, {"a": True}, {"a": [1]}, {str(i): 1 for i in range(65)}])
def test_figures_are_few_and_finite(begun, record, figures):
    """What can't be hashed or read is refused."""
    with pytest.raises(InvalidInput, match="figure"):
        record(figures=figures)


def test_words_of_the_command_line_are_read():
    """Figures are NAME=NUMBER, the result is one of two words."""
    assert read_figures(["acceptance=0.71", "n=200"]) == {"acceptance": 0.71, "n": 200.0}
    assert (read_result("passed"), read_result("failed")) == (True, False)
    with pytest.raises(InvalidInput, match="passed or failed"):
        read_result("maybe")
    for text in ("acceptance", "=1", "a=inf"):
        with pytest.raises(InvalidInput, match="figure"):
            read_figures([text])
