"""One rule of a policy, as values that cannot be half right: what is looked at, against what, and when it speaks.

Built by `core.check_file`; read by `core.window` (which samples to gather), `core.judge` (what they mean) and whoever prints a
policy. Thresholds that follow from the fields are properties here, so that nobody computes them twice.
"""

from bisect import bisect_left
from dataclasses import dataclass
from enum import StrEnum

from specops.core.ladder import Rung
from specops.core.outcome import Kind, Outcome
from specops.stats import pairs, speedup
from specops.stats.wealth import Null


class Metric(StrEnum):
    """What a check looks at; the whole list of what is emitted. One sample per candidate request, pair, error or assignment."""

    ACCEPTANCE_RATE = "acceptance_rate"
    TTFT_S = "ttft_s"
    E2E_S = "e2e_s"
    TPOT_S = "tpot_s"
    ERROR = "error"
    SPEEDUP = "speedup"
    SPLIT = "split"


TIMES = frozenset({Metric.TTFT_S, Metric.E2E_S, Metric.TPOT_S})


class Estimand(StrEnum):
    """What is estimated. A ratio of sums follows throughput and is reported, but has no test that holds at every look."""

    MEAN_OF_REQUESTS = "mean_of_requests"
    RATIO_OF_SUMS = "ratio_of_sums"


class Against(StrEnum):
    """What the candidate is measured by: a fixed limit, the baseline's requests of the same time, or the very same request."""

    LIMIT = "limit"
    BASELINE = "baseline"
    PAIRS = "pairs"


class OnNoData(StrEnum):
    """What a check says when its metric stays away: wait, or take silence as a failure."""

    HOLD = "hold"
    FAIL = "fail"


class By(StrEnum):
    """What tells strata apart."""

    IN_FLIGHT = "in_flight"
    PROMPT_TOKENS = "prompt_tokens"
    KIND = "kind"


KINDS = (Kind.LIVE, Kind.SHADOW)


@dataclass(frozen=True, slots=True, kw_only=True)
class Strata:
    """Groups of requests that are judged apart. `limits`: the limit of each, where they differ."""

    by: By
    edges: tuple[int, ...] = ()
    limits: tuple[float, ...] = ()

    @property
    def count(self) -> int:
        """Number of strata."""
        return len(self.labels)

    @property
    def labels(self) -> tuple[str, ...]:
        """A name for each stratum."""
        if self.by is By.KIND:
            return tuple(kind.value for kind in KINDS)
        starts = (None, *self.edges)
        ends = (*self.edges, None)
        return tuple(_range(self.by, low, high) for low, high in zip(starts, ends, strict=True))

    def index(self, outcome: Outcome) -> int:
        """Return the stratum of an outcome."""
        if self.by is By.IN_FLIGHT:
            return bisect_left(self.edges, outcome.in_flight)
        if self.by is By.PROMPT_TOKENS:
            return bisect_left(self.edges, outcome.prompt_tokens)
        return int(outcome.kind is Kind.SHADOW)


def _range(by: By, low: int | None, high: int | None) -> str:
    if low is None:
        return f"{by} <= {high}"
    return f"{by} > {low}" if high is None else f"{by} {low + 1} to {high}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The load at which a check holds: requests that found more than `above`, and at most `at_most`, in flight."""

    above: int | None = None
    at_most: int | None = None

    def holds(self, in_flight: int) -> bool:
        """Tell whether a request at this load is looked at."""
        return (self.above is None or in_flight > self.above) and (self.at_most is None or in_flight <= self.at_most)

    @property
    def text(self) -> str:
        """The scope in words."""
        parts = ([f"more than {self.above}"] if self.above is not None else []) + (
            [f"at most {self.at_most}"] if self.at_most is not None else []
        )
        return f"{' and '.join(parts)} requests in flight"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One rule. `limit_s` is the time in seconds behind a share; `limit` and `pass_at` depend on what is compared.

    - against a limit: rates or shares in (0, 1); for `speedup` ratios of seconds per token, baseline / candidate.
    - against pairs: differences candidate - baseline in (-1, 1).
    - against the baseline: `limit` is the allowed ratio of shares, candidate / baseline; `pass_at` is a share of the
      candidate's own requests, because a comparison of two arms that never err proves nothing.
    - `split`: `limit` and `pass_at` are 0 and say nothing; the split is measured against the weight it was made with.

    It fails when "fine" (`null` limit) is rejected at alpha * weight, passes when "worse than pass_at" is rejected at alpha.
    """

    name: str
    metric: Metric
    null: Null
    limit: float
    limit_s: float | None
    pass_at: float
    alpha: float
    weight: float
    min_requests: int
    arl_requests: float
    on_no_data: OnNoData
    owner: str
    source: str
    description: str
    against: Against = Against.LIMIT
    strata: Strata | None = None
    only: Scope | None = None
    max_wait_s: float | None = None
    precursor: bool = False
    on_fail: Rung = Rung.ROLL_BACK

    @property
    def fail_threshold(self) -> float:
        """E-value at which a candidate on trial fails."""
        return 1.0 / (self.alpha * self.weight)

    @property
    def pass_threshold(self) -> float:
        """E-value at which "worse than pass_at" is rejected."""
        return 1.0 / self.alpha

    @property
    def monitor_threshold(self) -> float:
        """Detector value at which a promoted candidate fails; keeps the policy's run length over all checks."""
        return self.arl_requests / self.weight

    @property
    def is_bounded(self) -> bool:
        """Samples lie anywhere in [0, 1], not only at its ends."""
        return self.metric in {Metric.ACCEPTANCE_RATE, Metric.SPEEDUP} or self.against is Against.PAIRS

    @property
    def is_rival(self) -> bool:
        """The fail side compares two arms in time; it needs live traffic on each, so it says nothing once promoted."""
        return self.against is Against.BASELINE or self.metric is Metric.SPLIT

    @property
    def unit(self) -> str:
        """Unit of limit and estimate."""
        if self.metric is Metric.SPEEDUP:
            return "ratio of seconds per token, baseline / candidate"
        if self.metric is Metric.SPLIT:
            return "share of live requests"
        kind = f"share of requests over {self.limit_s:g} s" if self.limit_s is not None else "share"
        if self.against is Against.BASELINE:
            return f"{kind}; the limit is a ratio to the baseline's"
        return f"{kind}, candidate minus baseline" if self.against is Against.PAIRS else kind

    @property
    def subject(self) -> str:
        """What is measured, in words."""
        what = f"share of requests with {self.metric} over {self.limit_s:g} s" if self.limit_s is not None else f"{self.metric}"
        return f"{what} beyond the same requests of the baseline" if self.is_difference else what

    @property
    def is_difference(self) -> bool:
        """Samples are differences within pairs."""
        return self.against is Against.PAIRS and self.metric is not Metric.SPEEDUP

    def to_sample(self, value: float) -> float:
        """Return a limit on the scale of the samples, [0, 1]."""
        if self.metric is Metric.SPEEDUP:
            return speedup.limit_of(value)
        return pairs.limit_of(value) if self.is_difference else value

    def from_sample(self, x: float) -> float:
        """Return a mean of samples in the unit of the limit; the inverse of `to_sample`."""
        if self.metric is Metric.SPEEDUP:
            return (x / (1.0 - x)) ** (1.0 / speedup.SHARPNESS) if x < 1.0 else float("inf")
        return 2.0 * x - 1.0 if self.is_difference else x

    def limit_of(self, stratum: int) -> float:
        """Return the limit of a stratum."""
        return self.strata.limits[stratum] if self.strata and self.strata.limits else self.limit

    def pass_at_of(self, stratum: int) -> float:
        """Return what must be excluded in a stratum: as far from its limit as `pass_at` is from the check's."""
        return self.limit_of(stratum) + (self.pass_at - self.limit)
