"""Starting rollouts and changing them by hand: load, ask `core.rollout`, save with an audit entry."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from specops.control.alarms import settle
from specops.control.amend import begin_evidence
from specops.control.ports import Store
from specops.control.record import record_action, return_alias
from specops.control.verify_record import require_lossless
from specops.core.lossy import require_exact
from specops.core.policy import Policy
from specops.core.policy_lint import require_sound
from specops.core.rollout import Rollout, State, Step, abort, approve, roll_back
from specops.core.steer import clear, finish, pause, resume, retry
from specops.errors import IllegalTransition


class Steer(StrEnum):
    """What a person does to a rollout; the value is the end of the audit tag `rollout:state:...`."""

    PAUSE = "held"
    RESUME = "resumed"
    RETRY = "retried"
    FINISH = "finished"
    CLEAR = "cleared"


_CHANGES: dict[Steer, Callable[[Rollout, str, datetime], Rollout]] = {
    Steer.PAUSE: lambda rollout, reason, _: pause(rollout, reason=reason),
    Steer.RESUME: lambda rollout, reason, _: resume(rollout, reason=reason),
    Steer.RETRY: lambda rollout, reason, now: retry(rollout, reason=reason, at=now),
    Steer.FINISH: lambda rollout, reason, _: finish(rollout, reason=reason),
    Steer.CLEAR: lambda rollout, reason, _: clear(rollout, reason=reason),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a rollout is asked to do. Baseline and candidate are release ids or names.

    `candidate_facts` is what the candidate's endpoint says about itself; looked at where the policy asks for a verification.
    """

    rollout_id: str
    baseline: str
    candidate: str
    pipeline: str
    steps: tuple[Step, ...]
    policy: Policy
    policy_text: str
    baseline_url: str
    candidate_url: str
    candidate_facts: Mapping[str, Any] = field(default_factory=dict)


def start(store: Store, plan: Plan, *, actor: str, now: datetime) -> Rollout:
    """Register policy and rollout before the first outcome (M13) and return the rollout.

    Raises:
        IllegalTransition: another rollout is still running, the candidate was stopped and nobody cleared it, or the policy
            asks for a verification and none of the candidate's is in force for its endpoint.
        IncompatibleRelease: the candidate's acceptance is lossy, and the policy does not allow that setting by name.
        PolicyError: no result could fail the policy, nobody owns a check, or another error of `policy lint`.
    """
    require_sound(plan.policy)
    with store.begin() as unit:
        running = unit.rollouts.active()
        if running:
            raise IllegalTransition(
                f"rollout {running[0].id} is {running[0].state}; abort it first: "
                f"specops rollout abort {running[0].id} --reason ..."
            )
        baseline, candidate = unit.releases.get(plan.baseline), unit.releases.get(plan.candidate)
        stopped = [r for r in unit.rollouts.all() if r.state is State.STOPPED and not r.is_cleared]
        for earlier in stopped:
            if earlier.candidate == candidate.id:
                raise IllegalTransition(
                    f"candidate {candidate.id} was stopped in rollout {earlier.id}: {earlier.reason}; a person must clear it: "
                    f"specops rollout clear {earlier.id} --reason ..."
                )
        require_exact(candidate, plan.policy.allow_lossy)
        if plan.policy.lossless is not None:
            require_lossless(plan.policy.lossless, candidate, unit.evidence.of(candidate.id), plan.candidate_facts)
        unit.policies.add(plan.policy.digest, plan.policy.name, plan.policy_text)
        rollout = Rollout(
            id=plan.rollout_id,
            baseline=baseline.id,
            candidate=candidate.id,
            policy_digest=plan.policy.digest,
            pipeline=plan.pipeline,
            steps=plan.steps,
            requested_by=actor,
            started_at=now,
            trial=1 + max((r.trial for r in unit.rollouts.all() if r.candidate == candidate.id), default=0),
        )
        unit.rollouts.add(rollout)
        unit.evidence.add(
            rollout.id, "endpoints", {"baseline_url": plan.baseline_url, "candidate_url": plan.candidate_url}, now
        )
        unit.audit.append(
            tag="policy:thresholds:registered",
            actor=actor,
            subject=plan.policy.digest,
            payload={"name": plan.policy.name, "rollout": rollout.id},
            at=now,
        )
        unit.audit.append(
            tag="rollout:plan:started",
            actor=actor,
            subject=rollout.id,
            at=now,
            payload={
                "baseline": baseline.id,
                "candidate": candidate.id,
                "policy": plan.policy.digest,
                "pipeline": plan.pipeline,
                "trial": rollout.trial,
                "steps": [f"{s.kind} weight {s.weight} mirror {s.mirror} min {s.min_requests}" for s in plan.steps],
            },
        )
    return rollout


def abort_by_hand(store: Store, rollout_id: str, *, reason: str, actor: str, now: datetime) -> Rollout:
    """End a rollout; its traffic goes to the baseline when control next passes.

    Raises:
        IllegalTransition: it has ended already.
    """
    with store.begin() as unit:
        before = unit.rollouts.get(rollout_id)
        ended = abort(before, reason=reason)
        unit.rollouts.save(ended)
        unit.audit.append(tag="rollout:plan:aborted", actor=actor, subject=rollout_id, payload={"reason": reason}, at=now)
        if before.state is State.PROMOTED:
            return_alias(unit, ended, before=before, actor=actor, at=now)
        settle(unit, ended, now)
    return ended


def roll_back_by_hand(store: Store, rollout_id: str, *, reason: str, actor: str, now: datetime) -> Rollout:
    """Roll back on a person's word, with the same side effects as a FAIL."""
    with store.begin() as unit:
        before = unit.rollouts.get(rollout_id)
        if before.is_terminal:
            raise IllegalTransition(f"rollout {rollout_id} is {before.state} already")
        action = roll_back(before, reason=f"by {actor}: {reason}")
        unit.rollouts.save(action.rollout)
        record_action(unit, action, before=before, actor=actor, at=now, verdict=None, deciding=None)
    return action.rollout


def approve_by_hand(store: Store, rollout_id: str, *, actor: str, now: datetime) -> Rollout:
    """Approve the gate that a rollout waits at.

    Raises:
        IllegalTransition: nothing waits, or the requester approves itself.
    """
    with store.begin() as unit:
        before = unit.rollouts.get(rollout_id)
        approved = approve(before, actor=actor)
        if approved == before:
            return before  # approved already
        unit.rollouts.save(approved)
        unit.audit.append(tag="rollout:gate:approved", actor=actor, subject=rollout_id, payload={"step": approved.step}, at=now)
    return approved


def steer(store: Store, rollout_id: str, how: Steer, *, reason: str, actor: str, now: datetime) -> Rollout:
    """Pause, resume, retry, finish or clear a rollout on a person's word; control follows at its next pass.

    Raises:
        IllegalTransition: its state does not allow that.
    """
    with store.begin() as unit:
        before = unit.rollouts.get(rollout_id)
        after = _CHANGES[how](before, reason, now)
        unit.rollouts.save(after)
        if after.evidence != before.evidence:
            begin_evidence(unit, after)
        payload = {"reason": reason, "state": after.state, "from_state": before.state, "version": after.version}
        unit.audit.append(tag=f"rollout:state:{how}", actor=actor, subject=rollout_id, payload=payload, at=now)
        settle(unit, after, now)
    return after
