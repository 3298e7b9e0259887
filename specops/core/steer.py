"""What a person may do to a rollout by hand: pause, resume, retry, finish, clear, amend its policy. Pure.

Called by `control.rollouts`, which saves the result with its audit entry; what policy does is `core.rollout.advance`. A person
can hold, go on from a hold, begin the trial again and end it well; nobody can move a step forward without evidence.
"""

from dataclasses import replace
from datetime import datetime

from specops.core.plan import Rollout, State
from specops.errors import IllegalTransition

_DIGITS = 8  # of a digest, enough to name one of two policies


def pause(rollout: Rollout, *, reason: str) -> Rollout:
    """Return the running rollout held at its step; it keeps its shares, and a FAIL still acts.

    Raises:
        IllegalTransition: it is not running.
    """
    _expect(rollout, State.RUNNING, "pause")
    return replace(rollout, state=State.PAUSED, reason=reason, version=rollout.version + 1)


def resume(rollout: Rollout, *, reason: str) -> Rollout:
    """Return the paused rollout running again; policy does not pause a step twice because nothing was concluded.

    Raises:
        IllegalTransition: it is not paused.
    """
    _expect(rollout, State.PAUSED, "resume")
    return replace(rollout, state=State.RUNNING, reason=reason, version=rollout.version + 1)


def retry(rollout: Rollout, *, reason: str, at: datetime) -> Rollout:
    """Return the rollout at its first step on new evidence, with no gate approved; old outcomes count for nothing.

    Args:
        rollout: the rollout as stored.
        reason: why.
        at: now, UTC; outcomes that ended before it belong to the trial before, also those that nobody has read yet.

    Raises:
        IllegalTransition: it is neither fallen back nor paused, or has fallen back more than `max_falls` times.
    """
    _expect(rollout, State.FALLEN_BACK, "retry", State.PAUSED)
    if rollout.falls > rollout.max_falls:
        raise IllegalTransition(
            f"rollout {rollout.id} fell back {rollout.falls} times, {rollout.max_falls} may be retried; "
            f"end it: specops rollout rollback {rollout.id} --reason ..."
        )
    return replace(rollout.begun_anew(reason=reason, since=at), shed_below=None)


def finish(rollout: Rollout, *, reason: str) -> Rollout:
    """Return the promoted rollout ended well: everybody stays on the candidate, and so does the alias.

    Raises:
        IllegalTransition: it is not promoted.
    """
    _expect(rollout, State.PROMOTED, "finish")
    return replace(rollout, state=State.FINISHED, reason=reason, version=rollout.version + 1)


def clear(rollout: Rollout, *, reason: str) -> Rollout:
    """Return the stopped rollout cleared, so that its candidate may be tried again; it stays stopped itself.

    Raises:
        IllegalTransition: it is not stopped, or cleared already.
    """
    _expect(rollout, State.STOPPED, "clear")
    if rollout.is_cleared:
        raise IllegalTransition(f"rollout {rollout.id} is cleared already; start a new rollout of {rollout.candidate}")
    return replace(rollout, is_cleared=True, reason=f"{rollout.reason}; cleared: {reason}", version=rollout.version + 1)


def propose(rollout: Rollout, *, digest: str, actor: str) -> Rollout:
    """Return the rollout with a new policy proposed; it judges nothing before another person approved it.

    Raises:
        IllegalTransition: the rollout has ended, or has that policy already.
    """
    if rollout.is_terminal:
        raise IllegalTransition(f"rollout {rollout.id} is {rollout.state}; start a new one with the new policy")
    if digest == rollout.policy_digest:
        raise IllegalTransition(f"rollout {rollout.id} is judged by policy {digest[:12]} already; change the file first")
    return replace(rollout, amendment=digest, amendment_by=actor, version=rollout.version + 1)


def amend(rollout: Rollout, *, digest: str, actor: str, at: datetime) -> Rollout:
    """Return the rollout under its proposed policy, where it stands, on evidence from `at` on; gates must be approved again.

    Args:
        rollout: the rollout as stored.
        digest: the policy that is approved, at least 8 digits of it: a proposal replaced meanwhile is not approved by mistake.
        actor: who approves.
        at: now, UTC.

    Raises:
        IllegalTransition: the rollout has ended, no such policy is proposed, or the proposer approves itself.
    """
    if rollout.is_terminal:
        raise IllegalTransition(f"rollout {rollout.id} is {rollout.state} already; its policy judges nothing any more")
    if not rollout.amendment or len(digest) < _DIGITS or not rollout.amendment.startswith(digest):
        proposed = f"policy {rollout.amendment[:12]}" if rollout.amendment else "none"
        raise IllegalTransition(
            f"rollout {rollout.id} has no proposed policy {digest[:64]!r}, got at least {_DIGITS} digits of: {proposed}; "
            f"see specops rollout status {rollout.id}"
        )
    if actor == rollout.amendment_by:
        raise IllegalTransition(f"policy {digest[:12]} of {rollout.id} was proposed by {actor}; another person must approve it")
    return replace(
        rollout,
        policy_digest=rollout.amendment,
        amendment="",
        amendment_by="",
        evidence=rollout.evidence + 1,
        evidence_since=at,
        step_began_at=0,
        approved_steps=(),
        extra_requests=0,
        escalated=(),
        knows_inconclusive=False,
        attempt=rollout.attempt + (rollout.state is State.FALLEN_BACK),
        trial=rollout.trial + 1,
        shed_below=None,
        version=rollout.version + 1,
    )


def _expect(rollout: Rollout, state: State, verb: str, *others: State) -> None:
    if rollout.state not in (state, *others):
        raise IllegalTransition(
            f"rollout {rollout.id} is {rollout.state}, expected {' or '.join((state, *others))} to {verb} it; "
            f"see specops rollout status {rollout.id}"
        )
