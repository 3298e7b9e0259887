"""A rollout played in memory: outcomes in, what the policy would have said and done out. No store, no gateway, no clock.

Called by `core.policy_test` (made-up outcomes), `core.policy_simulate` (drawn ones) and `core.replay`'s sibling `backtest`
(recorded ones). It folds, judges and advances exactly as the control loop does; verdicts in words are made only where they can
move something, so that thousands of runs stay cheap.
"""

import json
from dataclasses import dataclass, field, replace

from specops.core.check import Check
from specops.core.judge import glance, judge
from specops.core.ladder import Rung
from specops.core.outcome import Outcome
from specops.core.plan import Rollout, State, Step, StepKind
from specops.core.policy import Policy
from specops.core.rollout import Action, ActionKind, advance, may_move
from specops.core.ruling import rule
from specops.core.verdict import Result, Verdict
from specops.core.window import Window, fold

TRIAL_REQUESTS = 20  # of the one trial step in a made-up rollout
_CALLS = frozenset({Result.FAIL, Result.ERROR})


def made_up(policy: Policy, *, is_gated: bool = True, is_promoted: bool = False) -> Rollout:
    """Return a rollout of one trial step, half of the traffic, and a watch step.

    Args:
        policy: what judges it.
        is_gated: the trial waits for a person who never comes, so PASS is seen and promotes nothing.
        is_promoted: it begins on the watch step.
    """
    trial = Step(kind=StepKind.CANARY, weight=0.5, min_requests=TRIAL_REQUESTS, gate=is_gated)
    rollout = Rollout(
        id="test", baseline="baseline", candidate="candidate", policy_digest=policy.digest, pipeline="test",
        steps=(trial, Step(kind=StepKind.WATCH, weight=1.0)),
    )  # fmt: skip
    return replace(rollout, state=State.PROMOTED, step=1) if is_promoted else rollout


@dataclass(slots=True)
class Play:
    """A rollout and its evidence as far as outcomes were taken. `alerts`: what somebody was called about -> after how many."""

    policy: Policy
    rollout: Rollout
    window: Window = field(init=False)
    taken: int = 0
    result: Result = Result.PENDING
    moved: Action | None = None
    alerts: dict[str, int] = field(default_factory=dict)
    failed_after: int | None = None
    _early: tuple[Check, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.window = Window.empty(self.policy)
        self._early = tuple(check for check in self.policy.checks if check.precursor)

    def take(self, outcome: Outcome) -> Action | None:
        """Take one outcome; return the action that moved the rollout, if any. A terminal rollout only gathers evidence."""
        self.taken += 1
        rollout = self.rollout
        if not rollout.counts(outcome):
            return None
        promoted = rollout.state is State.PROMOTED
        self.window = fold(self.window, outcome, self.policy, promoted=promoted)
        if rollout.is_terminal:
            return None
        self.result = glance(self.policy, self.window, terms=rollout.terms, now=outcome.at)
        self._warn(outcome)
        could_move = may_move(rollout, self.result, candidate_outcomes=self.window.candidate_outcomes)
        return self._act(self.verdict(outcome)) if could_move or self.result in _CALLS else None

    def verdict(self, outcome: Outcome) -> Verdict:
        """Return the verdict in words as of an outcome's time."""
        return judge(self.policy, self.window, terms=self.rollout.terms, now=outcome.at)

    def restart(self) -> None:
        """Do what a restart of the control process does: evidence goes through its record and back."""
        self.window = Window.from_record(json.loads(json.dumps(self.window.to_record())))

    def _act(self, verdict: Verdict) -> Action | None:
        if verdict.result in _CALLS:
            for found in verdict.deciding:
                if verdict.result is Result.ERROR or found.action is not Rung.ABSTAIN:
                    self.alerts.setdefault(found.check, self.taken)
        if verdict.result is Result.FAIL and self.failed_after is None:
            self.failed_after = self.taken
        action = advance(self.rollout, verdict, candidate_outcomes=self.window.candidate_outcomes)
        if action.kind is ActionKind.HOLD:
            return None
        if action.rollout.evidence != self.rollout.evidence:
            self.window = Window.empty(self.policy)
        self.rollout, self.moved = action.rollout, action
        return action

    def _warn(self, outcome: Outcome) -> None:
        for check, track in zip(self.policy.checks, self.window.tracks, strict=True):
            if check in self._early and check.name not in self.alerts:
                began = self.window.began_at or outcome.at
                ruling = rule(check, track, self.rollout.terms, waited_s=(outcome.at - began).total_seconds())
                if ruling is not None and ruling.result is Result.FAIL:
                    self.alerts[check.name] = self.taken
