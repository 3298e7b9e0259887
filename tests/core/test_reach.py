"""How many requests a check needs agrees with feeding them, and explanations say it."""

from pathlib import Path

import pytest
import yaml

from specops.core import reach as subject
from specops.core.policy import parse_policy
from specops.core.policy_text import explain
from specops.core.track import Track

POLICIES = Path(__file__).parents[2] / "policies"
CHECKS = [
    {"name": "a", "metric": "acceptance_rate", "at_least": 0.5, "pass_at": 0.4, "min_requests": 1},
    {"name": "b", "metric": "ttft_s", "at_most": {"limit_s": 1, "share": 0.05}, "pass_at": 0.15, "min_requests": 1},
    {"name": "c", "metric": "speedup", "at_least": 1.2, "pass_at": 1.0, "min_requests": 1},
    {"name": "d", "metric": "error", "against": "pairs", "pass_at": 0.2, "min_requests": 1},
]
POLICY = parse_policy({"name": "p", "checks": [check | {"owner": "o"} for check in CHECKS]})


def _count(track, x, side, bar, *, promoted=False):
    n = 0
    while getattr(track, side).e_value < bar:
        track, n = track.take(x, promoted=promoted), n + 1
    return n


@pytest.mark.parametrize("check", POLICY.checks, ids=lambda c: c.name)
def test_the_count_is_what_feeding_shows(check):
    """To the request for passing and for alarms; for failing a bound, since an e-process may have caught on late."""
    needed, start = subject.reach(check), Track.start(check)
    good, bad = subject._good(check), subject._bad(check)

    assert needed.to_pass == _count(start, good, "non_inferior", check.pass_threshold)
    assert needed.to_alarm == _count(start, bad, "monitor", check.monitor_threshold, promoted=True)
    assert 0 <= needed.to_fail - _count(start, bad, "gate", check.fail_threshold) <= 2


def test_the_table_of_clean_requests_is_right():
    """The figures printed in the how-to and in the default policy."""
    shares = (0.05, 0.10, 0.15, 0.20, 0.25)
    rule = {"metric": "error", "at_most": 0.02, "min_requests": 1, "owner": "o"}
    policy = parse_policy({"name": "p", "checks": [rule | {"name": str(s), "pass_at": s} for s in shares]})

    assert [subject.reach(c).to_pass for c in policy.checks] == [100, 49, 32, 23, 18]


def test_comparisons_have_no_alarm_and_a_split_needs_no_proof():
    """Once promoted there is nothing to compare with."""
    beside = {"name": "e", "metric": "error", "against": "baseline", "pass_at": 0.1, "owner": "o"}
    split = {"name": "s", "metric": "split", "owner": "o"}
    one, two = parse_policy({"name": "p", "checks": [beside, split]}).checks

    assert (subject.reach(one).to_alarm, subject.reach(one).to_pass) == (None, 49)
    assert (subject.reach(two).to_alarm, subject.reach(two).to_pass) == (None, 1)


def test_what_no_number_of_requests_decides_is_none():
    """A sample on the wrong side of the limit gains nothing, nor does one a hair beyond it."""
    bets = Track.start(POLICY.checks[1]).gate.bets

    assert subject._until(bets, 0.01, 1.0) is None
    assert subject._until(bets, bets.limit + 1e-12, 100.0) is None


@pytest.mark.parametrize("name", ["default", "strict", "latency-first", "high-load", "drift-watch", "quickstart"])
def test_a_policy_is_explained_in_sentences(name):
    """One per check and fatal class, each ending in a full stop, with owner and numbers in it."""
    policy = parse_policy(yaml.safe_load((POLICIES / f"{name}.yaml").read_text(encoding="utf-8")))

    lines = explain(policy)

    assert len(lines) == len(policy.fatal) + len(policy.checks) + (policy.speculate_below is not None)
    assert all(line.endswith(".") and "\n" not in line for line in lines)
    assert all(check.owner in line for check, line in zip(policy.checks, lines[-len(policy.checks) :], strict=True))


def test_sentences_say_what_is_compared(policy_mapping):
    """A ratio, a difference, a speed-up and a share that nothing could prove read as such."""
    beside = {"name": "beside", "metric": "error", "against": "baseline", "ratio": 2, "pass_at": 0.1}
    even = {"name": "even", "metric": "error", "against": "baseline", "pass_at": 0.1}
    pairs = {"name": "pairs", "metric": "acceptance_rate", "against": "pairs", "margin": 0.05, "pass_at": 0.1}
    never = {"name": "never", "metric": "acceptance_rate", "at_least": 1 - 1e-12, "pass_at": 1 - 2e-12, "max_wait": "2h"}
    kinds = {"name": "kinds", "metric": "acceptance_rate", "at_least": 0.5, "strata": {"by": "kind"}, "on_no_data": "fail"}
    rules = [rule | {"owner": "o"} for rule in (beside, even, pairs, never, kinds)]

    text = "\n".join(explain(parse_policy(policy_mapping | {"checks": rules})))

    assert "no more than 2 times the baseline's at the same time" in text
    assert "no more than the baseline's" in text
    assert "differs from the same requests on the baseline by at least -0.05" in text
    assert "no number of requests is enough; undecided after 2 h is INCONCLUSIVE" in text
    assert "judged apart for live, shadow" in text
    assert "20 requests without the metric fail" in text
