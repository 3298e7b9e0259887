"""A policy in plain sentences, one per check: what `specops policy explain` prints and a reviewer reads aloud.

Called by the command line and by reports. It says nothing that the parsed policy does not hold.
"""

from specops.core.check import Against, Check, Metric
from specops.core.ladder import Rung
from specops.core.policy import Policy
from specops.core.reach import reach
from specops.stats.wealth import Null

_ACTIONS = {
    Rung.ABSTAIN: "the step is held",
    Rung.ASK_MORE: "more requests are asked for",
    Rung.ESCALATE: "a person is called and the rollout waits",
    Rung.SHRINK_K: "fewer tokens are proposed per round",
    Rung.SHED: "speculation is limited to low load",
    Rung.FALLBACK: "live traffic falls back to the baseline",
    Rung.ROLL_BACK: "the rollout is rolled back",
    Rung.STOP: "the rollout is stopped and the candidate barred",
}


def explain(policy: Policy) -> tuple[str, ...]:
    """Return the policy in sentences: its fatal classes, its load limit, then each check in the order of the file."""
    lines = [
        f"{count} {name} of the candidate: the rollout is rolled back, without statistics." for name, count in policy.fatal
    ]
    if policy.speculate_below is not None:
        lines.append(f"The draft pays only below {policy.speculate_below} requests in flight.")
    return (*lines, *(explain_check(check) for check in policy.checks))


def explain_check(check: Check) -> str:
    """Return one check in one sentence."""
    if check.metric is Metric.SPLIT:
        return (
            f"{check.name}: if live requests are not split as the weight says (a false alarm in at most "
            f"{check.alpha * check.weight:.2g} of healthy rollouts), comparisons are void, "
            f"everything holds and {check.owner} is called."
        )
    where = f" with {check.only.text}" if check.only else ""
    fine = f"{check.name}{where}: {_fine(check)}{_strata(check)}"
    happens = f"{check.owner} is alerted early and nothing else happens" if check.precursor else f"{_ACTIONS[check.on_fail]}"
    fails = f"when that is disproved (in at most {check.alpha * check.weight:.2g} of healthy rollouts), {happens}"
    called = "" if check.precursor else f" and {check.owner} is called"
    return f"{fine}; {fails}{called}; {_passes(check)}{_wait(check)}{_silence(check)}."


def _fine(check: Check) -> str:
    what = f"{check.metric}"
    if check.limit_s is not None:
        what = f"the share of requests with {check.metric} over {check.limit_s:g} s"
    elif check.metric is Metric.ERROR:
        what = "the share of requests that end in an error"
    elif check.metric is Metric.SPEEDUP:
        what = "the speed-up (seconds per token, baseline / candidate)"
    bound = "at least" if check.null is Null.AT_LEAST else "at most"
    if check.against is Against.BASELINE:
        times = "" if check.limit == 1.0 else f"{check.limit:g} times "
        return f"{what} is fine at no more than {times}the baseline's at the same time"
    if check.is_difference:
        return f"{what} is fine when it differs from the same requests on the baseline by {bound} {check.limit:g}"
    return f"{what} is fine when {bound} {check.limit:g}"


def _strata(check: Check) -> str:
    if check.strata is None:
        return ""
    limits = [
        f"{label} ({check.limit_of(i):g})" if check.strata.limits else label for i, label in enumerate(check.strata.labels)
    ]
    return f", judged apart for {', '.join(limits)}"


def _passes(check: Check) -> str:
    needed = reach(check).to_pass
    side = "above" if check.null is Null.AT_LEAST else "below"
    count = "no number of requests is enough" if needed is None else f"a clearly good candidate needs {needed} requests"
    return f"promotion needs proof of {side} {check.pass_at:g}, for which {count}"


def _wait(check: Check) -> str:
    return "" if check.max_wait_s is None else f"; undecided after {check.max_wait_s / 3600:g} h is INCONCLUSIVE"


def _silence(check: Check) -> str:
    return f"; {check.min_requests} requests without the metric {'fail' if check.on_no_data == 'fail' else 'hold'}"
