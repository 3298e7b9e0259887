"""Replay a stored rollout: load all that is kept about it, let `core.replay` do it again, say what differs.

Called by `specops policy replay` and `specops policy backtest`; reads only.
"""

from collections.abc import Sequence

from specops.control.amend import read_policy
from specops.control.lineage_ports import Store, Unit
from specops.core.outcome import Outcome
from specops.core.plan import Rollout
from specops.core.policy import Policy
from specops.core.replay import Replayed, Story, replay


def replay_rollout(store: Store, rollout_id: str) -> Replayed:
    """Recompute every verdict and decision of a rollout from its outcomes and compare them with what is stored.

    Raises:
        InvalidRecord: there is no such rollout, or the log does not say how it began.
        LineageBroken: a segment of outcomes is missing or was changed.
        PolicyError: a stored policy cannot be read any more.
    """
    with store.read() as unit:
        rollout = unit.rollouts.get(rollout_id)
        entries = unit.audit.of(rollout_id)
        digests = {rollout.policy_digest} | {e.payload["policy"] for e in entries if "policy" in e.payload}
        kept = unit.windows.load(rollout_id)
        story = Story(
            rollout=rollout,
            policies={digest: _policy(unit, digest) for digest in sorted(digests)},
            outcomes=unit.outcomes.read(rollout_id),
            verdicts=unit.verdicts.of(rollout_id),
            entries=entries,
            window=None if kept is None else kept[0],
        )
    return replay(story)


def recorded(store: Store, rollout_id: str) -> tuple[Rollout, Sequence[Outcome], Policy]:
    """Return a rollout, its outcomes in order, and the policy that judges it.

    Raises:
        InvalidRecord: there is no such rollout.
        LineageBroken: a segment of outcomes is missing or was changed.
    """
    with store.read() as unit:
        rollout = unit.rollouts.get(rollout_id)
        return rollout, unit.outcomes.read(rollout_id), _policy(unit, rollout.policy_digest)


def _policy(unit: Unit, digest: str) -> Policy:
    return read_policy(unit.policies.get(digest))
