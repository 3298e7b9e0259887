"""The policy: what is acceptable, declared in a file, parsed here into values that cannot be half right.

Called by the edge that has read the YAML and by whoever replays a verdict; reads no file itself. It refuses what it does not
know and what could never fail. How evidence is gathered is for `core.window`, what it means for `core.judge`.

Error budget: a healthy candidate fails some check with probability <= sum of alpha * weight (<= alpha, weights sum to <= 1).
After promotion the mean run between false alarms is >= arl_requests. Passing needs every check at level alpha (an
intersection-union test, Berger 1982), so the promotion side is not divided by weights.
"""

import difflib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from specops.core.canonical import digest_of
from specops.errors import PolicyError
from specops.stats.wealth import Null

MAX_ALPHA = 0.2
MIN_ARL, MAX_ARL = 100.0, 1e12
ERROR_CLASSES = ("engine_unreachable", "engine_5xx", "malformed_stream", "broken_stream", "timeout", "empty_answer")


class Metric(StrEnum):
    """What a check looks at, one sample per candidate request."""

    ACCEPTANCE_RATE = "acceptance_rate"
    TTFT_S = "ttft_s"
    E2E_S = "e2e_s"
    TPOT_S = "tpot_s"
    ERROR = "error"

    @property
    def is_time(self) -> bool:
        """Judged by the share of requests slower than a limit."""
        return self in {Metric.TTFT_S, Metric.E2E_S, Metric.TPOT_S}


class OnNoData(StrEnum):
    """What a check says when its metric stays away: wait, or take silence as a failure."""

    HOLD = "hold"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One rule. `limit` and `pass_at` are rates or shares in (0, 1); `limit_s` is the time in seconds behind a share.

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
    def unit(self) -> str:
        """Unit of limit and estimate."""
        return f"share of requests over {self.limit_s:g} s" if self.limit_s is not None else "share"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Checks and fatal error classes: (class, count at which it fails), sorted by class."""

    name: str
    version: int
    description: str
    fatal: tuple[tuple[str, int], ...]
    checks: tuple[Check, ...]
    digest: str


_POLICY_KEYS = ("name", "version", "description", "alpha", "arl_requests", "fatal", "checks")
_CHECK_KEYS = (
    "name", "metric", "arm", "at_least", "at_most", "pass_at", "pass_margin", "alpha", "weight", "min_requests", "arl_requests",
    "on_no_data", "owner", "source", "description",
)  # fmt: skip


def parse_policy(mapping: Mapping[str, Any]) -> Policy:
    """Return the policy a mapping declares; see `policies/default.yaml` for every field explained.

    Raises:
        PolicyError: a key is unknown or missing, a value is of the wrong kind or out of range, or no result could ever fail.
    """
    where = "policy"
    raw = _mapping(mapping, where)
    _known(raw, _POLICY_KEYS, where)
    name, version = _text(raw, "name", where), _whole(raw, "version", where, default=1)
    rules = raw.get("checks")
    if not isinstance(rules, list) or not rules:
        raise PolicyError(f"policy {name!r} has no checks, so nothing could ever fail; add at least one under 'checks'")
    shared = {key: raw[key] for key in ("alpha", "arl_requests") if key in raw}
    checks = tuple(_check(_mapping(rule, f"check {i + 1}"), i + 1, shared, len(rules)) for i, rule in enumerate(rules))
    _weights(rules, checks)
    names = [c.name for c in checks]
    if len(set(names)) < len(names):
        raise PolicyError(f"policy {name!r} has checks of the same name: {names}; a verdict must name one check")
    description, fatal = _text(raw, "description", where, default=""), _fatal(raw.get("fatal", {}))
    content = {"name": name, "version": version, "fatal": dict(fatal), "checks": [asdict(c) for c in checks]}
    return Policy(
        name=name, version=version, description=description, fatal=fatal, checks=checks,
        digest=digest_of(content | {"description": description}),
    )  # fmt: skip


def _check(rule: Mapping[str, Any], number: int, shared: Mapping[str, Any], count: int) -> Check:
    where = f"check {rule.get('name', number)!r}"
    _known(rule, _CHECK_KEYS, where)
    name, owner = _text(rule, "name", where), _text(rule, "owner", where)
    metric = Metric(_choice(rule, "metric", tuple(Metric), where))
    _choice(rule, "arm", ("candidate",), where, default="candidate")
    null, limit, limit_s = _limit(rule, metric, where)
    merged = {"alpha": 0.01, "arl_requests": 100_000, "weight": 1.0 / count} | dict(shared) | dict(rule)
    return Check(
        name=name, metric=metric, null=null, limit=limit, limit_s=limit_s, pass_at=_pass_at(rule, null, limit, where),
        alpha=_number(merged, "alpha", where, low=0.0, high=MAX_ALPHA, why="at 0 nothing fails, at 1 everything does"),
        weight=_number(merged, "weight", where, low=0.0, high=1.0, high_in=True, why="it is a share of alpha"),
        min_requests=_whole(rule, "min_requests", where, default=20),
        arl_requests=_number(merged, "arl_requests", where, low=MIN_ARL, high=MAX_ARL, why="requests between false alarms"),
        on_no_data=OnNoData(_choice(rule, "on_no_data", tuple(OnNoData), where, default="hold")),
        owner=owner, source=_text(rule, "source", where, default=""), description=_text(rule, "description", where, default=""),
    )  # fmt: skip


def _limit(rule: Mapping[str, Any], metric: Metric, where: str) -> tuple[Null, float, float | None]:
    """Return what "fine" means: (null, rate or share, seconds or None)."""
    side = "at_least" if metric is Metric.ACCEPTANCE_RATE else "at_most"
    other = "at_most" if side == "at_least" else "at_least"
    if side not in rule or other in rule:
        raise PolicyError(f"{where}: metric {metric} needs {side!r} and no {other!r}, got {sorted(rule)}")
    if not metric.is_time:
        return Null(side), _number(rule, side, where, why="at the ends no result could fail"), None
    pair = _mapping(rule[side], f"{where}: {side}")
    _known(pair, ("limit_s", "share"), f"{where}: {side}")
    seconds = _number(pair, "limit_s", f"{where}: {side}", high=86_400.0, why="seconds")
    return Null(side), _number(pair, "share", f"{where}: {side}", why="at the ends no result could fail"), seconds


def _pass_at(rule: Mapping[str, Any], null: Null, limit: float, where: str) -> float:
    """Return the rate or share that must be excluded before promotion: the limit, or a more lenient one."""
    if "pass_at" in rule and "pass_margin" in rule:
        raise PolicyError(f"{where} has both 'pass_at' and 'pass_margin'; keep one")
    if "pass_margin" in rule:
        margin = _number(rule, "pass_margin", where, why="distance from the limit")
        return _number({"pass_margin": limit - margin if null is Null.AT_LEAST else limit + margin}, "pass_margin", where)
    pass_at = _number({"pass_at": limit} | dict(rule), "pass_at", where)
    if (pass_at - limit) * (1 if null is Null.AT_LEAST else -1) > 0:
        raise PolicyError(
            f"{where}: pass_at {pass_at:g} is stricter than the limit {limit:g}; make it the limit or more lenient"
        )
    return pass_at


def _weights(rules: list[Mapping[str, Any]], checks: tuple[Check, ...]) -> None:
    given = sum("weight" in rule for rule in rules)
    if given not in {0, len(rules)}:
        raise PolicyError(f"{given} of {len(rules)} checks have a weight; give one to each, or to none for equal parts")
    total = sum(c.weight for c in checks)
    if total > 1.0 + 1e-9:  # rounding
        raise PolicyError(f"weights of checks sum to {total:g}, more than 1; false alarms would exceed alpha")


def _fatal(value: object) -> tuple[tuple[str, int], ...]:
    counts = _mapping(value, "fatal")
    _known(counts, ERROR_CLASSES, "fatal")
    return tuple(sorted((name, _whole(counts, name, "fatal")) for name in counts))


def _mapping(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise PolicyError(f"{where} must be a mapping of keys to values, got {value!r}")
    return value


def _known(mapping: Mapping[str, Any], keys: tuple[str, ...], where: str) -> None:
    for key in mapping:
        if key not in keys:
            near = difflib.get_close_matches(str(key), keys, n=1, cutoff=0.0)[0]
            raise PolicyError(f"{where} has unknown key {key!r}; did you mean {near!r}? known: {', '.join(keys)}")


def _text(mapping: Mapping[str, Any], key: str, where: str, default: str | None = None) -> str:
    value = mapping.get(key, default)
    if not isinstance(value, str) or (default is None and not value.strip()):
        raise PolicyError(f"{where} needs a text under {key!r}, got {value!r}")
    return value


def _choice(mapping: Mapping[str, Any], key: str, choices: tuple[str, ...], where: str, default: str | None = None) -> str:
    value = mapping.get(key, default)
    if value not in choices:
        raise PolicyError(f"{where}: {key} must be one of {', '.join(choices)}; got {value!r}")
    return str(value)


def _whole(mapping: Mapping[str, Any], key: str, where: str, default: int | None = None) -> int:
    value = mapping.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise PolicyError(f"{where}: {key} must be a whole number of at least 1, got {value!r}")
    return value


def _number(
    mapping: Mapping[str, Any],
    key: str,
    where: str,
    *,
    low: float = 0.0,
    high: float = 1.0,
    high_in: bool = False,
    why: str = "",
) -> float:
    """Return a float in (low, high), or (low, high] with `high_in`."""
    value = mapping.get(key)
    fits = (
        isinstance(value, int | float) and not isinstance(value, bool) and (low < value < high or (high_in and value == high))
    )
    if not fits or value is None:
        ends = f"above {low:g} and {'at most' if high_in else 'below'} {high:g}"
        raise PolicyError(f"{where}: {key} must be a number {ends}, got {value!r}" + (f" ({why})" if why else ""))
    return float(value)
