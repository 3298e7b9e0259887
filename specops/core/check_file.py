"""One entry under `checks:` of a policy file, read into a `Check`: which keys go together, and what their values mean.

Called by `core.policy.parse_policy` only. Whether one value alone is right is decided by `core.policy_fields`; whether a policy
is wise is for `core.policy_lint`.
"""

from collections.abc import Mapping
from typing import Any

from specops.core.check import TIMES, Against, By, Check, Estimand, Metric, OnNoData, Scope, Strata
from specops.core.ladder import Rung
from specops.core.policy_fields import CHECK_FIELDS
from specops.core.policy_kinds import SHARE, Number, read, require_mapping, shown
from specops.errors import PolicyError
from specops.stats.speedup import LARGEST
from specops.stats.wealth import Null

_COMPARISONS = {
    Metric.ACCEPTANCE_RATE: (Against.LIMIT, Against.PAIRS),
    Metric.SPEEDUP: (Against.PAIRS,),
    Metric.SPLIT: (Against.BASELINE,),
}
_SPEEDUP = Number(low=1.0 / LARGEST, high=LARGEST, low_in=True, why="a ratio of seconds per token")
_DIFFERENCE = Number(low_in=True, why="a difference of shares")


def read_check(rule: Mapping[str, Any], number: int, shared: Mapping[str, Any], weight: float) -> Check:
    """Return one check.

    Args:
        rule: the mapping in the file.
        number: its place, from 1, for messages before it has a name.
        shared: `alpha`, `arl_requests` and `max_wait` of the policy.
        weight: its weight where it says none.

    Raises:
        PolicyError: a key is unknown, missing, of the wrong kind, out of range, or contradicts another.
    """
    where = f"check {shown(rule.get('name', number))}"
    given = read(rule, CHECK_FIELDS, where)
    metric = Metric(given["metric"])
    against = _against(given, metric, where)
    _refuse_what_decides_nothing(given, metric, where)
    null, limit, limit_s = _limit(given, metric, against, where)
    pass_at = _pass_at(given, metric, against, null, limit, where)
    strata = _strata(given["strata"], metric, against, where)
    check = Check(
        name=given["name"], metric=metric, null=null, limit=limit, limit_s=limit_s, pass_at=pass_at,
        alpha=_or(given["alpha"], shared["alpha"]), weight=_or(given["weight"], weight), min_requests=given["min_requests"],
        arl_requests=_or(given["arl_requests"], shared["arl_requests"]), on_no_data=OnNoData(given["on_no_data"]),
        owner=given["owner"], source=given["source"], description=given["description"], against=against, strata=strata,
        only=_scope(given["only"], where), max_wait_s=_or(given["max_wait"], shared["max_wait"]), precursor=given["precursor"],
        on_fail=Rung(_or(given["on_fail"], Rung.ESCALATE if given["precursor"] else Rung.ROLL_BACK)),
    )  # fmt: skip
    for stratum in range(strata.count if strata and strata.limits else 0):
        SHARE.read(check.pass_at_of(stratum), where, f"pass_at of stratum {stratum + 1}")
    return check


def decides(rule: Mapping[str, Any]) -> bool:
    """Tell whether a rule can end a trial and so takes part in the error budget: a precursor or a split check cannot."""
    return not rule.get("precursor") and rule.get("metric") != Metric.SPLIT


def _or(value: Any, default: Any) -> Any:  # noqa: ANN401  # of whatever kind the key has
    return default if value is None else value


def _against(given: Mapping[str, Any], metric: Metric, where: str) -> Against:
    options = _COMPARISONS.get(metric, tuple(Against))
    against = Against(given["against"] or options[0])
    if against not in options:
        raise PolicyError(f"{where}: metric {metric} cannot be judged against {against}; use {' or '.join(options)}")
    return against


def _refuse_what_decides_nothing(given: Mapping[str, Any], metric: Metric, where: str) -> None:
    if given["estimand"] == Estimand.RATIO_OF_SUMS:
        raise PolicyError(
            f"{where}: ratio_of_sums has no test that holds at every look, so it is reported and decides nothing; "
            "use estimand mean_of_requests"
        )
    if given["on_fail"] is not None and given["precursor"]:
        raise PolicyError(f"{where} is a precursor and only alerts; drop 'on_fail', or 'precursor'")
    if given["on_fail"] is not None and metric is Metric.SPLIT:
        raise PolicyError(f"{where}: a broken split voids the data, so it holds and alerts; drop 'on_fail'")


def _limit(given: Mapping[str, Any], metric: Metric, against: Against, where: str) -> tuple[Null, float, float | None]:
    """Return what "fine" means: (null, limit, seconds or None)."""
    side = Null.AT_LEAST if metric in {Metric.ACCEPTANCE_RATE, Metric.SPEEDUP} else Null.AT_MOST
    is_time = metric in TIMES
    needed = {side.value} if is_time or against is Against.LIMIT or metric is Metric.SPEEDUP else set()
    present = {key for key in ("at_least", "at_most") if given[key] is not None}
    if present != needed:
        wants = " and ".join([f"needs {key!r}" for key in sorted(needed)] + [f"no {key!r}" for key in sorted(_SIDES - needed)])
        raise PolicyError(f"{where}: metric {metric} against {against} {wants}, got {sorted(present)}")
    margin, ratio = _tolerance(given, metric, against, where)
    if metric is Metric.SPEEDUP:
        return side, _SPEEDUP.read(given["at_least"], where, "at_least"), None
    if is_time:
        exceedance = require_mapping(given["at_most"], f"{where}: at_most")
        if (exceedance["share"] is None) is (against is Against.LIMIT):
            verb = "needs" if against is Against.LIMIT else "takes no"
            raise PolicyError(
                f"{where}: at_most {verb} 'share' against {against}; a comparison has 'margin' or 'ratio' instead"
            )
        beside = ratio if against is Against.BASELINE else margin
        return side, _or(exceedance["share"], beside), exceedance["limit_s"]
    if against is Against.LIMIT:
        return side, SHARE.read(given[side.value], where, side.value), None
    if against is Against.BASELINE:
        return side, ratio if metric is Metric.ERROR else 0.0, None
    return side, -margin if side is Null.AT_LEAST else margin, None


_SIDES = {"at_least", "at_most"}


def _tolerance(given: Mapping[str, Any], metric: Metric, against: Against, where: str) -> tuple[float, float]:
    """Return the allowed worsening: a difference of shares within pairs, a ratio of shares against the baseline."""
    takes = {"margin": against is Against.PAIRS, "ratio": against is Against.BASELINE}
    for key, fits in takes.items():
        if given[key] is not None and (metric in {Metric.SPEEDUP, Metric.SPLIT} or not fits):
            raise PolicyError(
                f"{where}: {metric} against {against} takes no {key!r}; margin is for pairs, ratio for the baseline"
            )
    return float(given["margin"] or 0.0), float(given["ratio"] or 1.0)


def _pass_at(given: Mapping[str, Any], metric: Metric, against: Against, null: Null, limit: float, where: str) -> float:
    """Return what must be excluded before promotion: the limit, or something more lenient."""
    pass_at, pass_margin = given["pass_at"], given["pass_margin"]
    if pass_at is not None and pass_margin is not None:
        raise PolicyError(f"{where} has both 'pass_at' and 'pass_margin'; keep one")
    if metric is Metric.SPLIT:
        return 0.0
    if against is Against.BASELINE:
        if pass_at is None:
            raise PolicyError(f"{where} needs 'pass_at' against the baseline: the share of its own requests that it must prove")
        return float(SHARE.read(pass_at, where, "pass_at"))
    is_difference = against is Against.PAIRS and metric is not Metric.SPEEDUP
    if is_difference and pass_at is None and pass_margin is None:
        raise PolicyError(f"{where} needs 'pass_at' within pairs: the worsening that must be excluded before promotion")
    sign = -1.0 if null is Null.AT_LEAST else 1.0
    if pass_margin is not None:
        lenient = limit + sign * pass_margin
        (_DIFFERENCE if is_difference else _range_of(metric)).read(
            sign * lenient if is_difference else lenient, where, "pass_margin"
        )
        return float(lenient)
    lenient = (
        limit if pass_at is None else (_DIFFERENCE if is_difference else _range_of(metric)).read(pass_at, where, "pass_at")
    )
    lenient = sign * lenient if is_difference else lenient
    if (lenient - limit) * sign < 0:
        raise PolicyError(
            f"{where}: pass_at {lenient:g} is stricter than the limit {limit:g}; make it the limit or more lenient"
        )
    return lenient


def _range_of(metric: Metric) -> Number:
    return _SPEEDUP if metric is Metric.SPEEDUP else SHARE


def _strata(given: Mapping[str, Any] | None, metric: Metric, against: Against, where: str) -> Strata | None:
    if given is None:
        return None
    if against is Against.BASELINE:
        raise PolicyError(
            f"{where}: strata do not go with {metric} against the baseline, which compares at the same time already"
        )
    by, edges, limits = By(given["by"]), given["edges"] or (), given["limits"] or ()
    if (by is By.KIND) == bool(edges):
        raise PolicyError(f"{where}: strata by {by} {'take no' if edges else 'need'} 'edges'")
    if list(edges) != sorted(set(edges)):
        raise PolicyError(f"{where}: edges of strata must rise, got {list(edges)}")
    strata = Strata(by=by, edges=edges, limits=limits)
    if limits and against is not Against.LIMIT:
        raise PolicyError(f"{where}: limits of strata go with a fixed limit only; within pairs the baseline is the limit")
    if limits and len(limits) != strata.count:
        raise PolicyError(f"{where}: {strata.count} strata ({', '.join(strata.labels)}) need as many limits, got {len(limits)}")
    return strata


def _scope(given: Mapping[str, Any] | None, where: str) -> Scope | None:
    if given is None:
        return None
    above, at_most = given["in_flight_above"], given["in_flight_at_most"]
    if above is None and at_most is None:
        raise PolicyError(f"{where}: only needs 'in_flight_above' or 'in_flight_at_most'; drop it to look at every load")
    if above is not None and at_most is not None and above >= at_most:
        raise PolicyError(
            f"{where}: no request has more than {above} and at most {at_most} in flight, so the check sees nothing"
        )
    return Scope(above=above, at_most=at_most)
