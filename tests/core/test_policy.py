"""A policy is refused whole when any part of it is wrong, and says which part."""

from pathlib import Path

import pytest
import yaml

from specops.core.policy import Metric, OnNoData, parse_policy
from specops.errors import PolicyError

POLICIES = Path(__file__).parents[2] / "policies"


@pytest.mark.parametrize("name", ["default", "strict", "latency-first", "high-load", "drift-watch", "quickstart"])
def test_a_shipped_policy_parses(name):
    """What we ship is valid, and every threshold names its owner and source."""
    policy = parse_policy(yaml.safe_load((POLICIES / f"{name}.yaml").read_text()))

    assert policy.name == name
    assert all(c.owner and c.source for c in policy.checks)
    assert sum(c.alpha * c.weight for c in policy.checks if not c.precursor and c.metric != "split") <= 0.01 + 1e-12


def test_thresholds_share_alpha_by_weight(policy):
    """Three equal checks at alpha 0.01 fail at 300 each, pass at 100, and monitor at three times the run length."""
    check = policy.checks[0]

    assert check.fail_threshold == pytest.approx(300)
    assert check.pass_threshold == pytest.approx(100)
    assert check.monitor_threshold == pytest.approx(30_000)
    assert (check.metric, check.on_no_data, check.unit) == (Metric.ACCEPTANCE_RATE, OnNoData.HOLD, "share")
    assert policy.checks[1].unit == "share of requests over 2 s"


def test_a_check_overrides_the_shared_alpha(policy_mapping):
    """An alpha or run length of a check wins over the policy's."""
    policy_mapping["checks"][0] |= {"alpha": 0.05, "arl_requests": 500}

    first, second, _ = parse_policy(policy_mapping).checks

    assert (first.alpha, first.arl_requests, second.alpha) == (0.05, 500.0, 0.01)


def test_pass_margin_is_the_distance_from_the_limit(policy_mapping):
    """A margin is taken to the lenient side: down for a floor, up for a ceiling."""
    policy_mapping["checks"][0]["pass_margin"] = 0.05
    policy_mapping["checks"][2] |= {"pass_margin": 0.1}
    del policy_mapping["checks"][2]["pass_at"]

    checks = parse_policy(policy_mapping).checks

    assert checks[0].pass_at == pytest.approx(0.40)
    assert checks[2].pass_at == pytest.approx(0.15)


def test_the_digest_follows_content_and_ignores_order(policy_mapping):
    """Equal rules have equal identity whatever the order of keys; another threshold is another policy."""
    same = dict(reversed(policy_mapping.items()))
    other = policy_mapping | {"alpha": 0.02}

    digest = parse_policy(policy_mapping).digest

    assert digest == parse_policy(same).digest
    assert digest != parse_policy(other).digest


def _spoil(mapping, path, value):
    *parents, last = path
    for key in parents:
        mapping = mapping[key]
    if value is None:
        del mapping[last]
    else:
        mapping[last] = value


ACCEPTANCE, TTFT, ERRORS = ("checks", 0), ("checks", 1), ("checks", 2)


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (("chekcs",), [], "did you mean 'checks'"),
        ((*ACCEPTANCE, "at_leest"), 0.4, "did you mean 'at_least'"),
        ((*TTFT, "at_most", "limit_ms"), 4, "did you mean 'limit_s'"),
        (("fatal", "engine_unreachabel"), 1, "did you mean 'engine_unreachable'"),
        (("checks",), [], "no checks"),
        (("checks",), {"a": 1}, "no checks"),
        (("checks", 0), "acceptance", "check 1 must be a mapping"),
        (("fatal",), ["engine_unreachable"], "fatal must be a mapping"),
        (("fatal", "empty_answer"), 0, "at least 1"),
        (("name",), "", "needs a text under 'name'"),
        (("alpha",), 0, "alpha must be a number above 0"),
        (("alpha",), 0.9, "alpha must be a number above 0"),
        (("alpha",), True, "alpha must be a number"),
        (("arl_requests",), 1, "arl_requests must be a number above 100"),
        (("version",), "1", "version must be a whole number"),
        ((*ACCEPTANCE, "at_least"), 0, "at_least must be a number above 0"),
        ((*ACCEPTANCE, "at_least"), "45%", "at_least must be a number"),
        ((*ACCEPTANCE, "at_least"), None, "needs 'at_least'"),
        ((*ACCEPTANCE, "at_most"), 0.9, "no 'at_most'"),
        ((*ACCEPTANCE, "pass_at"), 0.6, "stricter than the limit"),
        ((*ACCEPTANCE, "pass_margin"), 0.45, "pass_margin must be a number above 0"),
        ((*ACCEPTANCE, "metric"), "speed", "metric must be one of acceptance_rate"),
        ((*ACCEPTANCE, "arm"), "baseline", "arm must be one of candidate"),
        ((*ACCEPTANCE, "owner"), None, "needs a text under 'owner'"),
        ((*ACCEPTANCE, "name"), "ttft", "same name"),
        ((*ACCEPTANCE, "weight"), 0.5, "1 of 3 checks have a weight"),
        ((*ACCEPTANCE, "min_requests"), 2.5, "min_requests must be a whole number"),
        ((*ACCEPTANCE, "on_no_data"), "ignore", "on_no_data must be one of hold, fail"),
        ((*TTFT, "at_most"), 2.0, "at_most must be a mapping"),
        ((*TTFT, "at_most", "share"), 1, "share must be a number above 0 and below 1"),
        ((*TTFT, "at_most", "limit_s"), 0, "limit_s must be a number above 0"),
        ((*TTFT, "pass_margin"), 0.1, "both 'pass_at' and 'pass_margin'"),
        ((*ERRORS, "pass_at"), 0.01, "stricter than the limit"),
    ],
)
def test_a_wrong_policy_is_refused_with_the_way_out(policy_mapping, path, value, says):
    """Every mistake names the key, what was got and what would do."""
    _spoil(policy_mapping, path, value)

    with pytest.raises(PolicyError, match=says):
        parse_policy(policy_mapping)


def test_weights_beyond_one_are_refused(policy_mapping):
    """Weights are shares of alpha: more than all of it would break the promise on false alarms."""
    for check in policy_mapping["checks"]:
        check["weight"] = 0.5

    with pytest.raises(PolicyError, match=r"sum to 1\.5"):
        parse_policy(policy_mapping)


def test_a_policy_must_be_a_mapping():
    """An empty file is no policy."""
    with pytest.raises(PolicyError, match="policy must be a mapping"):
        parse_policy(None)


FIRST_VERSION = {
    "name": "old", "version": 1, "fatal": {"engine_unreachable": 1},
    "checks": [{"name": "a", "metric": "acceptance_rate", "at_least": 0.5, "pass_at": 0.45, "owner": "o", "source": "s"}],
}  # fmt: skip


def test_a_policy_of_the_first_version_keeps_its_identity():
    """A rollout that runs through an upgrade finds its policy again: later fields count only where they are used."""
    digest = parse_policy(FIRST_VERSION).digest
    later = parse_policy(FIRST_VERSION | {"max_wait": "24h"}).digest

    assert digest == "8111e8e5eb32a571ee6288245d1065fd391c1dc81cf8aadee3b0cfa9d5798275"
    assert later != digest


def test_precursors_and_split_checks_stand_outside_the_budget(policy_mapping):
    """They end nothing, so they take no part of alpha: each has a weight of 1, the deciding ones share it."""
    policy_mapping["checks"] += [
        {"name": "early", "metric": "acceptance_rate", "at_least": 0.6, "precursor": True, "owner": "o"},
        {"name": "split", "metric": "split", "owner": "o"},
    ]

    policy = parse_policy(policy_mapping)

    assert [c.weight for c in policy.checks] == pytest.approx([1 / 3, 1 / 3, 1 / 3, 1.0, 1.0])
    assert (policy.checks[3].on_fail, policy.has_rivals, policy.has_pairs) == ("escalate", True, False)


COSTS = {"draft_s": 0.001, "target_s": 0.02}


@pytest.mark.parametrize(
    ("rule", "below"),
    [
        ({"below_in_flight": 12}, 12),
        ({"break_even": {"k": 4, "acceptance_rate": 0.5, "loads": [
            {"in_flight": 8, "verify_s": 0.03} | COSTS, {"in_flight": 16, "verify_s": 0.2} | COSTS]}}, 9),
        ({"break_even": {"k": 4, "acceptance_rate": 0.1, "loads": [{"in_flight": 8, "verify_s": 0.03} | COSTS]}}, 0),
    ],
)  # fmt: skip
def test_a_policy_says_up_to_which_load_to_speculate(policy_mapping, rule, below):
    """By number, or from measured costs: one more than the last bucket that pays, 0 when none does."""
    plain = parse_policy(policy_mapping)

    policy = parse_policy(policy_mapping | {"speculate": rule})

    assert (policy.speculate_below, plain.speculate_below) == (below, None)
    assert policy.digest != plain.digest


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"speculate": {}}, "either 'below_in_flight' or 'break_even'"),
        ({"speculate": {"break_even": {"k": 4, "acceptance_rate": 0.5, "loads": [
            {"in_flight": 8, "verify_s": 1} | COSTS, {"in_flight": 8, "verify_s": 1} | COSTS]}}}, "break_even must rise"),
        ({"speculate": {"break_even": {"k": 65, "acceptance_rate": 0.5, "loads": [{"in_flight": 8, "verify_s": 1} | COSTS]}}},
         "break_even cannot be computed: costs at 8 in flight"),
        ({"speculate": {"break_even": {"k": 4, "acceptance_rate": 0.5, "loads": []}}}, "list of 1 to 16"),
        ({"max_wait": "soon"}, "max_wait must be seconds or a text such as 30m"),
        ({"max_wait": "24h\n"}, "max_wait must be seconds"),
        ({"max_wait": True}, "max_wait must be seconds"),
        ({"max_wait": 1e9}, "up to 90d"),
        ({"name": "x" * 10_000, "checks": []}, "no checks"),
        ({"version": 10**400}, "whole number"),
        ({"version": 16**5000}, "got an enormous int"),
        ({"description": "x" * 10_000}, "10000 characters, at most 2000"),
        ({16**5000: 1}, "unknown key an enormous int"),
        ({"alpha": float("nan")}, "alpha must be a number"),
        ({"checks": [{}] * 65}, "at most 64"),
        ({"checks": [{"precursor": True}, {"metric": "split"}]}, "only precursors and split checks"),
    ],
)  # fmt: skip
def test_a_wrong_top_level_is_refused(policy_mapping, changes, says):
    """Also what only a hostile file holds; no message is longer than a few lines."""
    with pytest.raises(PolicyError, match=says) as caught:
        parse_policy(policy_mapping | changes)

    assert len(str(caught.value)) < 600


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("1.5h", 5400), ("7d", 604_800), ("30 m", 1800), (60, 60)])
def test_a_wait_has_a_unit_or_is_in_seconds(policy_mapping, text, seconds):
    """The policy's wait is each check's, unless it has its own."""
    policy_mapping["checks"][0]["max_wait"] = 5

    checks = parse_policy(policy_mapping | {"max_wait": text}).checks

    assert [c.max_wait_s for c in checks] == [5, seconds, seconds]


def test_a_file_of_aliases_costs_nothing(policy_mapping):
    """Lists that repeat each other would be astronomically long if anybody wrote them out."""
    bomb = ["lol"]
    for _ in range(60):
        bomb = [bomb] * 9

    with pytest.raises(PolicyError, match="alpha must be a number") as caught:
        parse_policy(policy_mapping | {"alpha": bomb})

    assert len(str(caught.value)) < 300
