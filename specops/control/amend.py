"""Amend the policy of a rollout: propose, then approve by another person; judged by the new one on new outcomes only (M13).

Called by `specops rollout amend` and `specops rollout approve --amendment`. The rules are in `core.steer`; the control loop
follows at its next pass (`control.act`). Verdicts keep the digest of the policy that gave them.
"""

from datetime import datetime

from specops.control.alarms import settle
from specops.control.ports import Store, Unit
from specops.core.lossy import require_exact
from specops.core.policy import Policy, parse_policy
from specops.core.policy_lint import require_sound
from specops.core.rollout import Rollout
from specops.core.steer import amend, propose
from specops.core.window import Window
from specops.errors import PolicyError


def read_policy(text: str) -> Policy:
    """Return the policy that a stored text declares.

    Raises:
        PolicyError: the text is not YAML, or not a policy that this release understands.
    """
    import yaml  # noqa: PLC0415

    try:
        return parse_policy(yaml.safe_load(text))
    except yaml.YAMLError as exc:
        raise PolicyError(f"a stored policy is not valid YAML: {' '.join(str(exc).split())}; restore it from a backup") from exc


def begin_evidence(unit: Unit, rollout: Rollout) -> None:
    """Empty the stored evidence of a rollout, and keep how far control has read: what came since belongs to the new evidence.

    Called with the rollout as it now is, by whatever begins new evidence by hand. Where control has read nothing yet, nothing
    is stored, and it begins behind what the gateway holds.
    """
    kept = unit.windows.load(rollout.id)
    if kept is None:
        return
    policy = read_policy(unit.policies.get(rollout.policy_digest))
    window = Window.empty(policy, plain=Window.from_record(kept[0]).plain)
    unit.windows.save(rollout.id, window.to_record(), kept[1], kept[2])


def propose_amendment(
    store: Store, rollout_id: str, *, policy: Policy, policy_text: str, reason: str, actor: str, now: datetime
) -> Rollout:
    """Propose a new policy; it takes the place of one proposed earlier, and judges nothing before it is approved.

    Raises:
        IllegalTransition: the rollout has ended, or has that policy already.
        IncompatibleRelease: the candidate's acceptance is lossy, and the new policy does not allow that setting by name.
        PolicyError: the new policy has an error of `policy lint`.
    """
    require_sound(policy)
    with store.begin() as unit:
        before = unit.rollouts.get(rollout_id)
        after = propose(before, digest=policy.digest, actor=actor)
        require_exact(unit.releases.get(before.candidate), policy.allow_lossy)
        unit.policies.add(policy.digest, policy.name, policy_text)
        unit.rollouts.save(after)
        payload = {"name": policy.name, "policy": policy.digest, "instead_of": before.policy_digest, "reason": reason}
        unit.audit.append(tag="rollout:policy:amendment_proposed", actor=actor, subject=rollout_id, payload=payload, at=now)
    return after


def approve_amendment(store: Store, rollout_id: str, *, digest: str, actor: str, now: datetime) -> Rollout:
    """Put the proposed policy in force: the rollout stays at its step, and its evidence begins anew.

    Args:
        store: where the rollout is.
        rollout_id: which one.
        digest: what is approved, at least 8 digits of the digest.
        actor: who approves.
        now: UTC; outcomes that ended before count for nothing.

    Raises:
        IllegalTransition: no such policy is proposed, the proposer approves itself, or the rollout has ended.
        IncompatibleRelease: the candidate's acceptance is lossy, and the new policy does not allow that setting by name.
    """
    with store.begin() as unit:
        before = unit.rollouts.get(rollout_id)
        after = amend(before, digest=digest, actor=actor, at=now)
        require_exact(unit.releases.get(after.candidate), read_policy(unit.policies.get(after.policy_digest)).allow_lossy)
        unit.rollouts.save(after)
        begin_evidence(unit, after)
        payload = {
            "policy": after.policy_digest,
            "instead_of": before.policy_digest,
            "proposed_by": before.amendment_by,
            "evidence": after.evidence,
            "version": after.version,
        }
        unit.audit.append(tag="rollout:policy:amended", actor=actor, subject=rollout_id, payload=payload, at=now)
        settle(unit, after, now)
    return after
