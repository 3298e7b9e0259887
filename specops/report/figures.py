"""Numbers that the report derives from its data, and how a number is written. Quantiles are nearest-rank: always a real sample.

A p95 from fewer than 20 samples or a p99 from fewer than 100 would be the maximum under another name; it is withheld.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from specops.core.outcome import Arm
from specops.core.rollout import ActionKind
from specops.report.model import DecisionLine, LatencySample, ReportData

NOT_MEASURED = "not measured"
QUANTILES = (0.50, 0.95, 0.99)
LATENCIES = (("ttft_s", "time to first token"), ("tpot_s", "time per output token"), ("e2e_s", "end to end"))


def quantile(values: Sequence[float], q: float) -> float | None:
    """Return the nearest-rank quantile, or None when the sample is too small to have one (n < 1 / (1 - q))."""
    if not values or len(values) < round(1 / (1 - q)):
        return None
    return sorted(values)[math.ceil(q * len(values)) - 1]


def latencies(data: ReportData, metric: str, arm: Arm) -> list[float]:
    """Return one metric's samples of one arm, in seconds."""
    return [value for sample in data.latencies if sample.arm is arm and (value := _of(sample, metric)) is not None]


def _of(sample: LatencySample, metric: str) -> float | None:
    """Return a sample's metric."""
    value: float | None = getattr(sample, metric)
    return value


def seconds(value: float | None) -> str:
    """Write a duration with a readable unit."""
    if value is None:
        return NOT_MEASURED
    if abs(value) < 0.001:  # noqa: PLR2004
        return f"{value * 1e6:.3g} µs"
    return f"{value * 1e3:.3g} ms" if abs(value) < 1 else f"{value:.3g} s"


def number(value: float | None, digits: int = 3) -> str:
    """Write a number with some significant digits, or a dash."""
    if value is None or not math.isfinite(value):
        return "–" if value is None or math.isnan(value) else "∞"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.{digits}g}"  # noqa: PLR2004


def share(value: float | None) -> str:
    """Write a share in [0, 1] as percent."""
    return NOT_MEASURED if value is None else f"{value * 100:.1f}%"


def short(digest: str | None) -> str:
    """Return the first twelve digits of a digest."""
    return digest[:12] if digest else "–"


def mean_acceptance(data: ReportData) -> tuple[float | None, float | None]:
    """Return the mean acceptance rate before and from the shift; without a known shift all of it is "before"."""
    cut = math.inf if data.shift_index is None else data.shift_index
    before = [p.rate for p in data.acceptance if p.index < cut]
    after = [p.rate for p in data.acceptance if p.index >= cut]
    return _mean(before), _mean(after)


def _mean(values: Sequence[float]) -> float | None:
    """Return the mean, or None of nothing."""
    return sum(values) / len(values) if values else None


def rollback(data: ReportData) -> DecisionLine | None:
    """Return the last decision that rolled back."""
    return next((d for d in reversed(data.decisions) if d.action is ActionKind.ROLL_BACK), None)


def outcome(data: ReportData) -> tuple[str, str]:
    """Return how the rollout stands in words, and the class that colours them."""
    moves = [d for d in data.decisions if d.action is not ActionKind.HOLD]
    if not moves:
        return ("no decision", "pending")
    words = {
        ActionKind.ROLL_BACK: ("rolled back", "fail"),
        ActionKind.PROMOTE: ("promoted", "pass"),
        ActionKind.ADVANCE: (f"running: {moves[-1].step}", "pending"),
        ActionKind.PAUSE: ("paused", "error"),
        ActionKind.FALL_BACK: ("fallen back, mirrored only", "fail"),
        ActionKind.PROBE: ("fallen back, mirrored only", "fail"),
        ActionKind.RECOVER: ("recovered, trial begun again", "pending"),
        ActionKind.ASK_MORE: (f"running: {moves[-1].step}, more requests asked for", "pending"),
        ActionKind.SHED: (f"running: {moves[-1].step}, at low load only", "error"),
        ActionKind.ESCALATE: ("waits for a person", "error"),
        ActionKind.STOP: ("stopped", "fail"),
    }
    return words[moves[-1].action]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRun:
    """Consecutive decisions of the same step, action and result; every action but HOLD stands alone."""

    first: DecisionLine
    last: DecisionLine
    count: int


def decision_runs(decisions: Sequence[DecisionLine]) -> tuple[DecisionRun, ...]:
    """Fold repeated holds into one line each; order is kept."""
    runs: list[DecisionRun] = []
    for (_, action, _), group in itertools.groupby(decisions, key=lambda d: (d.step, d.action, d.result)):
        lines = list(group)
        if action is ActionKind.HOLD:
            runs.append(DecisionRun(first=lines[0], last=lines[-1], count=len(lines)))
        else:
            runs.extend(DecisionRun(first=line, last=line, count=1) for line in lines)
    return tuple(runs)
