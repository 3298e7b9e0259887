"""Looking back: entries by source and time, outcomes by request."""

from datetime import timedelta

import pytest

from specops.errors import LineageBroken


def test_entries_are_found_by_source_and_time(store, append, t0):
    """Oldest first; other sources and later entries are left out."""
    append(tag="rollout:plan:started")
    append(tag="lineage:artifact:registered", subject="x")
    append(tag="rollout:plan:aborted", at=t0 + timedelta(hours=1))
    with store.read() as unit:
        assert [e.tag for e in unit.history.entries("rollout:")] == ["rollout:plan:started", "rollout:plan:aborted"]
        assert [e.tag for e in unit.history.entries("rollout:", until=t0)] == ["rollout:plan:started"]
        assert len(unit.history.entries("rollout:", "lineage:")) == 3


def test_a_request_is_found_in_the_tail_by_its_whole_id(store, make_outcome):
    """In one rollout or in all; percent signs and quotes are no patterns."""
    odd = 'r%_"é'
    with store.begin() as unit:
        for rollout in ("ro-1", "ro-2"):
            unit.outcomes.append(rollout, [make_outcome(1), make_outcome(10), make_outcome(request_id=odd)])
    with store.read() as unit:
        assert [(r, o.request_id, s) for r, o, s in unit.history.request("r1")] == [("ro-1", "r1", None), ("ro-2", "r1", None)]
        assert [r for r, _, _ in unit.history.request(odd, "ro-2")] == ["ro-2"]
        assert unit.history.request("r%") == []


def test_a_request_is_found_in_a_sealed_segment(store, make_outcome):
    """Together with the segment's digest."""
    with store.begin() as unit:
        unit.outcomes.append("ro-1", [make_outcome(n) for n in range(5)])
        path = unit.outcomes.seal("ro-1")
    with store.read() as unit:
        ((rollout, outcome, segment),) = unit.history.request("r3")
        assert (rollout, outcome, segment["outcomes"]) == ("ro-1", make_outcome(3), 5)
        assert path.name.endswith(f"{segment['sha256'][:12]}.parquet")
        assert unit.history.request("r9") == []


@pytest.mark.parametrize(("spoil", "words"), [
    (lambda path: path.unlink(), "cannot be read"),
    (lambda path: path.write_bytes(b"PAR1"), "cannot be read"),
    (lambda path: path.write_bytes(path.read_bytes().replace(b"parquet-cpp", b"parquet-Cpp")), "was changed"),
])  # fmt: skip
def test_a_segment_that_is_not_what_was_sealed_is_named(store, make_outcome, spoil, words):
    """Missing, broken, or with other bytes: nothing of it is believed."""
    with store.begin() as unit:
        unit.outcomes.append("ro-1", [make_outcome(1)])
        spoil(unit.outcomes.seal("ro-1"))
    with store.read() as unit, pytest.raises(LineageBroken, match=words):
        unit.history.request("r1")
