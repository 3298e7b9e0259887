"""What goes together in a check, and the thresholds and scales that follow."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specops.core.check import Against, By, Metric, Scope, Strata
from specops.core.ladder import Rung
from specops.core.outcome import Kind
from specops.core.policy import parse_policy
from specops.errors import PolicyError

BASE = {"name": "c", "owner": "o"}
KINDS = {
    "rate": {"metric": "acceptance_rate", "at_least": 0.5},
    "time": {"metric": "ttft_s", "at_most": {"limit_s": 2.0, "share": 0.05}},
    "error": {"metric": "error", "at_most": 0.05},
    "rate-pairs": {"metric": "acceptance_rate", "against": "pairs", "pass_at": 0.1},
    "time-pairs": {"metric": "ttft_s", "against": "pairs", "at_most": {"limit_s": 2.0}, "margin": 0.02, "pass_at": 0.1},
    "error-pairs": {"metric": "error", "against": "pairs", "pass_margin": 0.1},
    "time-beside": {"metric": "ttft_s", "against": "baseline", "at_most": {"limit_s": 2.0}, "pass_at": 0.1},
    "error-beside": {"metric": "error", "against": "baseline", "ratio": 1.5, "pass_at": 0.1},
    "speedup": {"metric": "speedup", "at_least": 1.2, "pass_at": 1.0},
    "split": {"metric": "split"},
}  # fmt: skip


def check_of(kind, **changes):
    """Parse one check, beside one that decides."""
    rule = BASE | KINDS[kind] | changes
    other = BASE | KINDS["error"] | {"name": "other"}
    return parse_policy({"name": "p", "checks": [{k: v for k, v in rule.items() if v is not None}, other]}).checks[0]


@pytest.mark.parametrize(
    ("kind", "limit", "pass_at", "against"),
    [
        ("rate", 0.5, 0.5, Against.LIMIT), ("time", 0.05, 0.05, Against.LIMIT), ("error", 0.05, 0.05, Against.LIMIT),
        ("rate-pairs", 0.0, -0.1, Against.PAIRS), ("time-pairs", 0.02, 0.1, Against.PAIRS),
        ("error-pairs", 0.0, 0.1, Against.PAIRS), ("time-beside", 1.0, 0.1, Against.BASELINE),
        ("error-beside", 1.5, 0.1, Against.BASELINE), ("speedup", 1.2, 1.0, Against.PAIRS),
        ("split", 0.0, 0.0, Against.BASELINE),
    ],
)  # fmt: skip
def test_each_comparison_has_its_own_limit(kind, limit, pass_at, against):
    """A share, a difference with its sign, a ratio: the pass side is the lenient one."""
    check = check_of(kind)

    assert (check.limit, check.pass_at, check.against) == (limit, pytest.approx(pass_at), against)
    assert check.is_rival == (against is Against.BASELINE)
    assert check.unit
    assert check.subject


@given(value=st.floats(0.01, 49))
def test_the_scale_of_samples_can_be_undone(value):
    """Speed-ups and differences move to [0, 1] and back; shares stay."""
    speedup, pairs, share = check_of("speedup"), check_of("time-pairs"), check_of("error")

    assert speedup.from_sample(speedup.to_sample(value)) == pytest.approx(value)
    assert pairs.from_sample(pairs.to_sample(value / 50)) == pytest.approx(value / 50, abs=1e-12)
    assert share.from_sample(share.to_sample(value / 50)) == value / 50
    assert speedup.from_sample(1.0) == math.inf


@pytest.mark.parametrize(
    ("kind", "changes", "says"),
    [
        ("rate", {"against": "baseline"}, "cannot be judged against baseline; use limit or pairs"),
        ("speedup", {"against": "limit"}, "use pairs"),
        ("split", {"on_fail": "stop"}, "a broken split voids the data"),
        ("rate", {"estimand": "ratio_of_sums"}, "use estimand mean_of_requests"),
        ("rate", {"precursor": True, "on_fail": "stop"}, "is a precursor and only alerts"),
        ("rate", {"precursor": "yes"}, "precursor must be true or false"),
        ("rate", {"on_fail": "rollback"}, "did you mean 'roll_back'"),
        ("rate", {"at_least": 1.5}, "at_least must be a number above 0 and below 1"),
        ("error", {"at_most": {"limit_s": 1}}, "at_most must be a number above 0 and below 1"),
        ("time", {"at_most": {"limit_s": 2.0}}, "needs 'share' against limit"),
        ("time-pairs", {"at_most": {"limit_s": 2.0, "share": 0.1}}, "takes no 'share' against pairs"),
        ("error-beside", {"at_most": 0.1}, "no 'at_most'"),
        ("error-beside", {"margin": 0.1}, "takes no 'margin'"),
        ("error-beside", {"ratio": 0.5}, "ratio must be a number of at least 1"),
        ("error-beside", {"pass_at": None}, "needs 'pass_at' against the baseline"),
        ("time-pairs", {"ratio": 2}, "takes no 'ratio'"),
        ("time-pairs", {"pass_at": None}, "needs 'pass_at' within pairs"),
        ("time-pairs", {"pass_at": 0.01}, "stricter than the limit"),
        ("time-pairs", {"pass_at": 1.5}, "pass_at must be a number of at least 0 and below 1"),
        ("error-pairs", {"pass_margin": 1}, "pass_margin must be a number of at least 0"),
        ("speedup", {"margin": 0.1}, "takes no 'margin'"),
        ("speedup", {"pass_at": 1.3}, "stricter than the limit"),
        ("time-beside", {"strata": {"by": "kind"}}, "strata do not go with"),
        ("rate", {"strata": {"by": "in_flight"}}, "need 'edges'"),
        ("rate", {"strata": {"by": "kind", "edges": [1]}}, "take no 'edges'"),
        ("rate", {"strata": {"by": "in_flight", "edges": [16, 4]}}, "edges of strata must rise"),
        ("rate", {"strata": {"by": "in_flight", "edges": [4], "limits": [0.5]}}, "2 strata .* need as many limits, got 1"),
        ("rate", {"strata": {"by": "kind", "limits": [0.5, 0.1]}, "pass_margin": 0.2}, "pass_at of stratum 2"),
        ("error-pairs", {"strata": {"by": "kind", "limits": [0.5, 0.4]}}, "limits of strata go with a fixed limit only"),
        ("rate", {"strata": {"by": "language"}}, "by must be one of in_flight"),
        ("rate", {"only": {}}, "only needs 'in_flight_above' or"),
        ("rate", {"only": {"in_flight_above": 8, "in_flight_at_most": 8}}, "the check sees nothing"),
    ],
)
def test_what_does_not_go_together_is_refused(kind, changes, says):
    """Each contradiction has its own message."""
    with pytest.raises(PolicyError, match=says):
        check_of(kind, **changes)


def test_strata_have_names_and_find_their_requests(make_outcome):
    """An edge belongs to the stratum below it."""
    load = Strata(by=By.IN_FLIGHT, edges=(4, 16))
    prompt = Strata(by=By.PROMPT_TOKENS, edges=(100,))
    kind = Strata(by=By.KIND)

    assert load.labels == ("in_flight <= 4", "in_flight 5 to 16", "in_flight > 16")
    assert [load.index(make_outcome(in_flight=n)) for n in (1, 4, 5, 16, 17)] == [0, 0, 1, 1, 2]
    assert [prompt.index(make_outcome(prompt_tokens=n)) for n in (100, 101)] == [0, 1]
    assert [kind.index(make_outcome(kind=k)) for k in (Kind.LIVE, Kind.SHADOW)] == [0, 1]
    assert kind.count == 2


def test_a_stratum_keeps_the_distance_between_limit_and_pass_at():
    """Where limits differ, each has its own pass_at."""
    check = check_of("rate", pass_margin=0.1, strata={"by": "in_flight", "edges": [4], "limits": [0.5, 0.4]})

    assert [check.limit_of(i) for i in (0, 1)] == [0.5, 0.4]
    assert [check.pass_at_of(i) for i in (0, 1)] == pytest.approx([0.4, 0.3])
    assert check_of("rate", strata={"by": "kind"}).limit_of(1) == 0.5


def test_a_scope_holds_above_and_up_to_a_load():
    """Above is exclusive, at most inclusive; the text says both."""
    scope = Scope(above=4, at_most=8)

    assert [scope.holds(n) for n in (4, 5, 8, 9)] == [False, True, True, False]
    assert scope.text == "more than 4 and at most 8 requests in flight"
    assert Scope(above=4).holds(100)
    assert Scope(at_most=4).text == "at most 4 requests in flight"


def test_a_failure_rolls_back_unless_it_says_otherwise():
    """Every rung can be named."""
    assert check_of("rate").on_fail is Rung.ROLL_BACK
    assert [check_of("rate", on_fail=rung.value).on_fail for rung in Rung] == list(Rung)


def test_every_metric_is_shown():
    """The tests above leave out no metric but the two other times."""
    assert {KINDS[k]["metric"] for k in KINDS} | {"e2e_s", "tpot_s"} == set(Metric)
