"""What `advance` does on each rung of the ladder: FAIL beats everything, only PASS climbs, falls are bounded."""

from datetime import UTC, datetime, timedelta
from functools import partial
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specops.core import steer
from specops.core.ladder import Rung, most_severe
from specops.core.rollout import PROBE_MIRROR, TERMINAL, ActionKind, Rollout, State, Step, StepKind, advance, approve, may_move
from specops.core.verdict import Result
from specops.errors import IllegalTransition, InvalidRecord

FALLING = (Rung.FALLBACK, Rung.SHED, Rung.SHRINK_K)


T0 = datetime(2026, 1, 2, tzinfo=UTC)
LONG = timedelta(days=1)


def failing(rung, check="latency", at=T0, *, is_overdue=False, above=None):
    """Return a FAIL that asks for a rung; `advance` reads no more of a verdict than this."""
    finding = SimpleNamespace(check=check, action=rung, pass_e_value=None, pass_threshold=None, reason="late", above=above)
    overdue = (finding,) if is_overdue else ()
    return SimpleNamespace(result=Result.FAIL, reason="too slow", deciding=(finding,), action=rung, at=at, overdue=overdue)


def saying(result, *e_values, at=T0):
    """Return a verdict whose findings pass at 100, with these e-values."""
    deciding = tuple(SimpleNamespace(check="latency", pass_e_value=e, pass_threshold=100.0) for e in e_values)
    overdue = (SimpleNamespace(reason="late"),) if result is Result.INCONCLUSIVE else ()
    return SimpleNamespace(result=result, reason="", deciding=deciding, action=None, at=at, overdue=overdue)


def test_the_most_severe_rung_wins():
    """Several failing checks take the hardest rung; none named is a roll-back."""
    assert most_severe([Rung.ABSTAIN, Rung.STOP, Rung.FALLBACK]) is Rung.STOP
    assert most_severe([]) is Rung.ROLL_BACK


@pytest.mark.parametrize("rung", FALLING)
def test_a_fallback_takes_the_live_share_and_keeps_probing(make_rollout, rung):
    """Nobody is served by the candidate, a little is mirrored, and the rollout has not ended."""
    action = advance(make_rollout(1), failing(rung), candidate_outcomes=9)

    fallen = action.rollout
    assert (action.kind, fallen.state, fallen.falls) == (ActionKind.FALL_BACK, State.FALLEN_BACK, 1)
    assert (fallen.weight, fallen.mirror, fallen.is_terminal) == (0.0, PROBE_MIRROR, False)
    assert (f"as {rung} can't" in action.reason) is (rung is not Rung.FALLBACK)


def test_a_fallen_rollout_falls_once_and_no_plain_pass_brings_it_back(make_rollout):
    """The same FAIL again changes nothing, PASS at the bar of a trial neither, a harder rung still acts."""
    fallen = advance(make_rollout(1), failing(Rung.FALLBACK), candidate_outcomes=9).rollout

    assert advance(fallen, failing(Rung.FALLBACK), candidate_outcomes=10).rollout == fallen
    assert advance(fallen, saying(Result.PASS, 101.0, at=T0 + LONG), candidate_outcomes=999).rollout == fallen
    assert advance(fallen, failing(Rung.ROLL_BACK), candidate_outcomes=10).kind is ActionKind.ROLL_BACK


@pytest.mark.parametrize("state", [State.RUNNING, State.PAUSED, State.PROMOTED])
def test_a_check_of_high_load_takes_the_candidate_out_of_it_once(make_rollout, state):
    """The rollout goes on on evidence from low load; failing there again is a fallback, and a retry lifts the limit."""
    shed = advance(make_rollout(1, state=state), failing(Rung.SHED, above=8), candidate_outcomes=9)
    again = advance(shed.rollout, failing(Rung.SHED, above=8), candidate_outcomes=9)
    lower = advance(shed.rollout, failing(Rung.SHED, above=3), candidate_outcomes=9)

    assert (shed.kind, shed.rollout.state, shed.rollout.shed_below) == (ActionKind.SHED, state, 9)
    assert (shed.rollout.evidence, shed.rollout.evidence_since, shed.rollout.trial) == (2, T0, 2)
    assert (again.kind, lower.rollout.shed_below) == (ActionKind.FALL_BACK, 4)
    assert steer.retry(again.rollout, reason="other draft", at=T0).shed_below is None


@pytest.mark.parametrize("state", [State.RUNNING, State.PAUSED, State.PROMOTED, State.FALLEN_BACK])
def test_stop_ends_it_from_every_state(make_rollout, state):
    """The hardest rung needs no particular state."""
    action = advance(make_rollout(1, state=state), failing(Rung.STOP), candidate_outcomes=9)

    assert (action.kind, action.rollout.state, action.rollout.weight) == (ActionKind.STOP, State.STOPPED, 0.0)


def test_abstain_holds(make_rollout):
    """Nothing moves and nobody is called."""
    rollout = make_rollout(1)

    assert advance(rollout, failing(Rung.ABSTAIN), candidate_outcomes=99).rollout == rollout


@pytest.mark.parametrize("rung", [Rung.ABSTAIN, Rung.ASK_MORE])
def test_a_step_that_fails_and_holds_is_paused_when_the_wait_is_over(make_rollout, rung):
    """Silence must end: somebody hears of it once, and who resumes it knows."""
    rollout = make_rollout(1, extra_requests=20)
    paused = advance(rollout, failing(rung, is_overdue=True), candidate_outcomes=1)

    assert (paused.kind, paused.rollout.state, paused.reason) == (ActionKind.PAUSE, State.PAUSED, "late")
    resumed = steer.resume(paused.rollout, reason="known")
    assert advance(resumed, failing(rung, is_overdue=True), candidate_outcomes=1).rollout == resumed


def test_more_evidence_is_asked_for_once_then_a_person(make_rollout):
    """The step is doubled; until then a FAIL holds; after it the owner is called, once for a check."""
    asked = advance(make_rollout(1), failing(Rung.ASK_MORE), candidate_outcomes=20)
    assert (asked.kind, asked.rollout.required_requests) == (ActionKind.ASK_MORE, 40)

    assert advance(asked.rollout, failing(Rung.ASK_MORE), candidate_outcomes=39).kind is ActionKind.HOLD
    called = advance(asked.rollout, failing(Rung.ASK_MORE), candidate_outcomes=40)

    assert (called.kind, called.rollout.escalated, called.rollout.weight) == (ActionKind.ESCALATE, ("latency",), 0.1)
    assert advance(called.rollout, failing(Rung.ESCALATE), candidate_outcomes=41).kind is ActionKind.HOLD
    assert advance(called.rollout, failing(Rung.ESCALATE, "errors"), candidate_outcomes=41).kind is ActionKind.ESCALATE


def test_two_failing_checks_call_their_owners_one_after_the_other(make_rollout):
    """Each call names one check and not the one that asks for nothing; when all were called, it holds."""
    verdict = failing(Rung.ESCALATE, "errors")
    verdict.deciding += (failing(Rung.ABSTAIN).deciding[0], failing(Rung.ASK_MORE, "ttft").deciding[0])

    first = advance(make_rollout(1), verdict, candidate_outcomes=99)
    second = advance(first.rollout, verdict, candidate_outcomes=99)

    assert [(a.about, a.rollout.escalated) for a in (first, second)] == [("errors", ("errors",)), ("ttft", ("errors", "ttft"))]
    assert advance(second.rollout, verdict, candidate_outcomes=99).kind is ActionKind.HOLD


def test_a_pause_by_hand_knows_of_nothing(make_rollout):
    """Resumed after a break, INCONCLUSIVE still pauses the step."""
    resumed = steer.resume(steer.pause(make_rollout(1), reason="lunch"), reason="back")

    assert advance(resumed, saying(Result.INCONCLUSIVE), candidate_outcomes=99).kind is ActionKind.PAUSE


def test_inconclusive_pauses_until_a_person_resumes(make_rollout):
    """The pause keeps the share; resumed, the same word does not pause this step again, and PASS goes on."""
    paused = advance(make_rollout(1), saying(Result.INCONCLUSIVE), candidate_outcomes=99).rollout
    assert (paused.state, paused.weight) == (State.PAUSED, 0.1)
    assert advance(paused, saying(Result.PASS), candidate_outcomes=99).kind is ActionKind.HOLD

    resumed = steer.resume(paused, reason="seen")

    assert advance(resumed, saying(Result.INCONCLUSIVE), candidate_outcomes=99).kind is ActionKind.HOLD
    assert advance(resumed, saying(Result.PASS), candidate_outcomes=99).kind is ActionKind.ADVANCE


@pytest.mark.parametrize("rung", FALLING)
def test_a_gate_that_waits_can_still_fall_back(make_rollout, rung):
    """Waiting for a person is no shelter from evidence."""
    waiting = make_rollout(2)
    assert advance(waiting, saying(Result.PASS), candidate_outcomes=99).reason == "waits for approval"

    assert advance(waiting, failing(rung), candidate_outcomes=99).rollout.state is State.FALLEN_BACK


def test_a_retry_begins_anew_and_is_bounded(make_rollout):
    """First step, new evidence, no approval kept; after `max_falls` retries only an end is left."""
    rollout = make_rollout(2, max_falls=2, approved_steps=(2,))
    for generation in (2, 3):
        rollout = steer.retry(advance(rollout, failing(Rung.FALLBACK), candidate_outcomes=9).rollout, reason="fixed", at=T0)
        assert (rollout.step, rollout.approved_steps, rollout.evidence) == (0, (), 2 * generation - 1)
    fallen = advance(rollout, failing(Rung.FALLBACK), candidate_outcomes=9).rollout

    assert rollout.evidence_since == T0
    with pytest.raises(IllegalTransition, match="fell back 3 times, 2 may be retried"):
        steer.retry(fallen, reason="again", at=T0)


def test_a_promoted_rollout_can_end_well(make_rollout):
    """Finished is terminal and keeps everybody on the candidate."""
    done = steer.finish(make_rollout(3, state=State.PROMOTED), reason="good")

    assert (done.is_terminal, done.weight, done.mirror) == (True, 1.0, 0.0)
    assert advance(done, failing(Rung.STOP), candidate_outcomes=9).rollout == done


def test_hands_are_bound_by_the_state(make_rollout):
    """Each act by hand names the state it needs; a stop is cleared once."""
    running, stopped = make_rollout(1), make_rollout(1, state=State.STOPPED)
    retry = partial(steer.retry, at=T0)
    for act in (steer.resume, retry, steer.finish, steer.clear):
        with pytest.raises(IllegalTransition, match="is running, expected"):
            act(running, reason="x")
    assert steer.pause(running, reason="x").state is State.PAUSED
    cleared = steer.clear(stopped, reason="x")
    assert (cleared.state, cleared.is_cleared) == (State.STOPPED, True)
    with pytest.raises(IllegalTransition, match="cleared already"):
        steer.clear(cleared, reason="x")


def test_a_record_from_before_the_ladder_loads(make_rollout):
    """Fields that an older release did not write take their defaults."""
    rollout = make_rollout(1)
    late = ("evidence", "falls", "max_falls", "extra_requests", "escalated", "knows_inconclusive", "is_cleared")
    late += ("evidence_since", "attempt", "cool_down_s", "amendment", "amendment_by")

    assert Rollout.from_record({k: v for k, v in rollout.to_record().items() if k not in late}) == rollout
    with pytest.raises(InvalidRecord, match="falls"):
        make_rollout(1, falls=-1)
    with pytest.raises(InvalidRecord, match="without zone"):
        make_rollout(1, evidence_since=datetime(2026, 1, 1))  # noqa: DTZ001  # the fault under test


ACTS = [*Result, *Rung, "approve", "pause", "resume", "retry", "finish", "amend"]


@settings(max_examples=300, deadline=None)
@given(acts=st.lists(st.sampled_from(ACTS), min_size=60, max_size=80))
def test_laws_of_the_ladder_over_random_histories(acts):
    """Only PASS climbs, terminal is terminal, falls are bounded, a FAIL never adds live share, a decision repeated holds."""
    steps = (Step(kind=StepKind.CANARY, weight=0.1, gate=True), Step(kind=StepKind.WATCH, weight=1.0))
    rollout = Rollout(id="r", baseline="a", candidate="b", policy_digest="d", pipeline="p", steps=steps, requested_by="ann")
    seen = 0
    for i, act in enumerate(acts):
        before, seen = rollout, seen + 7 * i % 31
        rollout = _apply(rollout, act, seen)
        assert rollout.step <= before.step or act is Result.PASS
        assert before.state not in TERMINAL or rollout == before
        assert rollout.falls <= rollout.max_falls + 1
        assert rollout.evidence >= before.evidence
        assert rollout.policy_digest == before.policy_digest or act == "amend"
        if isinstance(act, Rung) or act is Result.FAIL:
            assert rollout.weight <= before.weight
        assert rollout.version == before.version + (rollout != before)


def _apply(rollout, act, seen):
    if isinstance(act, Result | Rung):
        at = T0 + timedelta(seconds=100 * seen)  # so that cool-downs end now and then
        verdict = failing(act, at=at) if isinstance(act, Rung) else saying(act, 9e9, at=at)
        after = advance(rollout, verdict, candidate_outcomes=seen)
        assert may_move(rollout, verdict.result, candidate_outcomes=seen) or after.kind is ActionKind.HOLD
        climbed = after.kind in {ActionKind.ADVANCE, ActionKind.PROMOTE, ActionKind.RECOVER}
        again = advance(after.rollout, verdict, candidate_outcomes=seen)
        assert climbed or again.kind in {ActionKind.HOLD, ActionKind.ESCALATE}
        return after.rollout
    try:
        at = T0 + timedelta(seconds=100 * seen)
        if act == "amend" and rollout.amendment:
            return steer.amend(rollout, digest=rollout.amendment, actor="eve", at=at)
        if act == "retry":
            return steer.retry(rollout, reason="by hand", at=at)
        if act == "amend":
            return steer.propose(rollout, digest=f"policy{rollout.version:08}", actor="bob")
        return approve(rollout, actor="bob") if act == "approve" else getattr(steer, act)(rollout, reason="by hand")
    except IllegalTransition:
        return rollout
