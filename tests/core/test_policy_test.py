"""Policy tests: each expectation holds or fails with a line of its own, files that mean nothing are refused, seeds repeat."""

import pytest

from specops.core.outcome import Arm, Kind
from specops.core.policy import parse_policy
from specops.core.policy_kinds import table_schema
from specops.core.policy_test import outcomes_of, run_case, run_tests
from specops.core.policy_test_file import FILE_FIELDS, TEST_FIELDS, parse_test_file
from specops.errors import PolicyError

CHECKS = ("acceptance", "ttft", "errors")
HEALTHY = {"acceptance_rate": 0.7, "ttft_s": 0.2, "error": "0x120"}


def file_of(*tests):
    """Read a file of tests."""
    return parse_test_file({"name": "t", "policy": "test", "tests": list(tests)}, CHECKS)


def case_of(**changes):
    """Read one test."""
    return file_of({"name": "case", "input": HEALTHY, "expect": [{"at": 120, "verdict": "PASS"}]} | changes).tests[0]


def failures_of(policy, **changes):
    """Return the lines of the failures of one test."""
    return [failure.text for failure in run_case(case_of(**changes), policy).failures]


@pytest.fixture
def policy(policy_mapping):
    """Return a policy that can pass within the requests of these tests."""
    policy_mapping["checks"][0]["pass_at"] = 0.4
    return parse_policy(policy_mapping)


def test_a_healthy_candidate_passes(policy):
    """And the report counts what was played."""
    report = run_case(case_of(must_not_fire=True), policy)

    assert (report.case, report.requests, report.runs, report.failures) == ("case", 120, 0, ())


@pytest.mark.parametrize(
    ("expected", "line"),
    [
        ({"at": 120, "verdict": "FAIL"}, "case: at 120: expected verdict FAIL, got PASS: acceptance_rate"),
        ({"at": 3, "verdict": "PASS"}, "case: at 3: expected verdict PASS, got PENDING: "),
        ({"at": 120, "action": "ROLL_BACK"}, "case: at 120: expected action ROLL_BACK, got HOLD"),
        ({"at": 120, "alert": "acceptance"}, "case: at 120: expected alert acceptance, got none"),
    ],
)
def test_an_expectation_that_does_not_hold_is_a_line(policy, expected, line):
    """With what was expected and what came, and why."""
    (failure,) = failures_of(policy, expect=[expected])

    assert failure.startswith(line)


def test_what_fires_is_named_with_its_request(policy):
    """For must_not_fire, for no_alert, and for the verdict after the end."""
    spoiled = {"input": HEALTHY | {"error": "0x100 1x20"}}

    lines = failures_of(
        policy, **spoiled, must_not_fire=True, expect=[{"at": 120, "verdict": "PASS", "no_alert": ["errors", "ttft"]}]
    )

    assert [line.partition(", got ")[0] for line in lines] == [
        "case: at 120: expected verdict PASS", "case: at 120: expected no alert errors", "case: at 120: expected alert none"
    ]  # fmt: skip
    assert all("errors at 1" in line for line in lines[1:])


def test_a_roll_back_is_an_action_with_its_alert(policy):
    """The last action counts, whenever it was; a fatal class has its own name."""
    collapse = {"input": HEALTHY | {"acceptance_rate": "0.7x60 0.1x60"}}
    gone = {"input": HEALTHY | {"error": "0x59 engine_unreachable 0x60"}}

    assert failures_of(policy, **collapse, expect=[{"at": 120, "action": "ROLL_BACK", "alert": "acceptance"}]) == []
    assert failures_of(policy, **gone, expect=[{"at": 60, "verdict": "FAIL", "alert": "fatal:engine_unreachable"}]) == []


def test_stages_begin_where_they_say(policy):
    """A gated trial holds, a rollout is promoted, a promoted one is watched."""
    assert failures_of(policy, expect=[{"at": 120, "action": "HOLD"}]) == []
    assert failures_of(policy, stage="rollout", expect=[{"at": 120, "action": "PROMOTE"}]) == []
    assert failures_of(policy, stage="promoted", expect=[{"at": 1, "verdict": "PASS", "action": "HOLD"}]) == []


def test_a_restart_changes_nothing(policy):
    """Evidence goes through its record and back."""
    rates = HEALTHY | {"acceptance_rate": "0.7x40 restart 0.7x40 restart 0.02x40"}

    assert failures_of(policy, input=rates, expect=[{"at": 80, "verdict": "PASS"}, {"at": 120, "verdict": "FAIL"}]) == []


def test_pairs_share_a_request_and_live_arms_don_t(policy):
    """Mirrored answers are joined by request id; live ones carry the share they were assigned with."""
    beside = {"baseline": {"tpot_s": 0.04}, "input": {"acceptance_rate": "0.7x2", "tpot_s": 0.02}, "must_not_fire": True}
    shadow = [o for _, o in outcomes_of(case_of(**beside, kind="shadow", expect=None), 1)]
    live = [o for _, o in outcomes_of(case_of(**beside, share=0.2, expect=None), 1)]

    assert [o.arm for o in shadow] == [Arm.BASELINE, Arm.CANDIDATE] * 2
    assert shadow[0].request_id == shadow[1].request_id
    assert (shadow[1].kind, shadow[1].share) == (Kind.SHADOW, None)
    assert live[0].request_id != live[1].request_id
    assert {o.share for o in live} == {0.2}
    assert shadow[1].tpot_s == pytest.approx(0.02)


def test_what_a_test_does_not_mention_is_not_measured():
    """No data never passes, so a test says what it means."""
    case = case_of(input={"error": "0 _ 1 timeout"}, in_flight="1 2 _ 4", expect=None, must_not_fire=True)
    outcomes = [o for _, o in outcomes_of(case, 1)]

    assert [(o.finish, o.error) for o in outcomes] == [
        ("stop", None), ("abort", None), ("error", "other"), ("error", "timeout")
    ]  # fmt: skip
    assert [o.in_flight for o in outcomes] == [1, 2, 1, 4]
    assert (outcomes[0].ttft_s, outcomes[0].tpot_s, outcomes[0].acceptance) == (None, None, None)


def test_end_to_end_times_are_taken_as_they_are():
    """e2e_s stands alone."""
    ((_, outcome),) = outcomes_of(case_of(input={"e2e_s": "3x1"}, expect=None, must_not_fire=True), 1)

    assert outcome.e2e_s == 3.0


def test_statistics_hold_over_seeds(policy):
    """False alarms, detection and delay."""
    drawn = HEALTHY | {"acceptance_rate": "beta(0.7,0.1)x60 beta(0.1,0.05)x60"}
    wanted = {"runs": 8, "shift_at": 60, "false_alarm_at_most": 0.0, "detected_at_least": 1.0, "delay_at_most": 40}

    report = run_case(case_of(input=drawn, expect=None, statistics=wanted), policy)

    assert (report.failures, report.runs) == ((), 8)


def test_each_statistic_is_asked_alone(policy):
    """Detection without a bound on the delay."""
    wanted = {"runs": 2, "shift_at": 60, "detected_at_least": 0.0}

    assert failures_of(policy, expect=None, statistics=wanted) == []


def test_an_editor_can_have_the_shape_of_the_file():
    """Every key says what it means."""
    assert table_schema(FILE_FIELDS)["required"] == ["name", "policy", "tests"]
    assert all(part["description"] for part in table_schema(TEST_FIELDS)["properties"].values())


def test_statistics_that_do_not_hold_are_lines(policy):
    """One for each."""
    wanted = {"runs": 2, "shift_at": 60, "detected_at_least": 0.5, "delay_at_most": 40}
    bad = {"runs": 2, "shift_at": 100, "false_alarm_at_most": 0.4, "delay_at_most": 5}

    assert failures_of(policy, expect=None, statistics=wanted) == [
        "case: at 120: expected a share detected of at least 0.5, got 0 in 2 runs",
        "case: at 120: expected a median delay of at most 40, got inf in 2 runs",
    ]
    assert failures_of(policy, expect=None, input=HEALTHY | {"error": "1x120"}, statistics=bad) == [
        "case: at 120: expected false alarms of at most 0.4, got 1 in 2 runs",
        "case: at 120: expected a median delay of at most 5, got inf in 2 runs",
    ]


def test_the_same_seed_gives_the_same_report(policy):
    """On every run."""
    file = file_of({"name": "a", "input": {"acceptance_rate": "beta(0.5,0.2)x80"}, "expect": [{"at": 80, "verdict": "FAIL"}]})

    assert run_tests(file, policy) == run_tests(file, policy)


def test_a_precursor_alerts_and_decides_nothing(policy_mapping):
    """Its alert is an alert; the verdict stays what it was."""
    early = {"name": "early", "metric": "acceptance_rate", "at_least": 0.6, "precursor": True, "owner": "o"}
    rules = parse_policy(policy_mapping | {"checks": [*policy_mapping["checks"], early]})
    rates = HEALTHY | {"acceptance_rate": 0.5}
    test = {"name": "x", "input": rates, "expect": [{"at": 120, "action": "HOLD", "alert": "early"}]}

    assert run_case(parse_test_file({"name": "t", "policy": "p", "tests": [test]}, ("early",)).tests[0], rules).failures == ()


def test_a_held_failure_calls_nobody(policy_mapping):
    """The mildest rung."""
    policy_mapping["checks"][2]["on_fail"] = "abstain"
    rules = parse_policy(policy_mapping)

    expect = [{"at": 120, "verdict": "FAIL", "no_alert": "errors"}]

    assert failures_of(rules, input=HEALTHY | {"error": "1x120"}, expect=expect) == []


def test_after_a_fallback_mirrored_requests_bring_it_back(policy_mapping):
    """Evidence begins anew at the fall."""
    policy_mapping["checks"][0] |= {"on_fail": "fallback", "pass_at": 0.4}
    rules = parse_policy(policy_mapping)
    rates = {"acceptance_rate": "0.1x20 0.9x280", "ttft_s": 0.2, "error": 0}
    expect = [{"at": 20, "action": "FALL_BACK"}, {"at": 300, "action": "RECOVER"}]

    assert failures_of(rules, kind="shadow", interval_s="20s", input=rates, expect=expect) == []
    stays = [expect[0], {"at": 300, "action": "FALL_BACK"}]  # live requests are no evidence after a fall
    assert failures_of(rules, input=rates, expect=stays) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"expect": None}, "expects nothing; add 'expect'"),
        ({"expect": []}, "must be a list"),
        ({"expect": [{"at": 5}]}, "expects nothing; add verdict"),
        ({"expect": [{"at": 121, "verdict": "PASS"}]}, "looks at request 121 of 120"),
        ({"expect": [{"at": 1, "alert": "nosuch"}]}, "must be one of acceptance, ttft, errors"),
        ({"expect": [{"at": 1, "verdict": "GREEN"}]}, "must be one of PASS"),
        ({"input": {}}, "has no input"),
        ({"input": {"tpot_s": 0.1, "e2e_s": "1x5"}}, "keep one"),
        ({"input": {"speedup": "1x5"}}, "did you mean"),
        ({"input": {"error": 0}}, "how many requests"),
        ({"input": {"error": 0x50}}, "quote it"),
        ({"input": {"ttft_s": 0x10}}, "quote it"),
        ({"in_flight": "1x20"}, "end it with _x100"),
        ({"inptu": {}}, "did you mean 'input'"),
        ({"statistics": {"runs": 3}}, "statistics expect nothing"),
        ({"statistics": {"delay_at_most": 3}}, "need 'shift_at'"),
        ({"statistics": {"delay_at_most": 3, "shift_at": 120}}, "leaves none of 120"),
        ({"statistics": {"false_alarm_at_most": 0.1, "runs": 5_001}}, "too many"),
    ],
)
def test_a_test_that_means_nothing_is_refused(changes, message):
    """With the name of the test and the way out."""
    with pytest.raises(PolicyError) as refused:
        case_of(**changes)

    assert "test 'case'" in str(refused.value)
    assert message in str(refused.value)


@pytest.mark.parametrize("tests", [[], "x", [3], [{}] * 201])
def test_a_file_without_tests_is_refused(tests):
    """Whatever stands there instead."""
    with pytest.raises(PolicyError):
        parse_test_file({"name": "t", "policy": "p", "tests": tests}, CHECKS)
