"""What served at a moment."""

from datetime import UTC, datetime, timedelta

import pytest

from specops.core.audit import AuditEntry
from specops.core.history import Move, served_at

T0 = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)


def minute(number):
    """Return a time."""
    return T0 + timedelta(minutes=number)


def entry(number, tag, subject="ro-1", **payload):
    """Return an audit entry of a minute."""
    return AuditEntry(index=number, tag=tag, actor="control", subject=subject, payload=payload, at=minute(number))


STARTED = entry(1, "rollout:plan:started", baseline="a", candidate="b", steps=["shadow weight 0.0 mirror 0.5 min 10"])
MOVED = {"baseline": "a", "candidate": "b", "mirror": "0.0"}
STORY = [
    STARTED,
    entry(2, "rollout:step:advanced", **MOVED, weight="0.25", state="running"),
    entry(3, "rollout:gate:approved", step=1),
    entry(4, "rollout:release:promoted", **MOVED, weight="1.0", state="promoted"),
]


def shares(at, *entries, moves=()):
    """Return who served at a minute."""
    return dict(served_at(moves, entries, minute(at)).shares)


def test_nothing_on_record_is_said():
    """Before everything there is no answer, and no guess."""
    found = served_at([], STORY, minute(0))

    assert (found.shares, found.alias, found.rollout) == ((), None, None)
    assert "nothing on record" in found.why


def test_shares_follow_a_rollout():
    """Shadow serves the baseline alone, a canary splits, a promotion serves the candidate; an approval moves nothing."""
    assert shares(1, *STORY) == {"a": 1.0}
    assert shares(2, *STORY) == shares(3, *STORY) == {"a": 0.75, "b": 0.25}
    assert shares(4, *STORY) == {"b": 1.0}
    assert served_at([], STORY, minute(1)).rollout.mirror == 0.5


@pytest.mark.parametrize(("tag", "payload", "keeper"), [
    ("rollout:plan:aborted", {"reason": "x"}, "a"),
    ("rollout:release:rolled_back", MOVED | {"weight": "0.0", "state": "rolled_back"}, "a"),
    ("rollout:state:finished", MOVED | {"weight": "1.0", "state": "finished"}, "b"),
])  # fmt: skip
def test_an_ended_rollout_leaves_its_keeper(tag, payload, keeper):
    """The baseline, or the candidate when it ended well."""
    found = served_at([], [*STORY, entry(5, tag, **payload)], minute(9))

    assert found.shares == ((keeper, 1.0),)
    assert found.rollout.is_over


def test_the_alias_serves_when_no_rollout_is_in_progress():
    """The last move up to the moment, and who made it; an alias older than the last rollout's end does not count."""
    moves = [Move(release_id="a", actor="ann", at=minute(0)), Move(release_id="c", actor="bob", at=minute(7))]
    ended = [*STORY, entry(5, "rollout:plan:aborted", reason="x")]

    assert shares(0, moves=moves) == {"a": 1.0}
    assert shares(2, *STORY, moves=moves) == {"a": 0.75, "b": 0.25}
    assert shares(6, *ended, moves=moves) == {"a": 1.0}
    assert "moved by bob" in served_at(moves, ended, minute(8)).why


def test_entries_that_cannot_be_read_leave_things_as_they_were():
    """An entry without a beginning is passed over; a share out of range is not believed."""
    assert shares(9, entry(2, "rollout:gate:approved", subject="ro-9")) == {}
    odd = entry(2, "rollout:step:advanced", **MOVED, weight="nan", state="running")
    assert shares(9, STARTED, odd) == {"a": 1.0}
    assert shares(9, STARTED, entry(2, "rollout:step:advanced", **MOVED, weight="half", state="running")) == {"a": 1.0}
    assert shares(9, entry(1, "rollout:plan:started", baseline="a", candidate="b")) == {"a": 1.0}
