"""How many requests a check needs: to pass a clearly good candidate, to fail a clearly bad one, to notice a collapse.

Called by `core.policy_lint` and `core.policy_text`, so that a limit which the traffic cannot decide is refused before it waits.
The figures are exact for samples that are all alike, and a guide for others: a candidate near its limit needs many more.
"""

import math
from dataclasses import dataclass

from specops.core.check import Against, Check, Metric
from specops.core.track import Track
from specops.stats.wealth import Bets, Null

MOST = 10**9  # requests; a check that needs more cannot be reached by anybody


@dataclass(frozen=True, slots=True)
class Reach:
    """Requests that carry the metric; None where no number of them is enough."""

    to_pass: int | None
    to_fail: int | None
    to_alarm: int | None


def reach(check: Check) -> Reach:
    """Return the requests a check needs.

    Clearly good: no slow answer or error, acceptance half-way between its limit and 1, no difference within pairs, twice the
    speed-up asked for. Clearly bad: every answer slow or failed, half the acceptance, half the speed-up. Against the baseline
    only bad requests count, all of them the candidate's, on a half share.
    """
    track = Track.start(check)
    good, bad = _good(check), _bad(check)
    gate, parts = track.gate.bets, check.strata.count if check.strata else 1
    to_fail = _until(gate, bad, math.log(2.0 * parts * check.fail_threshold))  # half of the coin is on trouble from the start
    to_alarm = None if check.is_rival else _until(gate, bad, math.log(check.monitor_threshold), is_detector=True)
    if check.metric is Metric.SPLIT:
        return Reach(1, to_fail, None)
    enough = _until(track.non_inferior.bets, good, math.log(check.pass_threshold))
    return Reach(None if enough is None else max(enough, check.min_requests) * parts, to_fail, to_alarm)


def _good(check: Check) -> float:
    if check.metric is Metric.ACCEPTANCE_RATE and check.against is Against.LIMIT:
        return (1.0 + check.limit) / 2.0
    if check.metric is Metric.SPEEDUP:
        return check.to_sample(2.0 * check.limit)
    return 0.5 if check.against is Against.PAIRS else 0.0


def _bad(check: Check) -> float:
    if check.metric is Metric.ACCEPTANCE_RATE:
        return check.limit / 2.0 if check.against is Against.LIMIT else 0.0
    return check.to_sample(check.limit / 2.0) if check.metric is Metric.SPEEDUP else 1.0


def _until(bets: Bets, x: float, log_bar: float, *, is_detector: bool = False) -> int | None:
    """Return after how many samples `x` the mean of the bets' wealth reaches the bar; None beyond `MOST`."""
    logs = [math.log1p(slope * (x - bets.limit)) for slope in bets.slopes]
    size = _log_sum if is_detector else _log_power

    def has_reached(n: int) -> bool:
        sizes = [size(log, n) for log in logs]
        top = max(sizes)
        return top + math.log(sum(math.exp(one - top) for one in sizes) / len(sizes)) >= log_bar

    gains = x > bets.limit if bets.null is Null.AT_MOST else x < bets.limit
    if not gains or not has_reached(MOST):
        return None
    low, high = 0, MOST
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if has_reached(middle) else (middle, high)
    return high


def _log_power(log: float, n: int) -> float:
    return n * log


def _log_sum(log: float, n: int) -> float:
    """Return the log of e + e**2 + ... + e**n for e = exp(log) > 1: the detector M = (M + 1) e after n equal steps."""
    return log + n * log + math.log1p(-math.exp(-n * log)) - math.log(math.expm1(log))
