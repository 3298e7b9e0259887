"""Simulation: figures repeat, stay below what theory allows, and shifts are seen sooner the larger they are."""

import pytest

from specops.core.policy import parse_policy
from specops.core.policy_simulate import parse_shift, simulate
from specops.errors import PolicyError
from specops.report.simulation_chart import simulation_chart


def test_figures_repeat_with_their_seed(policy):
    """And differ with another."""
    one = simulate(policy, runs=5, requests=150)

    assert one == simulate(policy, runs=5, requests=150)
    assert one != simulate(policy, runs=5, requests=150, seed=2)


@pytest.mark.calibration
def test_false_alarms_stay_within_what_is_allowed(policy_mapping):
    """At the limit itself, looking after every request; two standard errors of slack."""
    policy_mapping |= {"alpha": 0.15}

    for figures in simulate(parse_policy(policy_mapping), runs=300, requests=200):
        assert figures.alarms <= figures.allowed + 2 * (figures.allowed / 300) ** 0.5


def test_a_larger_shift_is_seen_sooner(policy):
    """On trial and once promoted."""
    shifts = [parse_shift(f"acceptance_rate=0.7:{after}") for after in (0.3, 0.1)]
    small, large = (simulate(policy, shifts=(shift,), runs=20, requests=300)[0] for shift in shifts)

    assert large.delay < small.delay
    assert large.monitor_delay < small.monitor_delay
    assert (large.power, large.early) == (1.0, 0.0)


def test_a_shift_that_is_none_is_not_seen(policy):
    """Then there is no delay to speak of."""
    figures = simulate(policy, shifts=(parse_shift("error=0.01:0.01"),), runs=5, requests=150)[2]

    assert (figures.power, figures.delay, figures.monitor_delay) == (0.0, None, None)


def test_candidates_that_had_failed_before_are_set_apart(policy):
    """Of them no delay can be said."""
    figures = simulate(policy, shifts=(parse_shift("error=0.9:0.9"),), runs=3, requests=150)[2]

    assert (figures.early, figures.power, figures.delay, figures.monitor_delay) == (1.0, 0.0, None, None)


def test_strata_are_tried_in_the_first(policy_mapping):
    """Comparisons are left out, they need two arms."""
    policy_mapping["checks"][0]["strata"] = {"by": "in_flight", "edges": [4]}
    beside = {"name": "pairs", "metric": "error", "against": "pairs", "pass_at": 0.1, "owner": "o"}
    rules = parse_policy(policy_mapping | {"checks": [*policy_mapping["checks"], beside]})

    found = simulate(rules, runs=3, requests=250)

    assert [f.check for f in found] == ["acceptance", "ttft", "errors"]
    assert found[0].power == 1.0


@pytest.mark.parametrize(
    "text", ["acceptance_rate", "speedup=1:2", "nosuch=0.1:0.2", "error=0:0.5", "error=1..2:0.5", "error=0.1:1"]
)
def test_a_shift_that_cannot_be_read_is_refused(text):
    """In one line."""
    with pytest.raises(PolicyError):
        parse_shift(text)


def test_too_much_work_and_unwatched_metrics_are_refused(policy):
    """Before anything is drawn."""
    with pytest.raises(PolicyError, match="runs of"):
        simulate(policy, runs=10**9)
    with pytest.raises(PolicyError, match="no check of e2e_s"):
        simulate(policy, shifts=(parse_shift("e2e_s=0.1:0.2"),))


def test_the_chart_draws_a_curve_per_check(policy):
    """And nothing without figures."""
    chart = simulation_chart(simulate(policy, runs=4, requests=150))

    assert chart.count("<polyline") == 3
    assert "acceptance: " in chart
    assert simulation_chart(()) == ""
