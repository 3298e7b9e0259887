"""The rollout as a value: a plan of steps with state, and which shares that state implies.

Moved only by `core.rollout.advance` (policy) and `core.steer` (people); stored by `store.rollouts`. Records of older versions
load: what they lack takes its default.
"""

from dataclasses import asdict, dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Self

from specops.core.ladder import COOL_DOWN_S, MAX_DOUBLINGS, Terms
from specops.core.outcome import Arm, Kind, Outcome
from specops.errors import InvalidRecord

PROBE_MIRROR = 0.1  # share of the baseline's requests mirrored after a fallback: live acceptance can't be seen any more

_TIMES = ("evidence_since", "started_at")


class StepKind(StrEnum):
    """Shadow: mirrored, answer withheld. Canary: a live share. Watch: everything is promoted and monitored."""

    SHADOW = "shadow"
    CANARY = "canary"
    WATCH = "watch"


class State(StrEnum):
    """What a rollout is doing; `TERMINAL` names the states that nothing leaves.

    PAUSED keeps its shares and can still fail. PROMOTED is still watched. FALLEN_BACK has no live share, only mirrored
    requests, and recovers on them or by a person's word. FINISHED ended well, everybody on the candidate. STOPPED also
    refuses new rollouts of it.
    """

    RUNNING = "running"
    PAUSED = "paused"
    PROMOTED = "promoted"
    FALLEN_BACK = "fallen_back"
    FINISHED = "finished"
    ROLLED_BACK = "rolled_back"
    ABORTED = "aborted"
    STOPPED = "stopped"


TERMINAL = frozenset({State.FINISHED, State.ROLLED_BACK, State.ABORTED, State.STOPPED})


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

    `step_began_at` is the number of candidate outcomes when the step began. `evidence` numbers the evidence in use: a retry
    begins new evidence. `falls` counts fallbacks, of which `max_falls` may be retried. `extra_requests` were asked for by the
    ladder. `escalated` names the checks a person was called about. `knows_inconclusive`: policy has paused this step because
    nothing was concluded, so who resumes it knows. `is_cleared`: a person allowed new rollouts of a stopped candidate.
    `evidence_since`: outcomes that ended before count for nothing; after a fallback, also the beginning of the cool-down of
    `cool_down_s` seconds. `attempt` counts the attempts to recover. `amendment`: digest of a policy that `amendment_by`
    proposed and nobody approved yet. `started_at` is when it was started. `trial` counts how often this candidate has been
    tried, earlier rollouts of it included: see `pass_factor`. `shed_below`: the candidate gets a live request only while fewer
    are in flight; None without such a limit.
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
    evidence: int = 1
    falls: int = 0
    max_falls: int = 3
    extra_requests: int = 0
    escalated: tuple[str, ...] = ()
    knows_inconclusive: bool = False
    is_cleared: bool = False
    evidence_since: datetime | None = None
    attempt: int = 0
    cool_down_s: float = COOL_DOWN_S
    amendment: str = ""
    amendment_by: str = ""
    started_at: datetime | None = None
    trial: int = 1
    shed_below: int | None = None

    def __post_init__(self) -> None:
        """Check that the plan can be walked."""
        if not self.steps or not 0 <= self.step < len(self.steps):
            raise InvalidRecord(f"rollout {self.id} is at step {self.step} of {len(self.steps)}")
        if self.baseline == self.candidate:
            raise InvalidRecord(f"rollout {self.id}: baseline and candidate are the same release {self.baseline}")
        for at in (self.evidence_since, self.started_at):
            if at is not None and at.tzinfo is None:
                raise InvalidRecord(f"rollout {self.id} has a time without zone: {at.isoformat()}; use UTC")
        if min(self.falls, self.max_falls, self.extra_requests, self.attempt, self.trial - 1) < 0 or not self.cool_down_s >= 0:
            counts = f"{self.falls} of {self.max_falls} falls, {self.extra_requests} extra, attempt {self.attempt}"
            raise InvalidRecord(f"rollout {self.id} counts {counts}, trial {self.trial}, cools {self.cool_down_s} s")

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
        """The candidate's live share now; 0 once fallen back or ended badly, everything once finished."""
        has_left = self.state is State.FALLEN_BACK or (self.is_terminal and self.state is not State.FINISHED)
        return 0.0 if has_left else self.current.weight

    @property
    def mirror(self) -> float:
        """The mirrored share now; after a fallback at least a little, so that there is evidence to look at."""
        if self.is_terminal:
            return 0.0
        return max(self.current.mirror, PROBE_MIRROR) if self.state is State.FALLEN_BACK else self.current.mirror

    @property
    def waiting_since(self) -> datetime | None:
        """From when a check's wait counts: the beginning of the evidence in use, outcomes or none."""
        return self.evidence_since or self.started_at

    @property
    def pass_factor(self) -> float:
        """How many times the usual bar a check must reach to pass: 2 ** (trial - 1).

        A candidate that is worse passes trial j with probability at most alpha / 2 ** (j - 1), so it is ever promoted with
        probability at most 2 * alpha, however often it is tried (Ville's inequality and the union bound). After a fallback the
        attempts to recover have a bar of their own (`core.ladder`).
        """
        return 1.0 if self.state is State.FALLEN_BACK else 2.0 ** min(self.trial - 1, MAX_DOUBLINGS)

    @property
    def terms(self) -> Terms:
        """What a judgement of this rollout depends on, beside policy and evidence."""
        return Terms(
            promoted=self.state is State.PROMOTED,
            waiting_since=self.waiting_since,
            pass_factor=self.pass_factor,
            shed_below=self.shed_below,
        )

    @property
    def required_requests(self) -> int:
        """Candidate outcomes that the present step needs before it may be left."""
        return self.current.min_requests + self.extra_requests

    def counts(self, outcome: Outcome) -> bool:
        """Tell whether an outcome is evidence: it ended in time, and it is no straggler of a route that gave more."""
        if self.evidence_since is not None and outcome.at < self.evidence_since:
            return False
        if outcome.arm is not Arm.CANDIDATE or outcome.kind is not Kind.LIVE:
            return True
        is_crowded = self.shed_below is not None and outcome.in_flight >= self.shed_below
        return not is_crowded and self.state is not State.FALLEN_BACK

    def begun_anew(self, *, reason: str, since: datetime | None = None) -> "Rollout":
        """Return the rollout running at its first step on new evidence, with no gate approved."""
        return replace(
            self,
            state=State.RUNNING,
            step=0,
            step_began_at=0,
            approved_steps=(),
            evidence=self.evidence + 1,
            evidence_since=since,
            extra_requests=0,
            escalated=(),
            knows_inconclusive=False,
            trial=self.trial + 1,
            reason=reason,
            version=self.version + 1,
        )

    def to_record(self) -> dict[str, Any]:
        """Return JSON-ready values; `from_record` is the inverse."""
        return asdict(self) | {name: at.isoformat() if (at := getattr(self, name)) else None for name in _TIMES}

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Self:
        """Build a rollout from `to_record` values."""
        steps = tuple(Step(**(s | {"kind": StepKind(s["kind"])})) for s in record["steps"])
        tuples = {name: tuple(record.get(name, ())) for name in ("approved_steps", "escalated")}
        times = {name: datetime.fromisoformat(at) if (at := record.get(name)) else None for name in _TIMES}
        return cls(**(record | {"steps": steps, "state": State(record["state"])} | times | tuples))
