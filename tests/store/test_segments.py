"""Outcomes between rows and Parquet segments."""

from datetime import timedelta

import pytest

from specops.core.outcome import Arm, Finish, Kind
from specops.errors import LineageBroken
from specops.store.segments import SEAL_AT


def kinds_of_outcome(make_outcome, t0):
    """Return outcomes that use every field, and none."""
    return [
        make_outcome(1),
        make_outcome(2, acceptance=None, ttft_s=None, completion_tokens=0, finish=Finish.ERROR, error="engine_5xx"),
        make_outcome(
            3, arm=Arm.BASELINE, kind=Kind.SHADOW, assigned=Arm.CANDIDATE, retried_on_baseline=True, text_sha256="f" * 64
        ),
        make_outcome(4, at=t0 + timedelta(microseconds=1), e2e_s=0.1 + 0.2, in_flight=7, prompt_tokens=2**40),
    ]


def test_outcomes_come_back_equal_from_rows_and_from_a_segment(store, make_outcome, t0):
    """Sealing changes where they are, not what they are or their order."""
    outcomes = kinds_of_outcome(make_outcome, t0)
    with store.begin() as unit:
        unit.outcomes.append("ro-1", outcomes)
        assert unit.outcomes.read("ro-1") == outcomes
        assert unit.outcomes.seal("ro-1").suffix == ".parquet"
        assert unit.outcomes.seal("ro-1") is None
        unit.outcomes.append("ro-1", [make_outcome(5)])
    with store.read() as unit:
        assert unit.outcomes.read("ro-1") == [*outcomes, make_outcome(5)]
        assert unit.outcomes.count("ro-1") == 5
        assert unit.outcomes.read("ro-2") == []


def test_a_full_tail_is_sealed_by_itself(store, make_outcome, tmp_path):
    """A thousand rows become one file; rollouts do not mix; any id is a safe folder name."""
    outcomes = [make_outcome(n) for n in range(SEAL_AT + 1)]
    with store.begin() as unit:
        unit.outcomes.append("../x", outcomes[: SEAL_AT - 1])
        unit.outcomes.append("ro-2", outcomes[:1])
        assert not (tmp_path / "segments").exists()
        unit.outcomes.append("../x", outcomes[SEAL_AT - 1 : SEAL_AT])
        unit.outcomes.append("../x", outcomes[SEAL_AT:])
    assert [p.parent.name for p in (tmp_path / "segments").rglob("*.parquet")] == ["rollout=..%2Fx"]
    with store.read() as unit:
        assert unit.outcomes.read("../x") == outcomes


def test_a_sealed_segment_that_changed_or_went_is_named(store, make_outcome):
    """Outcomes behind a verdict cannot be edited quietly."""
    with store.begin() as unit:
        unit.outcomes.append("ro-1", [make_outcome()])
        segment = unit.outcomes.seal("ro-1")
    segment.write_bytes(segment.read_bytes()[:-1] + b"x")
    with store.read() as unit, pytest.raises(LineageBroken, match=f"{segment.name} was changed"):
        unit.outcomes.read("ro-1")
    segment.unlink()
    with store.read() as unit, pytest.raises(LineageBroken, match=f"{segment.name} with 1 outcomes is missing"):
        unit.outcomes.read("ro-1")


def test_a_crash_between_file_and_commit_loses_and_repeats_nothing(store, make_outcome):
    """The orphaned file is no part of the store; the next seal makes it again."""
    outcomes = [make_outcome(n) for n in range(3)]
    with store.begin() as unit:
        unit.outcomes.append("ro-1", outcomes)
    with pytest.raises(KeyboardInterrupt), store.begin() as unit:  # noqa: PT012
        orphan = unit.outcomes.seal("ro-1")
        raise KeyboardInterrupt
    assert orphan.exists()
    with store.begin() as unit:
        assert unit.outcomes.read("ro-1") == outcomes
        assert unit.outcomes.seal("ro-1") == orphan
        assert unit.outcomes.read("ro-1") == outcomes
