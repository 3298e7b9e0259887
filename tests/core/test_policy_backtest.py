"""Backtest: the same outcomes under two policies, the first difference and what each would have done."""

from datetime import timedelta

from specops.core.policy import parse_policy
from specops.core.policy_backtest import backtest


def test_a_stricter_policy_acts_sooner(policy_mapping, make_outcome, make_rollout, now):
    """The first difference names outcome, request and time; both histories are told."""
    policy_mapping["checks"][0]["pass_at"] = 0.35
    before = parse_policy(policy_mapping)
    strict = [policy_mapping["checks"][0] | {"at_least": 0.65, "pass_at": 0.6}, *policy_mapping["checks"][1:]]
    after = parse_policy(policy_mapping | {"name": "strict", "checks": strict})
    outcomes = [make_outcome(rate=0.5, request_id=f"r{i}", at=now + timedelta(seconds=i)) for i in range(200)]

    done = backtest(make_rollout(), outcomes, before=before, after=after)

    assert done.outcomes == 200
    assert done.after[-1].action == "ROLL_BACK"
    assert [e.action for e in done.before][-1] == "PROMOTE"
    change = done.first_change
    assert change.outcomes <= done.after[-1].outcomes
    assert change.request_id == f"r{change.outcomes - 1}"
    assert change.before != change.after


def test_the_same_policy_changes_nothing(policy, make_outcome, make_rollout):
    """There is no first difference; gates are taken as approved."""
    done = backtest(make_rollout(), [make_outcome() for _ in range(30)], before=policy, after=policy)

    assert (done.first_change, done.before) == (None, done.after)
