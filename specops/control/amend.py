"""Amend the policy of a rollout: propose, then approve by another person; judged by the new one on new outcomes only (M13).

Called by `specops rollout amend` and `specops rollout approve --amendment`. The rules are in `core.steer`; the control loop
follows at its next pass (`control.act`). Verdicts keep the digest of the policy that gave them.
"""

from datetime import datetime

from specops.control.alarms import settle
from specops.control.ports import Store
from specops.core.policy import Policy, parse_policy
from specops.core.rollout import Rollout
from specops.core.steer import amend, propose
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


def propose_amendment(
    store: Store, rollout_id: str, *, policy: Policy, policy_text: str, reason: str, actor: str, now: datetime
) -> Rollout:
    """Propose a new policy; it takes the place of one proposed earlier, and judges nothing before it is approved.

    Raises:
        IllegalTransition: the rollout has ended, or has that policy already.
    """
    with store.begin() as unit:
        before = unit.rollouts.get(rollout_id)
        after = propose(before, digest=policy.digest, actor=actor)
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
    """
    with store.begin() as unit:
        before = unit.rollouts.get(rollout_id)
        after = amend(before, digest=digest, actor=actor, at=now)
        unit.rollouts.save(after)
        unit.windows.clear(rollout_id)
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
