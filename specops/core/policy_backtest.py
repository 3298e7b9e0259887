"""What another policy would have said to recorded outcomes, and when: the first verdict that differs, the actions of each.

Called by `specops policy backtest`. Both policies are played on the same outcomes from the same beginning. Two things can't be
known and are said here: people are taken to approve every gate at once, and the traffic is what it was, though another
decision would have changed it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from specops.core.outcome import Outcome
from specops.core.plan import Rollout
from specops.core.policy import Policy
from specops.core.policy_play import Play


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An action: after how many outcomes, on which request, when, what and why."""

    outcomes: int
    request_id: str
    at: datetime
    action: str
    state: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The first outcome after which the two verdicts differ."""

    outcomes: int
    request_id: str
    at: datetime
    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Backtest:
    """What each policy would have done to the same outcomes; `first_change` is None where their verdicts never differ."""

    outcomes: int
    first_change: Change | None
    before: tuple[Event, ...]
    after: tuple[Event, ...]


def backtest(rollout: Rollout, outcomes: Iterable[Outcome], *, before: Policy, after: Policy) -> Backtest:
    """Play recorded outcomes under the policy that judged them and under another.

    Args:
        rollout: whose plan is walked; its present state does not matter.
        outcomes: as recorded, in order.
        before: the policy in force.
        after: the policy to try.
    """
    plays = [Play(policy, _from_the_start(rollout, policy)) for policy in (before, after)]
    events: tuple[list[Event], list[Event]] = ([], [])
    change, count = None, 0
    for outcome in outcomes:
        count += 1
        for play, happened in zip(plays, events, strict=True):
            action = play.take(outcome)
            if action is not None:
                happened.append(
                    Event(
                        outcomes=count, request_id=outcome.request_id, at=outcome.at, action=action.kind.value,
                        state=action.rollout.state.value, reason=action.reason,
                    )
                )  # fmt: skip
        one, other = (play.result.value for play in plays)
        if change is None and one != other:
            change = Change(outcomes=count, request_id=outcome.request_id, at=outcome.at, before=one, after=other)
    return Backtest(outcomes=count, first_change=change, before=tuple(events[0]), after=tuple(events[1]))


def _from_the_start(rollout: Rollout, policy: Policy) -> Rollout:
    steps = tuple(replace(step, gate=False) for step in rollout.steps)
    return Rollout(
        id=rollout.id, baseline=rollout.baseline, candidate=rollout.candidate, policy_digest=policy.digest,
        pipeline=rollout.pipeline, steps=steps, max_falls=rollout.max_falls, cool_down_s=rollout.cool_down_s,
    )  # fmt: skip
