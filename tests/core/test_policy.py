"""A policy is refused whole when any part of it is wrong, and says which part."""

from pathlib import Path

import pytest
import yaml

from specops.core.policy import Metric, OnNoData, parse_policy
from specops.errors import PolicyError

POLICIES = Path(__file__).parents[2] / "policies"


@pytest.mark.parametrize("name", ["default", "quickstart"])
def test_a_shipped_policy_parses(name):
    """What we ship is valid, and every threshold names its owner and source."""
    policy = parse_policy(yaml.safe_load((POLICIES / f"{name}.yaml").read_text()))

    assert policy.name == name
    assert all(c.owner and c.source for c in policy.checks)
    assert sum(c.alpha * c.weight for c in policy.checks) <= 0.01 + 1e-12


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
