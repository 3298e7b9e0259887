"""The judge: what the policy says about the evidence so far. Pure: same window, same policy, same moment, same verdict.

Called by `control` after each fold; `core.rollout.advance` turns the verdict into an action. The three-way decision of a check
is in `core.ruling`; here rulings become findings with intervals for people, and findings become a verdict. Fatal classes bypass
statistics. Unusable data or a broken source makes the verdict ERROR, which only a FAIL outranks, and which ends when the data
is sound again. Precursors are shown and never decide.
"""

from datetime import datetime

from specops.core.check import By, Check
from specops.core.ladder import Rung, Terms
from specops.core.policy import Policy
from specops.core.ruling import Ruling, rule
from specops.core.track import Track
from specops.core.verdict import Finding, Result, StratumFigure, Verdict, worst
from specops.core.window import Window, require_same_policy
from specops.stats.confidence import Interval, Moments, bernoulli_interval, bounded_interval
from specops.stats.wealth import Null

INTERVAL_ALPHA = 0.05
# On trial the 5% are shared: the two tests at the limits may cut the interval, so that what is printed agrees with the verdict.
MOMENTS_ALPHA, GATE_ALPHA, PASS_ALPHA = 0.035, 0.005, 0.01


def judge(
    policy: Policy,
    window: Window,
    *,
    terms: Terms,
    now: datetime,
    data_errors: tuple[str, ...] = (),
    sources: tuple[str, ...] = (),
) -> Verdict:
    """Return the verdict on all evidence so far.

    Args:
        policy: the policy the window was folded under.
        window: the evidence.
        terms: what the rollout's state and history mean for it.
        now: time of the verdict, UTC; it decides nothing but whether a check has waited too long.
        data_errors: complaints of the data suite about the outcomes, one line each.
        sources: what is wrong with where the data comes from, one line each: a failed scrape, a counter that went back.

    Raises:
        InvalidRecord: the window was folded under another policy.
    """
    require_same_policy(window, policy)
    findings = [*_fatal(policy, window), *_complaints(data_errors, sources)]
    waited_s = _waited_s(window, now, terms)
    for check, track in zip(policy.checks, window.tracks, strict=True):
        ruling = rule(check, track, terms, waited_s=waited_s)
        if ruling is not None:
            findings.append(_finding(check, track, ruling, promoted=terms.promoted))
    if all(f.precursor for f in findings):
        reason = f"no check of policy {policy.name} has anything to say at this stage; add one against a fixed limit"
        findings.append(_plain("policy", Result.ERROR, reason, metric="policy", count=0, limit=1))
    return Verdict(
        result=worst([f.result for f in findings if not f.precursor]),
        findings=tuple(findings),
        policy_digest=policy.digest,
        outcomes=window.outcomes,
        at=now,
        pass_factor=terms.pass_factor,
    )


def glance(
    policy: Policy,
    window: Window,
    *,
    terms: Terms,
    now: datetime,
    data_errors: tuple[str, ...] = (),
    sources: tuple[str, ...] = (),
) -> Result:
    """Return the result that `judge` would give, without intervals and sentences: cheap enough for every outcome.

    Raises:
        InvalidRecord: the window was folded under another policy.
    """
    require_same_policy(window, policy)
    waited_s = _waited_s(window, now, terms)
    counts = window.fatal_counts
    results = [Result.FAIL for name, count in policy.fatal if counts.get(name, 0) >= count]
    results += [Result.ERROR] * bool(data_errors or sources)
    for check, track in zip(policy.checks, window.tracks, strict=True):
        ruling = None if check.precursor else rule(check, track, terms, waited_s=waited_s)
        if ruling is not None:
            results.append(ruling.result)
    return worst(results)


def _waited_s(window: Window, now: datetime, terms: Terms) -> float:
    since = terms.waiting_since or window.began_at
    return (now - since).total_seconds() if since else 0.0


def _fatal(policy: Policy, window: Window) -> list[Finding]:
    """Return a FAIL for each fatal class that reached its count; its numbers are counts, not e-values."""
    seen = window.fatal_counts
    return [
        _plain(
            f"fatal:{name}",
            Result.FAIL,
            _fatal_text(policy, name, seen[name], count),
            metric="error",
            count=seen[name],
            limit=count,
        )
        for name, count in policy.fatal
        if seen.get(name, 0) >= count
    ]


def _fatal_text(policy: Policy, name: str, seen: int, count: int) -> str:
    if name.startswith("acceptance_pinned"):
        what = "nothing" if name.endswith("low") else "everything"
        return f"{seen} requests of the candidate in a row had {what} accepted ({name}); policy {policy.name} fails at {count}"
    return f"{seen} request(s) of the candidate ended with {name}; policy {policy.name} fails at {count}"


def _complaints(data_errors: tuple[str, ...], sources: tuple[str, ...]) -> list[Finding]:
    found = []
    if data_errors:
        reason = f"outcomes are unusable, nothing is decided on them: {'; '.join(data_errors)}"
        found.append(_plain("data", Result.ERROR, reason, metric="data", count=len(data_errors), limit=1))
    if sources:
        reason = f"the source of the data is broken, nothing is decided until it is back: {'; '.join(sources)}"
        found.append(_plain("source", Result.ERROR, reason, metric="source", count=len(sources), limit=1))
    return found


def _plain(check: str, result: Result, reason: str, *, metric: str, count: int, limit: int) -> Finding:
    """Return a finding that rests on a count alone."""
    return Finding(
        check=check, result=result, metric=metric, n=count, estimate=float(count), low=None, high=None, limit=float(limit),
        unit="count", e_value=float(count), e_threshold=float(limit), pass_e_value=None, pass_threshold=None, owner="",
        reason=reason, action=Rung.ROLL_BACK if result is Result.FAIL else Rung.ABSTAIN,
    )  # fmt: skip


def _finding(check: Check, track: Track, ruling: Ruling, *, promoted: bool) -> Finding:
    figures = _figures(check, track)
    interval = _interval(check, track.promoted, INTERVAL_ALPHA) if promoted else _trial_interval(check, track)
    measured = _measured(check, interval) + (" since promotion" if promoted else "")
    interval = _in_unit(check, interval)
    estimate, low, high = (interval.estimate, interval.low, interval.high) if interval else (None, None, None)
    return Finding(
        check=check.name, result=ruling.result, metric=check.metric.value, n=ruling.n, limit=check.limit, unit=check.unit,
        owner=check.owner, estimate=estimate, low=low, high=high, e_value=ruling.e_value, e_threshold=ruling.bar,
        pass_e_value=ruling.pass_e, pass_threshold=ruling.pass_bar,
        reason=f"{ruling.sentence(measured)} (owner {check.owner})", action=check.on_fail, precursor=check.precursor,
        strata=figures, overdue=ruling.overdue, above=_above(check, figures),
    )  # fmt: skip


def _figures(check: Check, track: Track) -> tuple[StratumFigure, ...]:
    if check.strata is None or track.strata is None:
        return ()
    sides = track.strata
    parts = zip(sides.gate.names, sides.gate.wealths, sides.non_inferior.wealths, sides.non_inferior.moments, strict=True)
    return tuple(
        StratumFigure(
            label=label, n=worse.n, limit=check.limit_of(i), e_value=gate.e_value, pass_e_value=worse.e_value,
            estimate=None if moments.mean is None else check.from_sample(moments.mean),
        )
        for i, (label, gate, worse, moments) in enumerate(parts)
    )  # fmt: skip


def _above(check: Check, figures: tuple[StratumFigure, ...]) -> int | None:
    """Return the load above which a failing check found fault: of its scope, or of its strata that speak against it alone."""
    if check.only is not None and check.only.above is not None:
        return check.only.above
    if check.strata is None or check.strata.by is not By.IN_FLIGHT:
        return None
    bad = next((i for i, figure in enumerate(figures) if figure.e_value >= check.fail_threshold), 0)
    return check.strata.edges[bad - 1] if bad else None


def _interval(check: Check, moments: Moments, alpha: float) -> Interval | None:
    family = bounded_interval if check.is_bounded else bernoulli_interval
    return family(moments, alpha)


def _in_unit(check: Check, interval: Interval | None) -> Interval | None:
    """Return the interval in the unit of the limit; samples of pairs are on a scale of their own."""
    if interval is None:
        return None
    at = check.from_sample
    return Interval(estimate=at(interval.estimate), low=at(interval.low), high=at(interval.high))


def _trial_interval(check: Check, track: Track) -> Interval | None:
    """Return the 95% confidence sequence, cut at the limits that the two tests have excluded on their part of the 5%."""
    interval = _interval(check, track.moments, MOMENTS_ALPHA)
    if interval is None:
        return None
    low, high, mean = interval.low, interval.high, interval.estimate
    for wealth, alpha in ((track.gate, GATE_ALPHA), (track.non_inferior, PASS_ALPHA)):  # unused ones stay at 1
        edge = wealth.bets.limit
        if wealth.peak < 1.0 / alpha:
            continue
        if wealth.bets.null is Null.AT_LEAST and mean <= edge:
            high = min(high, edge)
        if wealth.bets.null is Null.AT_MOST and mean >= edge:
            low = max(low, edge)
    return Interval(estimate=mean, low=low, high=high)


def _measured(check: Check, interval: Interval | None) -> str:
    seen = _in_unit(check, interval)
    return (
        f"{check.subject} unknown" if seen is None else f"{check.subject} {seen.estimate:.2f} [{seen.low:.2f}, {seen.high:.2f}]"
    )
