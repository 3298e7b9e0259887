"""The rollout: a plan with state, and `advance`, the only function that decides what happens to traffic.

Called by `control.act` after each judgement; it reads no clock and touches nothing. FAIL beats everything and works from every
step that is not terminal; only PASS moves forward; PENDING, INCONCLUSIVE and ERROR hold.
"""

from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, Self

from specops.core.verdict import Result, Verdict
from specops.errors import IllegalTransition, InvalidRecord


class StepKind(StrEnum):
    """Shadow: mirrored, answer withheld. Canary: a live share. Watch: everything is promoted and monitored."""

    SHADOW = "shadow"
    CANARY = "canary"
    WATCH = "watch"


class State(StrEnum):
    """PROMOTED is still watched, and can still be rolled back; the last two are terminal."""

    RUNNING = "running"
    PAUSED = "paused"
    PROMOTED = "promoted"
    ROLLED_BACK = "rolled_back"
    ABORTED = "aborted"


TERMINAL = frozenset({State.ROLLED_BACK, State.ABORTED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One rung: `weight` is the candidate's live share in [0, 1], `mirror` the mirrored share of baseline requests.

    `min_requests` counts the candidate's outcomes since the step began. A `gate` waits for a person's approval after PASS.
    """

    kind: StepKind
    weight: float = 0.0
    mirror: float = 0.0
    min_requests: int = 20
    gate: bool = False

    def __post_init__(self) -> None:
        """Check the ranges and that shadow carries no live traffic."""
        if not (0 <= self.weight <= 1 and 0 <= self.mirror <= 1):
            raise InvalidRecord(f"step {self.kind} has weight {self.weight} and mirror {self.mirror}; both must be in [0, 1]")
        if self.kind is StepKind.SHADOW and (self.weight > 0 or self.mirror == 0):
            raise InvalidRecord("a shadow step has weight 0 and mirror > 0; use a canary step for live traffic")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """A candidate release on its way past a baseline. `version` grows by one with each change (optimistic lock).

    `step_began_at` is the number of candidate outcomes when the step began.
    """

    id: str
    baseline: str
    candidate: str
    policy_digest: str
    pipeline: str
    steps: tuple[Step, ...]
    state: State = State.RUNNING
    step: int = 0
    step_began_at: int = 0
    version: int = 1
    approved_steps: tuple[int, ...] = ()
    reason: str = ""
    requested_by: str = ""

    def __post_init__(self) -> None:
        """Check that the plan can be walked."""
        if not self.steps or not 0 <= self.step < len(self.steps):
            raise InvalidRecord(f"rollout {self.id} is at step {self.step} of {len(self.steps)}")
        if self.baseline == self.candidate:
            raise InvalidRecord(f"rollout {self.id}: baseline and candidate are the same release {self.baseline}")

    @property
    def current(self) -> Step:
        """The step the rollout stands on."""
        return self.steps[self.step]

    @property
    def is_terminal(self) -> bool:
        """Nothing moves it any more."""
        return self.state in TERMINAL

    @property
    def weight(self) -> float:
        """The candidate's live share now; 0 once rolled back, aborted or paused."""
        return 0.0 if self.is_terminal or self.state is State.PAUSED else self.current.weight

    @property
    def mirror(self) -> float:
        """The mirrored share now."""
        return 0.0 if self.is_terminal or self.state is State.PAUSED else self.current.mirror

    def to_record(self) -> dict[str, Any]:
        """Return JSON-ready values; `from_record` is the inverse."""
        return asdict(self)

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Self:
        """Build a rollout from `to_record` values."""
        steps = tuple(Step(**(s | {"kind": StepKind(s["kind"])})) for s in record["steps"])
        return cls(
            **(record | {"steps": steps, "state": State(record["state"]), "approved_steps": tuple(record["approved_steps"])})
        )


class ActionKind(StrEnum):
    """What is to be done to traffic."""

    ADVANCE = "ADVANCE"
    HOLD = "HOLD"
    PAUSE = "PAUSE"
    PROMOTE = "PROMOTE"
    ROLL_BACK = "ROLL_BACK"


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """A decision: the rollout as it shall be, and why. HOLD leaves it as it was."""

    kind: ActionKind
    rollout: Rollout
    reason: str


def advance(rollout: Rollout, verdict: Verdict, *, candidate_outcomes: int) -> Action:
    """Decide the next action from the rollout and the newest verdict.

    1. A terminal or paused rollout holds.
    2. FAIL rolls back from any step.
    3. Anything but PASS holds, and so does a step with too few requests or an open gate.
    4. PASS moves one step on; entering the watch step promotes. The watch step itself never ends.

    Args:
        rollout: the rollout as stored.
        verdict: the policy's verdict on all evidence so far.
        candidate_outcomes: outcomes of the candidate so far, shadow included.
    """
    if rollout.is_terminal or rollout.state is State.PAUSED:
        return Action(kind=ActionKind.HOLD, rollout=rollout, reason=f"rollout is {rollout.state}")
    if verdict.result is Result.FAIL:
        return roll_back(rollout, reason=verdict.reason)
    if verdict.result is not Result.PASS:
        return Action(kind=ActionKind.HOLD, rollout=rollout, reason=verdict.reason or f"verdict {verdict.result}")
    seen = candidate_outcomes - rollout.step_began_at
    if seen < rollout.current.min_requests:
        return Action(kind=ActionKind.HOLD, rollout=rollout, reason=f"{seen} of {rollout.current.min_requests} requests")
    if rollout.current.gate and rollout.step not in rollout.approved_steps:
        return Action(kind=ActionKind.HOLD, rollout=rollout, reason="waits for approval")
    if rollout.step + 1 == len(rollout.steps):
        return Action(kind=ActionKind.HOLD, rollout=rollout, reason="last step, watching")
    moved = replace(rollout, step=rollout.step + 1, step_began_at=candidate_outcomes, version=rollout.version + 1)
    if moved.current.kind is StepKind.WATCH:
        return Action(kind=ActionKind.PROMOTE, rollout=replace(moved, state=State.PROMOTED), reason=verdict.reason)
    return Action(kind=ActionKind.ADVANCE, rollout=moved, reason=verdict.reason)


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
        raise IllegalTransition(f"rollout {rollout.id} waits for no approval at step {rollout.step} ({rollout.state})")
    if actor == rollout.requested_by:
        raise IllegalTransition(f"rollout {rollout.id} was requested by {actor}; another person must approve it")
    if rollout.step in rollout.approved_steps:
        return rollout
    return replace(rollout, approved_steps=(*rollout.approved_steps, rollout.step), version=rollout.version + 1)
