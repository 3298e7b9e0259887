"""Whether a policy is wise: faults that parse and yet would wait for ever, alarm for nothing, or never speak.

Called by `specops policy lint` and before a rollout starts. Pure: a policy and the expected traffic in, complaints out. What
cannot be parsed is reported here too, check by check, in the parser's own words.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from specops.core.check import Against, Check, Metric, OnNoData
from specops.core.check_file import decides, read_check
from specops.core.guards import PINNED_HIGH, PINNED_LOW
from specops.core.ladder import Rung
from specops.core.policy import Policy, parse_policy
from specops.core.reach import reach
from specops.errors import PolicyError
from specops.stats.wealth import Null

HOUR, DAY = 1.0, 24.0  # the unit of time here
PATIENCE_H = 30 * DAY  # a trial that takes longer than a month has no max_wait and no end
ALARM_H = 7 * DAY  # a collapse that takes a week to notice is not watched
MAX_FATAL = 1_000
MIN_PINNED = 3  # two in a row happen to short, easy answers
MAX_TO_FAIL = 10_000  # clearly bad requests; with more no rollout could be failed
LONGEST_S = {Metric.TTFT_S: 300.0, Metric.E2E_S: 3_600.0, Metric.TPOT_S: 10.0}
NOBODY = frozenset({"tbd", "todo", "nobody", "none", "n/a", "na", "someone", "unknown", "?", "-", "xxx", "fixme"})


class Severity(StrEnum):
    """ERROR: must not be used. WARNING: think again."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Complaint:
    """One fault: where it is (`checks[2].weight`), what is wrong, and the way out."""

    severity: Severity
    path: str
    message: str
    way_out: str


def lint(policy: Policy | Mapping[str, Any], traffic: float | None = None) -> tuple[Complaint, ...]:
    """Return what is wrong with a policy, errors first; nothing when it is sound.

    Args:
        policy: a parsed policy, or the mapping of a file, which may be anything at all.
        traffic: the candidate's requests per hour that are expected; None leaves out what depends on it.
    """
    if not isinstance(policy, Policy):
        try:
            policy = parse_policy(policy)
        except PolicyError as exc:
            return tuple(_unreadable(policy, exc))
    found = [complaint for judge in _OF_POLICY for complaint in judge(policy)]
    for i, check in enumerate(policy.checks):
        found += [complaint for judge in _OF_CHECK for complaint in judge(check, f"checks[{i}]")]
        found += _in_time(check, f"checks[{i}]", traffic) if traffic else []
    return tuple(sorted(found, key=lambda c: c.severity is Severity.WARNING))


def require_sound(policy: Policy) -> None:
    """Refuse a policy that must not judge anything.

    Raises:
        PolicyError: `lint` finds an error in it; names each.
    """
    found = [f"{c.path}: {c.message}; {c.way_out}" for c in lint(policy) if c.severity is Severity.ERROR]
    if found:
        raise PolicyError(f"policy {policy.name} must not be used: {'; '.join(found)}; see specops policy lint")


def _error(path: str, message: str, way_out: str) -> Complaint:
    return Complaint(severity=Severity.ERROR, path=path, message=message, way_out=way_out)


def _warning(path: str, message: str, way_out: str) -> Complaint:
    return Complaint(severity=Severity.WARNING, path=path, message=message, way_out=way_out)


def _unreadable(mapping: Any, exc: PolicyError) -> Iterator[Complaint]:  # noqa: ANN401  # a file may hold anything
    """Yield each check's own fault; the policy's where every check alone can be read."""
    rules = mapping.get("checks") if isinstance(mapping, Mapping) else None
    shared = {"alpha": 0.01, "arl_requests": 1e5, "max_wait": None}
    messages = {}
    for i, rule in enumerate(rules if isinstance(rules, list) else []):
        if isinstance(rule, Mapping):
            try:
                read_check(rule, i + 1, shared, 1.0)
            except PolicyError as fault:
                messages[f"checks[{i}]"] = str(fault)
    for path, message in (messages or {"policy": str(exc)}).items():
        what, _, way_out = message.rpartition("; ")
        yield _error(path, what or way_out, way_out if what else "see the reference page on policies")


def _budget(policy: Policy) -> Iterator[Complaint]:
    deciding = [c for c in policy.checks if not c.precursor and c.metric is not Metric.SPLIT]
    spent = sum(c.alpha * c.weight for c in deciding)
    if spent > policy.alpha * (1 + 1e-9):
        yield _error(
            "checks", f"checks spend {spent:.3g} of error level, the policy promises {policy.alpha:g}",
            "lower the alpha of the checks that have their own, or raise the policy's",
        )  # fmt: skip
    run = 1.0 / sum(c.weight / c.arl_requests for c in deciding)
    if run < policy.arl_requests * (1 - 1e-9):
        yield _error(
            "checks", f"checks alarm falsely every {run:.3g} requests, the policy promises {policy.arl_requests:g}",
            "raise the arl_requests of the checks that have their own",
        )  # fmt: skip
    weight = sum(c.weight for c in deciding)
    if weight < 0.99:  # noqa: PLR2004  # rounding of thirds
        yield _warning("checks", f"weights sum to {weight:g}: {1 - weight:.0%} of alpha is unused", "let weights sum to 1")


def _watch(policy: Policy) -> Iterator[Complaint]:
    if all(c.precursor or c.against is not Against.LIMIT for c in policy.checks):
        yield _error(
            "checks", "nothing watches after promotion: comparisons end when all traffic is the candidate's",
            "add a check against a fixed limit",
        )  # fmt: skip


def _fatal(policy: Policy) -> Iterator[Complaint]:
    for name, count in policy.fatal:
        if count > MAX_FATAL:
            yield _error(f"fatal.{name}", f"{count} of {name} before it is fatal is absurd", "use a check with a share instead")
        if name in {PINNED_LOW, PINNED_HIGH} and count < MIN_PINNED:
            yield _error(
                f"fatal.{name}", f"{count} in a row happens to healthy candidates with short answers",
                f"use at least {MIN_PINNED}, better 10",
            )  # fmt: skip


def _load(policy: Policy) -> Iterator[Complaint]:
    below = policy.speculate_below
    if below is None:
        return
    if below <= 1:
        yield _error(
            "speculate", "the draft pays at no load, so there is nothing to release", "measure the costs again, or drop it"
        )
    for i, check in enumerate(policy.checks):
        if check.only and check.only.above is not None and check.only.above >= below - 1 > 0:
            yield _error(
                f"checks[{i}].only", f"{check.name} looks above {check.only.above} in flight, where nothing speculates",
                "lower in_flight_above, or raise speculate",
            )  # fmt: skip


def _twins(policy: Policy) -> Iterator[Complaint]:
    seen: dict[object, Check] = {}
    for i, check in enumerate(policy.checks):
        question = (check.metric, check.against, check.limit_s, check.only, check.strata, check.precursor)
        other = seen.setdefault(question, check)
        if other is not check:
            yield _error(
                f"checks[{i}]", f"{check.name} asks the same as {other.name}", "keep the stricter one and give it both weights"
            )


def _precursors(policy: Policy) -> Iterator[Complaint]:
    for i, early in enumerate(policy.checks):
        for check in policy.checks if early.precursor else ():
            is_same = (check.metric, check.against, check.only) == (early.metric, early.against, early.only)
            if check.precursor or not is_same or check.limit_s != early.limit_s:
                continue
            sign = 1.0 if early.null is Null.AT_LEAST else -1.0
            if sign * early.limit <= sign * check.limit and early.fail_threshold >= check.fail_threshold:
                yield _error(
                    f"checks[{i}]", f"precursor {early.name} cannot speak before {check.name} has decided",
                    "give it a stricter limit or a larger alpha",
                )  # fmt: skip


def _order(policy: Policy) -> Iterator[Complaint]:
    times = {c.metric: c for c in policy.checks if c.limit_s is not None and c.against is Against.LIMIT}
    first, whole = times.get(Metric.TTFT_S), times.get(Metric.E2E_S)
    if first and whole and (first.limit_s or 0.0) > (whole.limit_s or 0.0):
        yield _error(
            "checks", f"limits are reversed: {first.name} allows {first.limit_s:g} s to the first token, {whole.name} "
            f"{whole.limit_s:g} s to the last", "swap them",
        )  # fmt: skip


def _owner(check: Check, path: str) -> Iterator[Complaint]:
    if check.owner.strip().lower() in NOBODY:
        yield _error(
            f"{path}.owner", f"{check.name} is owned by {check.owner!r}, whom nobody can call", "name a team or a rota"
        )
    if not check.source.strip():
        yield _warning(
            f"{path}.source", f"{check.name} does not say where its threshold comes from", "name a measurement or an objective"
        )


def _limits(check: Check, path: str) -> Iterator[Complaint]:
    longest = LONGEST_S.get(check.metric)
    if check.limit_s is not None and longest is not None and check.limit_s > longest:
        yield _error(
            f"{path}.at_most.limit_s", f"{check.name}: {check.limit_s:g} s of {check.metric} look like milliseconds",
            f"write seconds, at most {longest:g}",
        )  # fmt: skip
    is_vacuous = check.limit > 0.5 if check.null is Null.AT_MOST else check.limit < 0.02  # noqa: PLR2004  # most, hardly any
    if is_vacuous and check.against is Against.LIMIT:
        yield _error(
            f"{path}",
            f"{check.name} is fine at {check.null} {check.limit:g}: hardly any candidate could fail it",
            "set a limit",
        )


def _strata(check: Check, path: str) -> Iterator[Complaint]:
    if check.strata is None or check.only is None or check.strata.by != "in_flight":
        return
    above, at_most = check.only.above or 0, check.only.at_most
    lost = [edge for edge in check.strata.edges if edge <= above or (at_most is not None and edge >= at_most)]
    if lost:
        yield _error(
            f"{path}.strata.edges", f"{check.name} looks at {check.only.text} only, beyond its edges {lost}", "drop those edges"
        )


def _reach(check: Check, path: str) -> Iterator[Complaint]:
    needed = reach(check)
    if needed.to_pass is None:
        yield _error(
            f"{path}.pass_at",
            f"no candidate could prove {check.name}: {check.pass_at:g} is out of reach",
            "make it more lenient",
        )
    if needed.to_fail is None or needed.to_fail > MAX_TO_FAIL:
        count = "no number of" if needed.to_fail is None else f"{needed.to_fail}"
        yield _error(
            f"{path}.alpha", f"{count} clearly bad requests fail {check.name}", "raise alpha or weight, or tighten the limit"
        )


def _silence(check: Check, path: str) -> Iterator[Complaint]:
    if (
        check.on_no_data is OnNoData.HOLD
        and check.max_wait_s is None
        and decides({"precursor": check.precursor, "metric": check.metric})
    ):
        yield _warning(
            f"{path}.max_wait",
            f"undecided or silent, {check.name} would hold a rollout for ever",
            "set max_wait, here or for all",
        )


def _in_time(check: Check, path: str, traffic: float) -> Iterator[Complaint]:
    """Yield what the expected traffic cannot decide in the time there is."""
    needed = reach(check)
    patience_h = PATIENCE_H if check.max_wait_s is None else check.max_wait_s / 3600.0
    hours = (needed.to_pass or 0) / traffic
    if hours > patience_h and not check.precursor:
        key = "alpha" if check.max_wait_s is None else "max_wait"
        yield _error(
            f"{path}.{key}", f"{check.name} needs {needed.to_pass} requests to pass, {hours:.1f} h at {traffic:g} per hour, "
            f"and has {patience_h:.1f} h", "wait longer, make pass_at more lenient, or send more traffic",
        )  # fmt: skip
    alarm_h = (needed.to_alarm or 0) / traffic
    if alarm_h > ALARM_H:
        yield _error(
            f"{path}.arl_requests", f"{check.name} notices a collapse after {needed.to_alarm} requests, "
            f"{alarm_h:.1f} h at {traffic:g} per hour", f"lower arl_requests or raise the weight: {ALARM_H:.0f} h is the most",
        )  # fmt: skip
    if not check.is_rival and check.arl_requests / traffic < DAY:
        yield _warning(
            f"{path}.arl_requests", f"{check.name} promises one false alarm in {check.arl_requests / traffic:.1f} h",
            f"set arl_requests to at least {traffic * DAY * 30:.0f}, a month",
        )  # fmt: skip


def _way_out(check: Check, path: str) -> Iterator[Complaint]:
    if check.on_fail is Rung.ABSTAIN and check.max_wait_s is None and not check.precursor:
        message = f"a FAIL of check {check.name} holds the step for ever and calls nobody"
        yield _warning(f"{path}.max_wait", message, "give it a max_wait, after which a person is called")


_OF_POLICY: tuple[Callable[[Policy], Iterator[Complaint]], ...] = (
    _budget, _watch, _fatal, _load, _twins, _precursors, _order,
)  # fmt: skip
_OF_CHECK: tuple[Callable[[Check, str], Iterator[Complaint]], ...] = (_owner, _limits, _strata, _reach, _silence, _way_out)
