"""What a report is made of: one frozen `ReportData`, filled by the caller from the store.

The report concludes nothing that is not in here; a figure that was not measured is None and is shown as "not measured".
Times in seconds, shares and rates in [0, 1], digests as 64 hex digits.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from specops.core.outcome import Arm
from specops.core.rollout import ActionKind, StepKind
from specops.core.verdict import Result


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseLine:
    """A release in the report; `role` says what it was here ("baseline", "candidate", "bad candidate")."""

    role: str
    name: str
    id: str
    digest: str
    method: str | None
    num_speculative_tokens: int
    target: str
    draft: str | None
    tokenizer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageNode:
    """A node of the lineage graph; `id` is a digest, `kind` an artifact kind or "release"."""

    id: str
    label: str
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageEdge:
    """`source` --kind--> `target`, as in `core.release.Edge`."""

    source: str
    kind: str
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationLine:
    """One metric, both arms, on the same `n` requests; `low`, `high` bound the ratio candidate / baseline."""

    metric: str
    unit: str
    baseline: float | None
    candidate: float | None
    ratio: float | None
    low: float | None
    high: float | None
    n: int
    better: Literal["higher", "lower"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Equality:
    """Greedy texts of both arms compared: `equal` of `compared`; `note` tells of near ties or the first difference."""

    equal: int
    compared: int
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionLine:
    """Draft position (from 1): rounds that drafted this far, and rounds that accepted this far."""

    position: int
    drafted: int
    accepted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptancePoint:
    """One candidate request: its acceptance rate, and the confidence sequence of the mean up to it."""

    index: int
    rate: float
    phase: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencySample:
    """One request's latencies in seconds."""

    arm: Arm
    ttft_s: float | None
    tpot_s: float | None
    e2e_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightPoint:
    """Traffic from `t_s` seconds after the start on."""

    t_s: float
    weight: float
    mirror: float
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionLine:
    """One verdict and what was done; the numbers are those of the finding that decided.

    `in_force_s`: seconds from the decision until the gateway's own status showed the new route.
    """

    at: datetime
    step: StepKind
    action: ActionKind
    result: Result
    reason: str
    n: int
    estimate: float | None = None
    low: float | None = None
    high: float | None = None
    e_value: float | None = None
    threshold: float | None = None
    in_force_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckLine:
    """One check of the policy, its owner, and where its number comes from."""

    name: str
    metric: str
    rule: str
    owner: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyText:
    """The policy that judged."""

    name: str
    digest: str
    text: str
    checks: tuple[CheckLine, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertLine:
    """One alert; `delivered` is True only when the receiver accepted it."""

    at: datetime
    name: str
    severity: str
    summary: str
    owner: str
    delivered: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSeal:
    """Signed checkpoint of the audit log: enough to check every entry offline."""

    checkpoint: str
    size: int
    root: str
    public_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Operations:
    """What running it costs; None where nobody measured."""

    baseline_peak_memory_mb: float | None = None
    candidate_peak_memory_mb: float | None = None
    baseline_cpu_s_per_1k_tokens: float | None = None
    candidate_cpu_s_per_1k_tokens: float | None = None
    energy_j_per_1k_tokens: float | None = None
    review_minutes: float | None = None
    maintenance: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportData:
    """Everything a report shows.

    `acceptance_limit` is the limit line on the acceptance rate. `shift_index` is the request at which traffic really changed,
    known in a drill only; `detection_index` the one at which the policy noticed. `reaction_s` runs from the deciding outcome to
    the first request sent afterwards that the baseline answered.
    """

    title: str
    created_at: datetime
    goal: str
    releases: tuple[ReleaseLine, ...]
    nodes: tuple[LineageNode, ...] = ()
    edges: tuple[LineageEdge, ...] = ()
    evaluation: tuple[EvaluationLine, ...] = ()
    equality: Equality | None = None
    positions: tuple[PositionLine, ...] = ()
    acceptance: tuple[AcceptancePoint, ...] = ()
    acceptance_limit: float | None = None
    shift_index: int | None = None
    detection_index: int | None = None
    reaction_s: float | None = None
    latencies: tuple[LatencySample, ...] = ()
    weights: tuple[WeightPoint, ...] = ()
    decisions: tuple[DecisionLine, ...] = ()
    policy: PolicyText | None = None
    alerts: tuple[AlertLine, ...] = ()
    audit: AuditSeal | None = None
    operations: Operations = Operations()
    environment: tuple[tuple[str, str], ...] = ()
    limits: tuple[str, ...] = ()
