"""Write down an action: its audit entry and the side effects it owes, in the transaction of whoever decided it.

Called by `control.act` for what the policy decided and by `control.rollouts` for what a person did. Alerts: `control.alarms`.
"""

from datetime import datetime
from typing import Any

from specops.control.alarms import raise_for_action, settle
from specops.control.ports import Unit
from specops.core.outcome import Outcome
from specops.core.rollout import Action, ActionKind, Rollout, State
from specops.core.verdict import Verdict

PRODUCTION = "production"
TAGS = {
    ActionKind.ADVANCE: "rollout:step:advanced",
    ActionKind.PROMOTE: "rollout:release:promoted",
    ActionKind.ROLL_BACK: "rollout:release:rolled_back",
    ActionKind.PAUSE: "rollout:state:paused",
    ActionKind.FALL_BACK: "rollout:release:fallen_back",
    ActionKind.ASK_MORE: "rollout:step:extended",
    ActionKind.ESCALATE: "rollout:person:called",
    ActionKind.STOP: "rollout:release:stopped",
    ActionKind.PROBE: "rollout:recovery:retried",
    ActionKind.RECOVER: "rollout:release:recovered",
    ActionKind.SHED: "rollout:load:limited",
}
LEFT = frozenset({ActionKind.FALL_BACK, ActionKind.ROLL_BACK, ActionKind.STOP})  # the candidate serves nobody any more


def record_action(
    unit: Unit, action: Action, *, before: Rollout, actor: str, at: datetime, verdict: Verdict | None, deciding: Outcome | None
) -> None:
    """Write an action's audit entry and the side effects it owes, in the caller's transaction."""
    rollout = action.rollout
    payload: dict[str, Any] = {
        "action": action.kind,
        "reason": action.reason,
        "step": rollout.step,
        "from_step": before.step,
        "weight": str(rollout.weight),
        "mirror": str(rollout.mirror),
        "state": rollout.state,
        "candidate": rollout.candidate,
        "baseline": rollout.baseline,
        "policy": rollout.policy_digest,
        "version": rollout.version,
        "evidence": rollout.evidence,
    }
    if action.about:
        payload["about"] = action.about
    if verdict is not None:
        payload |= {"verdict": verdict.result, "outcomes": verdict.outcomes}
    if deciding is not None:
        payload |= {"deciding_request": deciding.request_id, "deciding_at": deciding.at.isoformat()}
    unit.audit.append(tag=TAGS[action.kind], actor=actor, subject=rollout.id, payload=payload, at=at)
    if action.kind is ActionKind.PROMOTE:
        _move_alias(unit, rollout, rollout.candidate, actor, at)
    settle(unit, rollout, at)
    raise_for_action(unit, action, verdict, at)
    if action.kind in LEFT:
        return_alias(unit, rollout, before=before, actor=actor, at=at)


def return_alias(unit: Unit, rollout: Rollout, *, before: Rollout, actor: str, at: datetime) -> None:
    """Move the alias to the baseline, unless it is there and the candidate never had it."""
    if unit.aliases.get(PRODUCTION) != rollout.baseline or before.state is State.PROMOTED:
        _move_alias(unit, rollout, rollout.baseline, actor, at)


def _move_alias(unit: Unit, rollout: Rollout, release_id: str, actor: str, at: datetime) -> None:
    unit.aliases.set(PRODUCTION, release_id, actor, at)
    unit.audit.append(
        tag="release:alias:moved", actor=actor, subject=release_id, payload={"alias": PRODUCTION, "rollout": rollout.id}, at=at
    )
    unit.outbox.add(
        "mlflow_alias", f"{rollout.id}:{rollout.version}:{PRODUCTION}", {"alias": PRODUCTION, "release": release_id}, at
    )
