"""Rollouts under an optimistic lock, cursors, verdicts, outbox, revisions."""

from dataclasses import replace
from datetime import timedelta

import pytest

from specops.core.rollout import State
from specops.core.verdict import Finding, Result, Verdict
from specops.errors import IllegalTransition, InvalidRecord


def test_a_rollout_comes_back_equal_and_moves_version_by_version(store, make_rollout):
    """Save takes exactly the next version."""
    moved = make_rollout(step=1, version=2, approved_steps=(0,))
    with store.begin() as unit:
        unit.rollouts.add(make_rollout())
        unit.rollouts.save(moved)
    with store.read() as unit:
        assert unit.rollouts.get("ro-1") == moved
        assert unit.rollouts.all() == unit.rollouts.active() == [moved]


@pytest.mark.parametrize("version", [1, 3])
def test_a_change_from_another_version_is_refused(store, make_rollout, version):
    """Of two writers who read the same version, the second one loses, and is told."""
    with store.begin() as unit:
        unit.rollouts.add(make_rollout())
    with pytest.raises(IllegalTransition, match="stored at version 1"), store.begin() as unit:
        unit.rollouts.save(make_rollout(version=version))


def test_unknown_and_repeated_rollouts_are_refused(store, make_rollout):
    """Ids are used once."""
    with store.begin() as unit:
        unit.rollouts.add(make_rollout())
        with pytest.raises(IllegalTransition, match="exists already"):
            unit.rollouts.add(make_rollout())
        with pytest.raises(InvalidRecord, match="no rollout ro-2"):
            unit.rollouts.get("ro-2")


def test_an_ended_rollout_is_not_active(store, make_rollout):
    """A promoted one is still watched; a rolled back one is over."""
    with store.begin() as unit:
        unit.rollouts.add(make_rollout(state=State.PROMOTED))
        unit.rollouts.add(make_rollout(id="ro-2", state=State.ROLLED_BACK))
        unit.rollouts.add(make_rollout(id="ro-3", state=State.ABORTED))
        assert [r.id for r in unit.rollouts.active()] == ["ro-1"]


def test_evidence_and_cursor_are_replaced_together(store, make_rollout):
    """What was folded and how far it was read are one row."""
    with store.begin() as unit:
        unit.rollouts.add(make_rollout())
        assert unit.windows.load("ro-1") is None
        unit.windows.save("ro-1", {"n": 1}, "e1", 5)
        unit.windows.save("ro-1", {"n": 2, "wealth": float("inf")}, "e2", 3)
        assert unit.windows.load("ro-1") == ({"n": 2, "wealth": float("inf")}, "e2", 3)


def test_verdicts_come_back_in_order(store, make_rollout, t0):
    """Every verdict stays, with its findings."""
    finding = Finding(
        check="c", result=Result.FAIL, metric="m", n=3, estimate=0.5, low=None, high=1.0, limit=0.6, unit="ratio",
        e_value=float("inf"), e_threshold=100.0, pass_e_value=None, pass_threshold=None, owner="ops", reason="low",
    )  # fmt: skip
    common = {"findings": (finding,), "policy_digest": "p", "at": t0}
    verdicts = [Verdict(result=result, outcomes=n, **common) for n, result in enumerate((Result.PENDING, Result.FAIL))]
    with store.begin() as unit:
        unit.rollouts.add(make_rollout())
        for verdict in verdicts:
            unit.verdicts.add("ro-1", verdict)
        found = unit.verdicts.of("ro-1")
    assert [v["result"] for v in found] == ["PENDING", "FAIL"]
    assert found[1]["findings"][0]["e_value"] == float("inf")


def test_a_side_effect_is_queued_once_and_waits_until_it_is_done(store, t0):
    """A failed try comes back when its time has come; a done one never."""
    later = t0 + timedelta(seconds=30)
    with store.begin() as unit:
        for _ in range(2):
            unit.outbox.add("alert", "k1", {"x": 1}, t0)
        unit.outbox.add("alert", "k2", {}, later)
        (message,) = unit.outbox.due(t0)
        assert (message.kind, message.key, message.payload, message.attempts) == ("alert", "k1", {"x": 1}, 0)

        unit.outbox.failed(message.id, "refused", later)
        assert unit.outbox.due(t0) == []
        assert [(m.key, m.attempts) for m in unit.outbox.due(later)] == [("k1", 1), ("k2", 0)]

        unit.outbox.done(message.id, later)
        assert [m.key for m in unit.outbox.due(later)] == ["k2"]


def test_route_revisions_only_grow(store):
    """Also across transactions, one by one."""
    seen = []
    for _ in range(2):
        with store.begin() as unit:
            seen += [unit.next_revision(), unit.next_revision()]
    assert seen == [1, 2, 3, 4]


def test_somebody_elses_error_text_is_kept_whatever_it_holds(store, t0):
    """A failed try must be noted, or it is never tried again."""
    with store.begin() as unit:
        unit.outbox.add("alert", "k", {}, t0)
        unit.outbox.failed(unit.outbox.due(t0)[0].id, "bad \0 and \ud800", t0)
        assert unit.outbox.due(t0)[0].attempts == 1


def test_an_exception_takes_back_everything_and_nothing_committed(store, make_rollout):
    """Half a transaction never shows; what was committed before stays."""
    with store.begin() as unit:
        unit.rollouts.add(make_rollout())
    with pytest.raises(ZeroDivisionError), store.begin() as unit:  # noqa: PT012
        unit.rollouts.save(replace(make_rollout(), version=2, step=1))
        unit.next_revision()
        _ = 1 / 0
    with store.begin() as unit:
        assert unit.rollouts.get("ro-1") == make_rollout()
        assert unit.next_revision() == 1


def test_a_reader_sees_one_moment_and_does_not_wait(store, make_rollout):
    """A read begun before a commit keeps its view."""
    with store.read() as old:
        assert old.rollouts.all() == []
        with store.begin() as unit:
            unit.rollouts.add(make_rollout())
        assert old.rollouts.all() == []
    with store.read() as new:
        assert new.rollouts.all() == [make_rollout()]
