"""What a policy's checks do to made-up candidates: how often they alarm for nothing, how soon they see a shift.

Called by `specops policy simulate`. Each check against a fixed limit is tried alone, on samples drawn at its limit (the worst
healthy candidate), and on samples that shift from good to bad; one looks after every request, as the control loop does.
Comparisons with the baseline depend on two arms and are tried with `specops policy test`. Same seed, same figures.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from specops.core.check import Against, Check, Metric
from specops.core.policy import Policy
from specops.core.policy_kinds import shown
from specops.core.ruling import gate_peak
from specops.core.track import Track
from specops.errors import PolicyError
from specops.stats.wealth import Null

SD = 0.14  # of acceptance between requests, as in the calibration tests; a smaller one is found sooner
BEFORE = 100  # requests before the shift
MAX_RUNS, MAX_REQUESTS = 10_000, 20_000
_Law = Callable[[Random], float]
_SHIFT = re.compile(r"(?P<metric>[a-z0-9_]+)=(?P<before>[0-9.]{1,12}):(?P<after>[0-9.]{1,12})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """A change of a metric's mean: acceptance rate, or share of slow requests or errors, each in (0, 1)."""

    metric: Metric
    before: float
    after: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What one check did. Shares of runs; delays in requests after the shift, None where a run never failed.

    `alarms` is the share of candidates exactly at the limit that failed within `requests`; theory allows `allowed`. `early`:
    share that failed before the shift. Delays are sorted, one per run that had not failed early.
    """

    check: str
    metric: str
    before: float
    after: float
    runs: int
    requests: int
    alarms: float
    allowed: float
    early: float
    trial_delays: tuple[int | None, ...]
    monitor_delays: tuple[int | None, ...]

    @property
    def power(self) -> float:
        """Share of runs, of those that had not failed early, in which the shift was seen on trial."""
        return sum(d is not None for d in self.trial_delays) / max(len(self.trial_delays), 1)

    @property
    def delay(self) -> int | None:
        """Median delay on trial; None when half of the runs never saw the shift."""
        return self.trial_delays[len(self.trial_delays) // 2] if self.trial_delays else None

    @property
    def monitor_delay(self) -> int | None:
        """Median delay once promoted."""
        return self.monitor_delays[len(self.monitor_delays) // 2] if self.monitor_delays else None


def parse_shift(text: str) -> Shift:
    """Return the shift that `acceptance_rate=0.70:0.60` or `ttft_s=0.01:0.10` (shares of slow requests) writes down.

    Raises:
        PolicyError: another form, an unknown metric, or a mean outside (0, 1).
    """
    found = _SHIFT.fullmatch(text)
    metrics = [metric for metric in Metric if metric not in {Metric.SPEEDUP, Metric.SPLIT}]
    if found is None or found["metric"] not in metrics:
        raise PolicyError(f"a shift is METRIC=BEFORE:AFTER with one of {', '.join(metrics)}, got {shown(text)}")
    try:
        before, after = float(found["before"]), float(found["after"])
    except ValueError as exc:
        raise PolicyError(f"a shift needs two numbers, got {shown(text)}") from exc
    if not (0.0 < before < 1.0 and 0.0 < after < 1.0):
        raise PolicyError(f"means of a shift must be in (0, 1), got {shown(text)}; a time's is its share of slow requests")
    return Shift(metric=Metric(found["metric"]), before=before, after=after)


def simulate(
    policy: Policy, *, shifts: tuple[Shift, ...] = (), runs: int = 200, seed: int = 1, requests: int = 500
) -> tuple[Figures, ...]:
    """Return figures of each check against a fixed limit.

    Args:
        policy: whose checks.
        shifts: what happens to a metric; where none is named, the mean moves from well inside its limit to well outside.
        runs: made-up candidates per check, up to 10000.
        seed: of the draws.
        requests: of each candidate, up to 20000; a shift comes after 100.

    Raises:
        PolicyError: too many runs or requests, or a shift of a metric that no check looks at.
    """
    if not (1 <= runs <= MAX_RUNS and BEFORE < requests <= MAX_REQUESTS):
        raise PolicyError(f"simulate 1 to {MAX_RUNS} runs of {BEFORE + 1} to {MAX_REQUESTS} requests, got {runs} of {requests}")
    checks = [check for check in policy.checks if check.against is Against.LIMIT]
    named = {shift.metric: shift for shift in shifts}
    unseen = sorted(named.keys() - {check.metric for check in checks})
    if unseen:
        raise PolicyError(f"policy {policy.name} has no check of {', '.join(unseen)} against a fixed limit")
    return tuple(_figures(check, named.get(check.metric) or _usual(check), runs, seed, requests) for check in checks)


def _usual(check: Check) -> Shift:
    if check.null is Null.AT_LEAST:
        return Shift(metric=check.metric, before=(1.0 + check.limit) / 2.0, after=check.limit * 0.7)
    return Shift(metric=check.metric, before=check.limit / 5.0, after=min(check.limit * 5.0, (1.0 + check.limit) / 2.0))


def _figures(check: Check, shift: Shift, runs: int, seed: int, requests: int) -> Figures:
    at_limit, good, bad = (_law(check, mean) for mean in (check.limit_of(0), shift.before, shift.after))
    alarms, trial, monitor = 0, list[int | None](), list[int | None]()
    for run in range(runs):
        rng = Random(f"{seed}:{check.name}:{run}")
        alarms += _first(check, at_limit, at_limit, rng, requests, promoted=False) is not None
        for delays, promoted in ((trial, False), (monitor, True)):
            fired = _first(check, good, bad, rng, requests, promoted=promoted)
            delays.append(None if fired is None else fired - BEFORE)
    late = [d for d in trial if d is None or d > 0]
    return Figures(
        check=check.name, metric=check.metric.value, before=shift.before, after=shift.after, runs=runs, requests=requests,
        alarms=alarms / runs, allowed=1.0 / check.fail_threshold, early=1.0 - len(late) / runs,
        trial_delays=_sorted(late), monitor_delays=_sorted([d for d in monitor if d is None or d > 0]),
    )  # fmt: skip


def _law(check: Check, mean: float) -> _Law:
    """Return draws of the check's samples with this mean: beta where they are anywhere in [0, 1], else 0 or 1."""
    if not check.is_bounded:
        return lambda rng: float(rng.random() < mean)
    sd = min(SD, 0.9 * (mean * (1.0 - mean)) ** 0.5)
    size = mean * (1.0 - mean) / (sd * sd) - 1.0
    return lambda rng: rng.betavariate(mean * size, (1.0 - mean) * size)


def _first(check: Check, good: _Law, bad: _Law, rng: Random, requests: int, *, promoted: bool) -> int | None:
    """Return after how many requests the check fails, all of them in its first stratum."""
    track = Track.start(check)
    bar = check.monitor_threshold if promoted else check.fail_threshold
    wealth = track.monitor if promoted else track.gate
    for n in range(1, requests + 1):
        x = (good if n <= BEFORE else bad)(rng)
        if track.strata is None:
            wealth = wealth.update(x)
            peak = wealth.peak
        else:
            track = track.take(x, promoted=promoted)
            peak = track.strata.monitor.peak if promoted and track.strata else gate_peak(track)
        if peak >= bar:
            return n
    return None


def _sorted(delays: list[int | None]) -> tuple[int | None, ...]:
    return tuple(sorted(delays, key=lambda delay: (delay is None, delay or 0)))
