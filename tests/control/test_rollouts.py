"""Starting a rollout and changing it by hand: refused where the state does not allow it, always with an audit entry."""

from dataclasses import replace

import pytest

from specops.control import rollouts
from specops.core.lossless import Lossless
from specops.core.rollout import State, Step, StepKind
from specops.errors import IllegalTransition, InvalidRecord, SpecopsError

GATED = (Step(kind=StepKind.CANARY, weight=0.5, gate=True), Step(kind=StepKind.WATCH, weight=1.0))


def test_start_registers_the_policy_before_any_outcome(store, begin, policy, tags):
    """Policy text, plan and endpoints are stored with the rollout (M13)."""
    rollout = begin(store)
    with store.read() as unit:
        assert unit.policies.get(policy.digest).strip().startswith("name: test")
        assert [e["kind"] for e in unit.evidence.of(rollout.id)] == ["endpoints"]
        order = [e.tag for e in unit.audit.all()]
    assert order.index("policy:thresholds:registered") < order.index("rollout:plan:started")
    assert tags(store, policy.digest) == ["policy:thresholds:registered"]


def test_start_resolves_names_to_release_ids(store, begin, releases):
    """A rollout holds ids, which cannot move."""
    rollout = begin(store)
    assert (rollout.baseline, rollout.candidate) == tuple(r.id for r in releases)


def test_a_second_rollout_is_refused(store, begin, make_plan, clock):
    """One at a time; the message says how to end the first."""
    begin(store)
    with pytest.raises(IllegalTransition, match="specops rollout abort ro-1"):
        rollouts.start(store, make_plan(rollout_id="ro-2"), actor="ann", now=clock())


def test_a_new_rollout_may_follow_an_ended_one(store, begin, make_plan, clock):
    """An aborted rollout is out of the way."""
    begin(store)
    rollouts.abort_by_hand(store, "ro-1", reason="r", actor="ann", now=clock())
    assert rollouts.start(store, make_plan(rollout_id="ro-2"), actor="ann", now=clock()).state is State.RUNNING


@pytest.mark.parametrize("change", [{"candidate": "nobody"}, {"candidate": "plain"}])
def test_a_refused_start_leaves_nothing_behind(store, begin, make_plan, clock, change):
    """An unknown release, or one against itself, starts nothing and is not audited."""
    begin(store)
    rollouts.abort_by_hand(store, "ro-1", reason="r", actor="ann", now=clock())
    with store.read() as unit:
        size = unit.audit.head().size
    with pytest.raises(SpecopsError):
        rollouts.start(store, make_plan(rollout_id="ro-2", **change), actor="ann", now=clock())
    with store.read() as unit:
        assert unit.audit.head().size == size
        assert unit.rollouts.active() == []


def test_abort_names_actor_and_reason(store, begin, clock):
    """The audit log says who and why."""
    begin(store)
    rollouts.abort_by_hand(store, "ro-1", reason="page 42", actor="bob", now=clock())
    with store.read() as unit:
        entry = unit.audit.of("ro-1")[-1]
    assert (entry.actor, entry.payload, entry.at) == ("bob", {"reason": "page 42"}, clock())


@pytest.mark.parametrize("change", [rollouts.abort_by_hand, rollouts.roll_back_by_hand])
def test_what_has_ended_cannot_end_again(store, begin, clock, change):
    """A second end is refused and not audited."""
    begin(store)
    rollouts.roll_back_by_hand(store, "ro-1", reason="r", actor="bob", now=clock())
    with pytest.raises(IllegalTransition):
        change(store, "ro-1", reason="again", actor="bob", now=clock())
    with store.read() as unit:
        assert sum(e.tag.startswith("rollout:") for e in unit.audit.of("ro-1")) == 2


def test_rolling_back_by_hand_has_the_effects_of_a_fail(store, begin, clock, releases):
    """Alias and alert as if the policy had said FAIL, the check being the person."""
    begin(store)
    rollouts.roll_back_by_hand(store, "ro-1", reason="smells", actor="bob", now=clock())
    with store.read() as unit:
        assert unit.aliases.get("production") == releases[0].id
        (alert,) = [m for m in unit.outbox.due(clock()) if m.kind == "alert"]
        assert unit.rollouts.get("ro-1").state is State.ROLLED_BACK
    assert alert.payload["labels"]["check"] == "by_hand"
    assert "smells" in alert.payload["annotations"]["description"]


def test_nobody_approves_their_own_rollout(store, begin, clock):
    """The gate wants a second person."""
    begin(store, steps=GATED)
    with pytest.raises(IllegalTransition, match="another person"):
        rollouts.approve_by_hand(store, "ro-1", actor="ann", now=clock())


def test_an_approval_is_stored_and_audited(store, begin, clock):
    """The approved step is part of the rollout."""
    begin(store, steps=GATED)
    rollouts.approve_by_hand(store, "ro-1", actor="bob", now=clock())
    with store.read() as unit:
        assert unit.rollouts.get("ro-1").approved_steps == (0,)
        assert (unit.audit.of("ro-1")[-1].tag, unit.audit.of("ro-1")[-1].actor) == ("rollout:gate:approved", "bob")


def test_approving_twice_is_once(store, begin, clock, tags):
    """A repeated approval changes nothing and is not audited again."""
    begin(store, steps=GATED)
    for _ in range(2):
        rollouts.approve_by_hand(store, "ro-1", actor="bob", now=clock())
    assert tags(store).count("rollout:gate:approved") == 1


def test_an_unknown_rollout_is_named(store, clock):
    """A mistyped id is the caller's error."""
    with pytest.raises(InvalidRecord, match="no rollout ro-9"):
        rollouts.abort_by_hand(store, "ro-9", reason="r", actor="bob", now=clock())


def test_a_policy_that_asks_for_it_needs_a_verification_in_force(store, begin, make_plan, releases, policy, clock):
    """Without one the start is refused and says how to verify; with one it counts only for the engine that was verified."""
    asking = replace(policy, lossless=Lossless())
    with pytest.raises(IllegalTransition, match=r"never verified.*--release spec"):
        begin(store, policy=asking)
    facts = {"version": "1"}
    found = {
        "verdict": "LOSSLESS WITHIN", "words": "", "tolerance": 0.01, "sampling": {"temperature": 1.0, "top_p": 1.0},
        "facts": {"endpoint": facts},
    }  # fmt: skip
    with store.begin() as unit:
        unit.evidence.add(releases[1].id, "fidelity", found, clock(), "scope")
    with pytest.raises(IllegalTransition, match="changed after it was verified: version"):
        rollouts.start(store, make_plan(policy=asking, candidate_facts={"version": "2"}), actor="ann", now=clock())

    started = rollouts.start(store, make_plan(policy=asking, candidate_facts=facts), actor="ann", now=clock())

    assert started.state is State.RUNNING
