"""`advance`, the only function that decides what happens to traffic, and what follows from its decisions.

Called by `control.act` after each judgement; it reads no clock and touches nothing. FAIL beats everything and works from every
state that is not terminal, as far as the rung of the recovery ladder says (`core.ladder`); only PASS moves forward;
INCONCLUSIVE pauses a trial; PENDING and ERROR hold. After a fallback, mirrored requests alone can bring the trial back. The
rollout itself is in `core.plan`, what a person may do by hand in `core.steer`.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from specops.core.ladder import RUNG_SEVERITY, Rung, has_recovered, is_cool
from specops.core.plan import PROBE_MIRROR, TERMINAL, Rollout, State, Step, StepKind
from specops.core.verdict import Result, Verdict
from specops.errors import IllegalTransition

__all__ = [
    "PROBE_MIRROR", "TERMINAL", "Action", "ActionKind", "Rollout", "State", "Step", "StepKind", "abort", "advance", "approve",
    "may_move", "roll_back",
]  # fmt: skip
RECOVERY = "fallback:recovery"  # what a person is called about, beside the names of checks


class ActionKind(StrEnum):
    """What is to be done to traffic."""

    ADVANCE = "ADVANCE"
    HOLD = "HOLD"
    PAUSE = "PAUSE"
    PROMOTE = "PROMOTE"
    ROLL_BACK = "ROLL_BACK"
    FALL_BACK = "FALL_BACK"
    ASK_MORE = "ASK_MORE"
    ESCALATE = "ESCALATE"
    STOP = "STOP"
    PROBE = "PROBE"
    RECOVER = "RECOVER"
    SHED = "SHED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """A decision: the rollout as it shall be, and why. HOLD leaves it as it was. `about`: what a person is called about."""

    kind: ActionKind
    rollout: Rollout
    reason: str
    about: str = ""


def advance(rollout: Rollout, verdict: Verdict, *, candidate_outcomes: int) -> Action:
    """Decide the next action from the rollout and the newest verdict.

    1. A terminal rollout holds.
    2. FAIL takes its rung of the ladder from every other state.
    3. A fallen-back rollout waits to recover, a paused one for a person.
    4. A check that has waited too long pauses a trial, once per step: who resumes it knows that. Anything else but PASS holds.
    5. A step with too few requests or a closed gate holds.
    6. PASS moves one step on; entering the watch step promotes. The watch step itself ends only by hand.

    Args:
        rollout: the rollout as stored.
        verdict: the policy's verdict on all evidence so far.
        candidate_outcomes: outcomes of the candidate so far, shadow included.
    """
    if rollout.is_terminal:
        return _hold(rollout, f"rollout is {rollout.state}")
    if verdict.result is Result.FAIL:
        return _descend(rollout, verdict, candidate_outcomes)
    if rollout.state is State.FALLEN_BACK:
        return _wait_to_recover(rollout, verdict)
    if rollout.state is State.PAUSED:
        return _hold(rollout, f"rollout is {rollout.state}")
    if verdict.result is Result.INCONCLUSIVE:
        return _wait(rollout, verdict)
    if verdict.result is not Result.PASS:
        return _hold(rollout, verdict.reason or f"verdict {verdict.result}")
    return _climb(rollout, verdict, candidate_outcomes)


def may_move(rollout: Rollout, result: Result, *, candidate_outcomes: int) -> bool:
    """Tell from the result alone whether `advance` could do anything but hold; True also where only the verdict tells."""
    if rollout.is_terminal:
        return False
    if result is Result.FAIL or rollout.state is State.FALLEN_BACK:
        return True
    if rollout.state is State.PAUSED:
        return False
    if result is Result.INCONCLUSIVE:
        return rollout.state is State.RUNNING and not rollout.knows_inconclusive
    return result is Result.PASS and not _blocked(rollout, candidate_outcomes)


def _blocked(rollout: Rollout, candidate_outcomes: int) -> str:
    """Return what keeps a PASS from the next step, or nothing."""
    seen = candidate_outcomes - rollout.step_began_at
    if seen < rollout.required_requests:
        return f"{seen} of {rollout.required_requests} requests"
    if rollout.current.gate and rollout.step not in rollout.approved_steps:
        return "waits for approval"
    return "last step, watching" if rollout.step + 1 == len(rollout.steps) else ""


def _wait(rollout: Rollout, verdict: Verdict) -> Action:
    """Hold, but not for ever: a trial is paused when a check has waited longer than it may."""
    if not verdict.overdue or rollout.state is not State.RUNNING or rollout.knows_inconclusive:
        return _hold(rollout, verdict.reason)
    why = "; ".join(f.reason for f in verdict.overdue)
    return _move(rollout, ActionKind.PAUSE, why, state=State.PAUSED, knows_inconclusive=True)


def _climb(rollout: Rollout, verdict: Verdict, candidate_outcomes: int) -> Action:
    """Take the next step on PASS, if the present one was lived through and its gate is open."""
    if blocked := _blocked(rollout, candidate_outcomes):
        return _hold(rollout, blocked)
    is_last = rollout.steps[rollout.step + 1].kind is StepKind.WATCH
    return _move(
        rollout,
        ActionKind.PROMOTE if is_last else ActionKind.ADVANCE,
        verdict.reason,
        state=State.PROMOTED if is_last else rollout.state,
        step=rollout.step + 1,
        step_began_at=candidate_outcomes,
        extra_requests=0,
        knows_inconclusive=False,
    )


def _descend(rollout: Rollout, verdict: Verdict, candidate_outcomes: int) -> Action:
    """Take the rung that the failed checks ask for; once fallen back, only a harder one than that."""
    rung = verdict.action or Rung.ROLL_BACK
    if rollout.state is State.FALLEN_BACK and RUNG_SEVERITY[rung] <= RUNG_SEVERITY[Rung.FALLBACK]:
        return _wait_to_recover(rollout, verdict)
    match rung:
        case Rung.ROLL_BACK:
            return roll_back(rollout, reason=verdict.reason)
        case Rung.STOP:
            return _move(rollout, ActionKind.STOP, verdict.reason, state=State.STOPPED)
        case Rung.SHED if (limit := _load_limit(rollout, verdict)) is not None:
            return _shed(rollout, verdict, limit)
        case Rung.FALLBACK | Rung.SHED | Rung.SHRINK_K:
            return _fall_back(rollout, rung, verdict)
        case Rung.ASK_MORE if rollout.state is State.RUNNING and rollout.extra_requests == 0:
            extra = rollout.current.min_requests
            return _move(rollout, ActionKind.ASK_MORE, f"asks for {extra} more: {verdict.reason}", extra_requests=extra)
        case Rung.ABSTAIN:
            return _wait(rollout, verdict)
        case Rung.ASK_MORE if candidate_outcomes - rollout.step_began_at < rollout.required_requests:
            return _wait(rollout, verdict)
        case _:
            return _escalate(rollout, verdict)


def _load_limit(rollout: Rollout, verdict: Verdict) -> int | None:
    """Return below how many requests in flight to speculate from now on; None if no check says so, or it has been done."""
    limits = [f.above + 1 for f in verdict.deciding if f.action is Rung.SHED and f.above is not None]
    limit = min(limits, default=None)
    return None if limit is None or (rollout.shed_below is not None and limit >= rollout.shed_below) else limit


def _shed(rollout: Rollout, verdict: Verdict, limit: int) -> Action:
    """Take the candidate out of high load and go on where the rollout stands, on evidence from low load alone."""
    why = f"speculates only below {limit} requests in flight: {verdict.reason}"
    return _move(
        rollout, ActionKind.SHED, why, shed_below=limit, evidence=rollout.evidence + 1, evidence_since=verdict.at,
        step_began_at=0, extra_requests=0, trial=rollout.trial + 1,
    )  # fmt: skip


def _fall_back(rollout: Rollout, rung: Rung, verdict: Verdict) -> Action:
    """Take the live share away, keep the rollout, and begin an attempt to recover on evidence of its own."""
    reason = verdict.reason
    why = reason if rung is Rung.FALLBACK else f"fallback, as {rung} can't be carried out here: {reason}"
    return _probe(rollout, ActionKind.FALL_BACK, verdict, why, state=State.FALLEN_BACK, falls=rollout.falls + 1)


def _wait_to_recover(rollout: Rollout, verdict: Verdict) -> Action:
    """Decide for a rollout without live share, from mirrored requests since the fall."""
    if rollout.falls > rollout.max_falls:
        why = f"fell back {rollout.falls} times, {rollout.max_falls} may recover; end it by hand"
        return _call(rollout, (RECOVERY,), why)
    since = rollout.evidence_since
    if since is None:  # it fell before recovery was automatic, on evidence that it shares with the fall
        return _hold(rollout, "rollout is fallen_back; retry it by hand")
    if not is_cool(since=since, falls=rollout.falls, cool_down_s=rollout.cool_down_s, now=verdict.at):
        return _hold(rollout, "fallen back, cools down")
    if verdict.result is Result.FAIL:
        return _probe(rollout, ActionKind.PROBE, verdict, f"attempt {rollout.attempt} to recover failed: {verdict.reason}")
    claims = [(f.pass_e_value, f.pass_threshold) for f in verdict.deciding]
    if verdict.result is Result.PASS and has_recovered(claims, attempt=rollout.attempt):
        reason = f"recovered on mirrored requests, begins again at its first step: {verdict.reason}"
        return Action(kind=ActionKind.RECOVER, rollout=rollout.begun_anew(reason=reason, since=verdict.at), reason=reason)
    return _hold(rollout, f"fallen back, attempt {rollout.attempt} to recover says {verdict.result}")


def _probe(rollout: Rollout, kind: ActionKind, verdict: Verdict, reason: str, **changes: Any) -> Action:  # noqa: ANN401  # fields of Rollout
    """Begin an attempt to recover on new evidence."""
    anew = {"attempt": rollout.attempt + 1, "evidence": rollout.evidence + 1, "evidence_since": verdict.at, "step_began_at": 0}
    return _move(rollout, kind, reason, **anew, **changes)


def _escalate(rollout: Rollout, verdict: Verdict) -> Action:
    """Call a person about each failing check that asks for more than to abstain."""
    return _call(rollout, tuple(f.check for f in verdict.deciding if f.action is not Rung.ABSTAIN), verdict.reason)


def _call(rollout: Rollout, about: tuple[str, ...], reason: str) -> Action:
    """Call a person once about each thing, one thing at a time as each has its owner, and leave the traffic as it is."""
    new = tuple(name for name in about if name not in rollout.escalated)
    if not new:
        return _hold(rollout, f"waits for a person: {reason}")
    called = _move(rollout, ActionKind.ESCALATE, reason, escalated=(*rollout.escalated, new[0]))
    return replace(called, about=new[0])


def _hold(rollout: Rollout, reason: str) -> Action:
    return Action(kind=ActionKind.HOLD, rollout=rollout, reason=reason)


def _move(rollout: Rollout, kind: ActionKind, reason: str, **changes: Any) -> Action:  # noqa: ANN401  # fields of Rollout
    why = rollout.reason if kind in {ActionKind.ADVANCE, ActionKind.PROMOTE} else reason
    return Action(kind=kind, rollout=replace(rollout, version=rollout.version + 1, reason=why, **changes), reason=reason)


def roll_back(rollout: Rollout, *, reason: str) -> Action:
    """Return the action that sends all traffic to the baseline; idempotent on a terminal rollout."""
    if rollout.is_terminal:
        return Action(kind=ActionKind.HOLD, rollout=rollout, reason=f"rollout is {rollout.state}")
    ended = replace(rollout, state=State.ROLLED_BACK, reason=reason, version=rollout.version + 1)
    return Action(kind=ActionKind.ROLL_BACK, rollout=ended, reason=reason)


def abort(rollout: Rollout, *, reason: str) -> Rollout:
    """Return the rollout ended by hand.

    Raises:
        IllegalTransition: it has already ended.
    """
    if rollout.is_terminal:
        raise IllegalTransition(f"rollout {rollout.id} is {rollout.state} already; start a new one")
    return replace(rollout, state=State.ABORTED, reason=reason, version=rollout.version + 1)


def approve(rollout: Rollout, *, actor: str) -> Rollout:
    """Return the rollout with its present step approved.

    Raises:
        IllegalTransition: it has ended, the step has no gate, or the requester approves itself.
    """
    if rollout.is_terminal or not rollout.current.gate:
        proposed = f"; its proposed policy: specops rollout approve {rollout.id} --amendment {rollout.amendment[:12]}"
        raise IllegalTransition(
            f"rollout {rollout.id} waits for no approval at step {rollout.step} ({rollout.state})"
            + (proposed if rollout.amendment and not rollout.is_terminal else "")
        )
    if actor == rollout.requested_by:
        raise IllegalTransition(f"rollout {rollout.id} was requested by {actor}; another person must approve it")
    if rollout.step in rollout.approved_steps:
        return rollout
    return replace(rollout, approved_steps=(*rollout.approved_steps, rollout.step), version=rollout.version + 1)
