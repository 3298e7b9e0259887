"""`advance` decides alone what happens to traffic: FAIL beats progress, only PASS moves on, terminal is terminal."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specops.core.rollout import TERMINAL, ActionKind, Rollout, State, Step, StepKind, abort, advance, approve, roll_back
from specops.core.verdict import Result
from specops.errors import IllegalTransition, InvalidRecord

COMMANDS = st.lists(st.tuples(st.sampled_from([*Result, "approve", "abort"]), st.integers(0, 60)), max_size=20)


@pytest.mark.parametrize("step", range(4))
def test_a_failing_verdict_rolls_back_from_any_step(make_rollout, make_verdict, step):
    """FAIL beats progress: the weight returns to 0 whatever step was reached."""
    state = State.PROMOTED if step == 3 else State.RUNNING

    action = advance(make_rollout(step, state=state), make_verdict("FAIL", "too slow"), candidate_outcomes=1000)

    assert (action.kind, action.rollout.state) == (ActionKind.ROLL_BACK, State.ROLLED_BACK)
    assert (action.rollout.weight, action.rollout.mirror, action.rollout.version) == (0.0, 0.0, 2)
    assert action.reason == action.rollout.reason == "too slow"


@pytest.mark.parametrize("result", ["PENDING", "ERROR"])
def test_anything_between_pass_and_fail_holds(make_rollout, make_verdict, result):
    """No evidence, no movement: the rollout stays as it was."""
    rollout = make_rollout(1)

    action = advance(rollout, make_verdict(result), candidate_outcomes=1000)

    assert (action.kind, action.rollout) == (ActionKind.HOLD, rollout)


def test_pass_moves_one_step(make_rollout, make_verdict):
    """One PASS is one step, however good the evidence; the step remembers where it began."""
    action = advance(make_rollout(0), make_verdict("PASS"), candidate_outcomes=25)

    assert (action.kind, action.rollout.step, action.rollout.step_began_at) == (ActionKind.ADVANCE, 1, 25)
    assert action.rollout.weight == 0.1


def test_each_step_needs_its_own_requests(make_rollout, make_verdict):
    """Old evidence may decide, but a step must be lived through."""
    rollout = make_rollout(1, step_began_at=25)

    assert advance(rollout, make_verdict("PASS"), candidate_outcomes=44).reason == "19 of 20 requests"
    assert advance(rollout, make_verdict("PASS"), candidate_outcomes=45).kind is ActionKind.ADVANCE


def test_a_gate_waits_for_another_person(make_rollout, make_verdict):
    """PASS does not open a gate, an approval of somebody else does, and approving twice changes nothing."""
    rollout = make_rollout(2)
    assert advance(rollout, make_verdict("PASS"), candidate_outcomes=99).reason == "waits for approval"
    with pytest.raises(IllegalTransition, match="another person"):
        approve(rollout, actor="ann")

    approved = approve(rollout, actor="bob")

    assert approve(approved, actor="bob") is approved
    assert advance(approved, make_verdict("PASS"), candidate_outcomes=99).kind is ActionKind.PROMOTE


def test_entering_the_watch_step_promotes_and_it_never_ends(make_rollout, make_verdict):
    """Promotion is the last move; from then on PASS only holds."""
    promoted = advance(make_rollout(2, approved_steps=(2,)), make_verdict("PASS"), candidate_outcomes=99).rollout

    assert (promoted.state, promoted.weight) == (State.PROMOTED, 1.0)
    assert advance(promoted, make_verdict("PASS"), candidate_outcomes=500).kind is ActionKind.HOLD


@pytest.mark.parametrize("state", [State.ROLLED_BACK, State.ABORTED, State.STOPPED])
@pytest.mark.parametrize("result", ["PASS", "FAIL"])
def test_an_ended_rollout_holds(make_rollout, make_verdict, state, result):
    """No verdict moves it, and it gets no traffic."""
    rollout = make_rollout(1, state=state)

    action = advance(rollout, make_verdict(result), candidate_outcomes=1000)

    assert (action.kind, action.rollout, rollout.weight, rollout.mirror) == (ActionKind.HOLD, rollout, 0.0, 0.0)


def test_ended_rollouts_cannot_be_ended_again_or_approved(make_rollout):
    """Rolling back twice is harmless; aborting or approving what has ended is refused, and so is a step without a gate."""
    ended = roll_back(make_rollout(2), reason="first").rollout

    assert roll_back(ended, reason="second").rollout.reason == "first"
    with pytest.raises(IllegalTransition, match="already"):
        abort(ended, reason="late")
    with pytest.raises(IllegalTransition, match="no approval"):
        approve(ended, actor="bob")
    with pytest.raises(IllegalTransition, match="no approval"):
        approve(make_rollout(1), actor="bob")


@settings(max_examples=200, deadline=None)
@given(commands=COMMANDS)
def test_no_path_leaves_a_terminal_state(commands):
    """Whatever happens in whatever order: ended stays ended at weight 0, steps only grow, versions never shrink."""
    steps = (Step(kind=StepKind.CANARY, weight=0.1, gate=True), Step(kind=StepKind.WATCH, weight=1.0))
    rollout = Rollout(id="r", baseline="a", candidate="b", policy_digest="d", pipeline="p", steps=steps, requested_by="ann")
    seen = 0
    for command, more in commands:
        before, seen = rollout, seen + more
        rollout = _apply(rollout, command, seen)
        assert rollout.version >= before.version
        assert rollout.step >= before.step
        assert before.state not in TERMINAL or (rollout == before and rollout.weight == 0.0)


def _apply(rollout, command, seen):
    from datetime import UTC, datetime  # noqa: PLC0415

    from specops.core.verdict import Verdict  # noqa: PLC0415

    try:
        if command == "approve":
            return approve(rollout, actor="bob")
        if command == "abort":
            return abort(rollout, reason="by hand")
    except IllegalTransition:
        return rollout
    verdict = Verdict(result=command, findings=(), policy_digest="d", outcomes=seen, at=datetime(2026, 1, 1, tzinfo=UTC))
    return advance(rollout, verdict, candidate_outcomes=seen).rollout


def test_a_record_restores_the_rollout(make_rollout):
    """Store and restore are inverse."""
    rollout = make_rollout(2, state=State.PAUSED, approved_steps=(2,), reason="x")

    assert Rollout.from_record(rollout.to_record()) == rollout
    assert (rollout.is_terminal, make_rollout(1).mirror) == (False, 0.0)


@pytest.mark.parametrize(
    "changes",
    [{"weight": 1.5}, {"mirror": -0.1}, {"kind": StepKind.SHADOW, "weight": 0.1, "mirror": 0.5}, {"kind": StepKind.SHADOW}],
)
def test_an_impossible_step_is_refused(changes):
    """Shares are in [0, 1] and shadow carries no live traffic."""
    with pytest.raises(InvalidRecord):
        Step(**({"kind": StepKind.CANARY} | changes))


@pytest.mark.parametrize("changes", [{"steps": ()}, {"step": 4}, {"candidate": "a"}])
def test_a_plan_that_cannot_be_walked_is_refused(make_rollout, changes):
    """No steps, a step beyond the last, or a release against itself."""
    with pytest.raises(InvalidRecord):
        make_rollout(**changes)
