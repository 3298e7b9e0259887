"""An outcome holds what was measured, refuses what cannot be, and survives its record."""

from datetime import datetime

import pytest

from specops.core.outcome import Acceptance, Arm, Outcome
from specops.errors import InvalidRecord


def test_rates_are_derived():
    """2 rounds, 8 drafted, 5 accepted: rate 5/8, length 1 + 5/2; nothing drafted is no data."""
    counts = Acceptance(rounds=2, drafted=8, accepted=5, histogram=(0, 1, 0, 0, 1))
    nothing = Acceptance(rounds=0, drafted=0, accepted=0)

    assert (counts.rate, counts.length) == (0.625, 3.5)
    assert (nothing.rate, nothing.length) == (None, None)


@pytest.mark.parametrize(
    "counts",
    [
        {"rounds": 1, "drafted": 4, "accepted": 5},
        {"rounds": 1, "drafted": 4, "accepted": -1},
        {"rounds": -1, "drafted": 4, "accepted": 1},
        {"rounds": 1, "drafted": 4, "accepted": 2, "histogram": (0, 1)},
    ],
)
def test_counts_that_disagree_are_refused(counts):
    """More accepted than drafted, or a histogram of another total, is a broken source."""
    with pytest.raises(InvalidRecord):
        Acceptance(**counts)


def test_time_per_token_leaves_out_the_first(make_outcome):
    """(1.0 - 0.2) seconds over 8 further tokens; one token, or no first token, has none."""
    assert make_outcome().tpot_s == pytest.approx(0.1)
    assert make_outcome(completion_tokens=1).tpot_s is None
    assert make_outcome(ttft_s=None).tpot_s is None


@pytest.mark.parametrize("changes", [{"at": datetime(2026, 1, 1)}, {"e2e_s": -1.0}, {"ttft_s": -0.1}])  # noqa: DTZ001
def test_impossible_times_are_refused(make_outcome, changes):
    """A time without zone, or before its own start."""
    with pytest.raises(InvalidRecord):
        make_outcome(**changes)


@pytest.mark.parametrize(
    "changes", [{}, {"rate": None}, {"assigned": Arm.BASELINE, "error": "timeout", "retried_on_baseline": True}]
)
def test_a_record_restores_the_outcome(make_outcome, changes):
    """Store and restore are inverse, with and without acceptance counts."""
    outcome = make_outcome(**changes)

    assert Outcome.from_record(outcome.to_record()) == outcome


@pytest.mark.parametrize(
    "changes", [{"arm": "left"}, {"at": "yesterday"}, {"extra": 1}, {"acceptance": {"rounds": 1}}, {"kind": None}]
)
def test_a_broken_record_is_refused(make_outcome, changes):
    """Unknown names, missing counts and unreadable times give one clear error."""
    with pytest.raises(InvalidRecord, match="not an outcome record"):
        Outcome.from_record(make_outcome().to_record() | changes)


def test_a_missing_field_is_refused(make_outcome):
    """A record without its arm is none."""
    record = make_outcome().to_record()
    del record["arm"]

    with pytest.raises(InvalidRecord, match="not an outcome record"):
        Outcome.from_record(record)
