"""The three-way decision of one check from its evidence: a result, and its reason for whoever asks.

Called by `core.judge`. The result is a few comparisons, because control asks after each outcome; the sentence and its intervals
are made only when a verdict is written.

On trial: FAIL when "fine" is rejected, PASS when "worse than pass_at" is rejected, PENDING in between, INCONCLUSIVE when that
has lasted longer than the check may wait. Promoted: FAIL when the detector reaches its run length, PASS otherwise.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from specops.core.check import Against, Check, Metric, OnNoData
from specops.core.ladder import Terms
from specops.core.track import Track
from specops.core.verdict import Result
from specops.stats.wealth import Null

Sentence = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Ruling:
    """A check's result with the numbers that decided. `sentence` makes the reason from the measured value in words."""

    result: Result
    n: int
    e_value: float
    bar: float
    pass_e: float | None
    sentence: Sentence
    pass_bar: float | None = None
    overdue: bool = False


def rule(check: Check, track: Track, terms: Terms, *, waited_s: float) -> Ruling | None:
    """Return what a check says, or None where it has nothing to say at this stage.

    Args:
        check: the rule.
        track: its evidence.
        terms: on trial or promoted, how high the bar is, up to which load anything speculates.
        waited_s: seconds since the evidence began.
    """
    promoted = terms.promoted
    above = check.only.above if check.only else None
    if above is not None and terms.shed_below is not None and above >= terms.shed_below - 1:
        return None
    if check.metric is Metric.SPLIT:
        return None if promoted else _split(check, track)
    if promoted:
        if check.against is not Against.LIMIT and track.promoted.n == 0:
            return None  # nothing to compare with: all traffic is the candidate's
        return None if check.is_rival else _watched(check, track)
    ruling = _on_trial(check, track, terms.pass_factor * check.pass_threshold)
    if ruling.result is not Result.PASS and check.max_wait_s is not None and waited_s > check.max_wait_s:
        return _overdue(check, ruling, waited_s)
    return ruling


def gate_peak(track: Track) -> float:
    """Return the largest e-value against "fine" so far."""
    if track.rival is not None:
        return track.rival.peak
    return track.gate.peak if track.strata is None else track.strata.gate.peak


def _pass_e(check: Check, track: Track) -> float:
    return track.non_inferior.e_value if track.strata is None else track.strata.pass_e(check.min_requests)


def _on_trial(check: Check, track: Track, pass_bar: float) -> Ruling:
    n, peak, pass_e = track.moments.n, gate_peak(track), _pass_e(check, track)

    def ruling(result: Result, sentence: Sentence) -> Ruling:
        return Ruling(result, n, peak, check.fail_threshold, pass_e, sentence, pass_bar)

    if peak >= check.fail_threshold:
        return ruling(
            Result.FAIL,
            lambda measured: (
                f"{_breach(check, track, measured)}: e-value {peak:.2g} >= {check.fail_threshold:.4g} after {n} requests"
            ),
        )
    silence = _silence(check, track, n)
    if silence is not None:
        return ruling(silence, lambda _: _silence_text(check, track, n))
    if n < check.min_requests:
        return ruling(Result.PENDING, lambda measured: f"{measured}: {n} of {check.min_requests} requests with {check.metric}")
    if pass_e >= pass_bar:
        side = "above" if check.null is Null.AT_LEAST else "below"
        return ruling(
            Result.PASS,
            lambda measured: (
                f"{measured} is {side} {check.pass_at:g}{_claimed(check, track)}: "
                f"e-value {pass_e:.2g} >= {pass_bar:.4g} after {n} requests"
            ),
        )
    return ruling(
        Result.PENDING,
        lambda measured: (
            f"{measured} is undecided after {n} requests: against {_bar_text(check)} e-value {peak:.2g} < "
            f"{check.fail_threshold:.4g}, for {check.pass_at:g} e-value {pass_e:.2g} < {pass_bar:.4g}"
        ),
    )


def _watched(check: Check, track: Track) -> Ruling:
    n, bar = track.promoted.n, check.monitor_threshold
    monitor = track.monitor if track.strata is None else track.strata.monitor
    peak = monitor.peak

    def ruling(result: Result, sentence: Sentence) -> Ruling:
        return Ruling(result, n, peak, bar, None, sentence)

    if peak >= bar:
        return ruling(
            Result.FAIL,
            lambda measured: f"{_breach(check, track, measured)}: detector {peak:.2g} >= {bar:.4g} after {n} requests",
        )
    silence = _silence(check, track, n)
    if silence is not None:
        return ruling(silence, lambda _: _silence_text(check, track, n))
    return ruling(Result.PASS, lambda measured: f"{measured}: detector {monitor.e_value:.2g} < {bar:.4g} after {n} requests")


def _split(check: Check, track: Track) -> Ruling | None:
    """Return ERROR when the split is not what the weight says: the data is void, which holds, and is no fault of the candidate.

    It vouches for data and proves nothing about the candidate, so it does not hold a step that has no split yet.
    """
    rival = track.rival
    if rival is None or rival.n == 0:
        return None
    n, peak, bar = rival.n, rival.peak, check.fail_threshold
    if peak >= bar:
        text = (
            f"live requests are not split as the weight says, so comparisons are void: e-value {peak:.2g} >= {bar:.4g} after "
            f"{n} requests; look for sticky keys, retries or a gateway with an old route, "
            "then: specops rollout pause ID, and rollout retry ID"
        )
        return Ruling(Result.ERROR, n, peak, bar, None, lambda _: text)
    return Ruling(Result.PASS, n, peak, bar, None, lambda _: f"split agrees with the weight: e-value {peak:.2g} < {bar:.4g}")


def _overdue(check: Check, ruling: Ruling, waited_s: float) -> Ruling:
    hours, limit = waited_s / 3600.0, (check.max_wait_s or 0.0) / 3600.0
    return replace(
        ruling, result=Result.INCONCLUSIVE if ruling.result is Result.PENDING else ruling.result, overdue=True,
        sentence=lambda measured: f"{ruling.sentence(measured)}; waited {hours:.1f} h of {limit:.1f} h, a person must decide",
    )  # fmt: skip


def _silence(check: Check, track: Track, n: int) -> Result | None:
    """Return what to say when the metric stays away: no value yet, or none in the last `min_requests` completed requests."""
    if n > 0 and track.gap < check.min_requests:
        return None
    fails = check.on_no_data is OnNoData.FAIL and track.gap >= check.min_requests
    return Result.FAIL if fails else Result.PENDING


def _silence_text(check: Check, track: Track, n: int) -> str:
    if track.gap == 0:
        return f"no request with {check.metric} yet"
    text = f"no data: the last {track.gap} completed requests carried no {check.metric}, {n} before did"
    return f"{text}; on_no_data is {check.on_no_data}"


def _bar_text(check: Check) -> str:
    return "the baseline" if check.is_rival else f"{check.limit:g}"


def _breach(check: Check, track: Track, measured: str) -> str:
    """Return what is out of bounds, the newest requests first: a mean over everything hides a change."""
    side = "below" if check.null is Null.AT_LEAST else "above"
    if check.is_rival and track.rival is not None:
        ratio = f" {check.limit:g} times" if check.limit > 1.0 else ""
        mean = track.baseline.mean
        beside = f" ({mean:.2f} at the same time)" if mean is not None else ""
        return f"{measured} is {side}{ratio} the baseline's{beside}, by the arm of {track.rival.n} bad requests"
    if track.moments.n <= len(track.recent):
        return f"{measured} is {side} {check.limit:g}"
    recent = check.from_sample(sum(track.recent) / len(track.recent))
    return f"{measured}, last {len(track.recent)} requests {recent:.2f}, is {side} {check.limit:g}"


def _claimed(check: Check, track: Track) -> str:
    """Return which strata are not part of what is proven, for want of requests."""
    if check.strata is None or track.strata is None:
        return ""
    claimed = track.strata.claimed(check.min_requests)
    thin = [label for label in check.strata.labels if label not in claimed]
    return f" in each stratum with {check.min_requests} requests" + (f" (not claimed: {', '.join(thin)})" if thin else "")
