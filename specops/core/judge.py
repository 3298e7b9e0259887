"""The judge: what the policy says about the evidence so far. Pure: same window, same policy, same verdict.

Called by `control` after each fold; `core.rollout.advance` turns the verdict into an action.

Each check is a three-way decision. On trial: FAIL when "fine" is rejected, PASS when "worse than pass_at" is rejected, PENDING
in between: absence of evidence never promotes. Promoted: FAIL when the detector reaches its run length, PASS otherwise. Fatal
error classes bypass statistics. Unusable data makes the verdict ERROR, which only a FAIL outranks.
"""

from datetime import datetime

from specops.core.policy import Check, Metric, OnNoData, Policy
from specops.core.verdict import Finding, Result, Verdict, worst
from specops.core.window import Track, Window, require_same_policy
from specops.stats.confidence import Interval, Moments, bernoulli_interval, bounded_interval
from specops.stats.wealth import Null

INTERVAL_ALPHA = 0.05
# On trial the 5% are shared: the two tests at the limits may cut the interval, so that what is printed agrees with the verdict.
MOMENTS_ALPHA, GATE_ALPHA, PASS_ALPHA = 0.035, 0.005, 0.01


def judge(policy: Policy, window: Window, *, promoted: bool, now: datetime, data_errors: tuple[str, ...] = ()) -> Verdict:
    """Return the verdict on all evidence so far.

    Args:
        policy: the policy the window was folded under.
        window: the evidence.
        promoted: the candidate serves everyone: judge by the monitors.
        now: time of the verdict, UTC; not used to decide.
        data_errors: complaints of the data suite about the outcomes, one line each.

    Raises:
        InvalidRecord: the window was folded under another policy.
    """
    require_same_policy(window, policy)
    one = _watched if promoted else _on_trial
    tracks = zip(policy.checks, window.tracks, strict=True)
    findings = (*_fatal(policy, window), *_data(data_errors), *(one(check, track) for check, track in tracks))
    return Verdict(
        result=worst([f.result for f in findings]),
        findings=findings,
        policy_digest=policy.digest,
        outcomes=window.outcomes,
        at=now,
    )


def _fatal(policy: Policy, window: Window) -> list[Finding]:
    """Return a FAIL for each fatal class that reached its count; its numbers are counts, not e-values."""
    seen = dict(window.errors)
    return [
        _plain(
            f"fatal:{name}",
            Result.FAIL,
            f"{seen[name]} request(s) of the candidate ended with {name}; policy {policy.name} fails at {count}",
            metric="error",
            count=seen[name],
            limit=count,
        )
        for name, count in policy.fatal
        if seen.get(name, 0) >= count
    ]


def _data(complaints: tuple[str, ...]) -> list[Finding]:
    if not complaints:
        return []
    reason = f"outcomes are unusable, nothing is decided on them: {'; '.join(complaints)}"
    return [_plain("data", Result.ERROR, reason, metric="data", count=len(complaints), limit=1)]


def _plain(check: str, result: Result, reason: str, *, metric: str, count: int, limit: int) -> Finding:
    """Return a finding that rests on a count alone."""
    return Finding(
        check=check, result=result, metric=metric, n=count, estimate=float(count), low=None, high=None, limit=float(limit),
        unit="count", e_value=float(count), e_threshold=float(limit), pass_e_value=None, pass_threshold=None, owner="",
        reason=reason,
    )  # fmt: skip


def _on_trial(check: Check, track: Track) -> Finding:
    interval = _trial_interval(check, track)
    n, peak, for_pass = track.moments.n, track.gate.peak, track.non_inferior.e_value
    measured = _measured(check, interval)
    if peak >= check.fail_threshold:
        text = f"{_breach(check, track, measured)}: e-value {peak:.2g} >= {check.fail_threshold:.4g} after {n} requests"
        result = Result.FAIL
    elif (silent := _silence(check, track, n)) is not None:
        result, text = silent
    elif n < check.min_requests:
        result, text = Result.PENDING, f"{measured}: {n} of {check.min_requests} requests with {check.metric}"
    else:
        result, text = _promotion(check, n, peak, for_pass, measured)
    return _finding(check, result, interval, text, n=n, against=(peak, check.fail_threshold), for_pass=for_pass)


def _promotion(check: Check, n: int, peak: float, for_pass: float, measured: str) -> tuple[Result, str]:
    """Return PASS when "worse than pass_at" is rejected, else PENDING; both with the numbers."""
    if for_pass >= check.pass_threshold:
        proven = f"{'above' if check.null is Null.AT_LEAST else 'below'} {check.pass_at:g}"
        return Result.PASS, f"{measured} is {proven}: e-value {for_pass:.2g} >= {check.pass_threshold:.4g} after {n} requests"
    return Result.PENDING, (
        f"{measured} is undecided after {n} requests: against {check.limit:g} e-value {peak:.2g} < {check.fail_threshold:.4g}, "
        f"for {check.pass_at:g} e-value {for_pass:.2g} < {check.pass_threshold:.4g}"
    )


def _watched(check: Check, track: Track) -> Finding:
    n, peak, bar = track.promoted.n, track.monitor.peak, check.monitor_threshold
    interval = _interval(check, track.promoted, INTERVAL_ALPHA)
    measured = f"{_measured(check, interval)} since promotion"
    if peak >= bar:
        text = f"{_breach(check, track, measured)}: detector {peak:.2g} >= {bar:.4g} after {n} requests"
        result = Result.FAIL
    elif (silent := _silence(check, track, n)) is not None:
        result, text = silent
    else:
        result, text = Result.PASS, f"{measured}: detector {track.monitor.e_value:.2g} < {bar:.4g} after {n} requests"
    return _finding(check, result, interval, text, n=n, against=(peak, bar), for_pass=None)


def _breach(check: Check, track: Track, measured: str) -> str:
    """Return what is out of bounds, the newest requests first: a mean over everything hides a change."""
    recent = sum(track.recent) / len(track.recent)
    side = "below" if check.null is Null.AT_LEAST else "above"
    if track.moments.n <= len(track.recent):
        return f"{measured} is {side} {check.limit:g}"
    return f"{measured}, last {len(track.recent)} requests {recent:.2f}, is {side} {check.limit:g}"


def _silence(check: Check, track: Track, n: int) -> tuple[Result, str] | None:
    """Return what to say when the metric stays away: no value yet, or none in the last `min_requests` completed requests."""
    if n > 0 and track.gap < check.min_requests:
        return None
    fails = check.on_no_data is OnNoData.FAIL and track.gap >= check.min_requests
    if track.gap == 0:
        return Result.PENDING, f"no request with {check.metric} yet"
    text = f"no data: the last {track.gap} completed requests carried no {check.metric}, {n} before did"
    return (Result.FAIL if fails else Result.PENDING), f"{text}; on_no_data is {check.on_no_data}"


def _interval(check: Check, moments: Moments, alpha: float) -> Interval | None:
    family = bounded_interval if check.metric is Metric.ACCEPTANCE_RATE else bernoulli_interval
    return family(moments, alpha)


def _trial_interval(check: Check, track: Track) -> Interval | None:
    """Return the 95% confidence sequence, cut at the limits that the two tests have excluded on their part of the 5%."""
    interval = _interval(check, track.moments, MOMENTS_ALPHA)
    if interval is None:
        return None
    low, high, mean = interval.low, interval.high, interval.estimate
    for wealth, alpha in ((track.gate, GATE_ALPHA), (track.non_inferior, PASS_ALPHA)):
        edge = wealth.bets.limit
        if wealth.peak < 1.0 / alpha:
            continue
        if wealth.bets.null is Null.AT_LEAST and mean <= edge:
            high = min(high, edge)
        if wealth.bets.null is Null.AT_MOST and mean >= edge:
            low = max(low, edge)
    return Interval(estimate=mean, low=low, high=high)


def _measured(check: Check, interval: Interval | None) -> str:
    subject = f"{check.metric}" if check.limit_s is None else f"share of requests with {check.metric} over {check.limit_s:g} s"
    if interval is None:
        return f"{subject} unknown"
    return f"{subject} {interval.estimate:.2f} [{interval.low:.2f}, {interval.high:.2f}]"


def _finding(
    check: Check,
    result: Result,
    interval: Interval | None,
    text: str,
    *,
    n: int,
    against: tuple[float, float],
    for_pass: float | None,
) -> Finding:
    estimate, low, high = (interval.estimate, interval.low, interval.high) if interval else (None, None, None)
    return Finding(
        check=check.name, result=result, metric=check.metric.value, n=n, limit=check.limit, unit=check.unit, owner=check.owner,
        estimate=estimate, low=low, high=high,
        e_value=against[0], e_threshold=against[1], pass_e_value=for_pass,
        pass_threshold=check.pass_threshold if for_pass is not None else None, reason=f"{text} (owner {check.owner})",
    )  # fmt: skip
