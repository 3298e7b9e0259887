"""The three-way decision, what outranks what, and reasons a person can read at 3 a.m."""

import pytest

from specops.core.judge import judge
from specops.core.ladder import Terms
from specops.core.outcome import Finish
from specops.core.policy import parse_policy
from specops.core.verdict import Result
from specops.core.window import Window, fold
from specops.errors import InvalidRecord


@pytest.fixture
def judged(policy, make_outcome, now):
    """Fold outcomes given as rates or as changes, and judge; `promoted` may be a number of outcomes before promotion."""

    def run(items, *, under=policy, promoted_after=None, data_errors=()):
        window, promoted = Window.empty(under), False
        for i, item in enumerate(items):
            promoted = promoted_after is not None and i >= promoted_after
            outcome = make_outcome(**item) if isinstance(item, dict) else make_outcome(item)
            window = fold(window, outcome, under, promoted=promoted)
        return judge(under, window, terms=Terms(promoted=promoted), now=now, data_errors=data_errors)

    return run


ERROR = {"finish": Finish.ERROR, "error": "timeout"}
GONE = {"finish": Finish.ERROR, "error": "engine_unreachable"}


def test_no_data_is_pending(judged):
    """Nothing seen is nothing proven: an empty window never passes."""
    verdict = judged([])

    assert verdict.result is Result.PENDING
    assert all(f.estimate is None and "yet" in f.reason for f in verdict.findings)


def test_a_good_candidate_passes_and_says_why(judged):
    """Thirty clean requests prove all three checks, with estimate, interval, e-value and threshold in words."""
    verdict = judged([0.7] * 30)
    first = verdict.findings[0]

    assert verdict.result is Result.PASS
    assert first.low >= 0.45
    assert first.pass_e_value >= first.pass_threshold == pytest.approx(100)
    assert "acceptance_rate 0.70 [0." in first.reason
    assert "is above 0.45: e-value" in first.reason
    assert "after 30 requests (owner oncall)" in first.reason


def test_a_bad_draft_fails_and_the_interval_agrees(judged):
    """Low acceptance fails; the printed interval lies below the limit that was broken."""
    verdict = judged([0.2] * 40)
    first = verdict.findings[0]

    assert verdict.result is first.result is Result.FAIL
    assert first.high <= 0.45
    assert "is below 0.45: e-value" in verdict.reason
    assert ">= 300 after 40 requests (owner oncall)" in verdict.reason


def test_near_the_limit_stays_undecided(judged):
    """A candidate at its limit neither passes nor fails, however long it runs."""
    verdict = judged([0.45] * 200)

    assert verdict.findings[0].result is Result.PENDING
    assert "undecided after 200 requests" in verdict.findings[0].reason


def test_few_requests_never_pass(judged):
    """Before min_requests even perfect evidence waits."""
    verdict = judged([1.0] * 7)

    assert verdict.result is Result.PENDING
    assert "7 of 8 requests with acceptance_rate" in verdict.findings[0].reason


def test_a_collapse_after_a_healthy_start_still_fails(judged):
    """Hundred healthy requests do not bury a later collapse; the newest requests are named."""
    verdict = judged([0.7] * 100 + [0.2] * 60)

    assert verdict.findings[0].result is Result.FAIL
    assert "last 20 requests 0.20, is below 0.45" in verdict.reason


def test_a_breach_stays_a_breach(judged):
    """A gate that fired is not talked back by later good requests, so looking more rarely cannot hide it."""
    verdict = judged([0.2] * 40 + [0.9] * 40)

    assert verdict.result is Result.FAIL


def test_errors_and_slow_answers_fail(judged):
    """Four errors in a row, or four slow first tokens, are no chance at a limit of 5%."""
    assert "error 1.00" in judged([ERROR] * 4).reason
    assert "ttft_s over 2 s" in judged([{"ttft_s": 3.0, "e2e_s": 4.0}] * 4).reason


def test_a_fatal_error_fails_at_once(judged):
    """A dead engine needs no statistics: the first one decides, after a hundred good requests too."""
    verdict = judged([0.7] * 100 + [GONE])
    fatal = verdict.findings[0]

    assert verdict.result is Result.FAIL
    assert (fatal.check, fatal.n, fatal.limit, fatal.unit) == ("fatal:engine_unreachable", 1, 1.0, "count")
    assert "1 request(s) of the candidate ended with engine_unreachable" in verdict.reason


def test_a_fatal_class_waits_for_its_count(judged):
    """Two empty answers of three allowed are not fatal yet."""
    empty = {"finish": Finish.ERROR, "error": "empty_answer"}

    assert "fatal" not in judged([0.7, empty, empty]).reason
    assert "fatal:empty_answer" in {f.check for f in judged([0.7, empty, empty, empty]).findings}


def test_unusable_data_never_passes_and_never_hides_a_failure(judged):
    """Data errors turn PASS into ERROR; FAIL still outranks them."""
    passing = judged([0.7] * 30, data_errors=("accepted > drafted in 3 rows",))
    failing = judged([0.7] * 30 + [GONE], data_errors=("accepted > drafted in 3 rows",))

    assert passing.result is Result.ERROR
    assert "accepted > drafted in 3 rows" in passing.reason
    assert failing.result is Result.FAIL


def test_promotion_starts_the_monitor(judged):
    """A promoted candidate passes while its detector is quiet, and the gate no longer counts."""
    verdict = judged([0.7] * 60, promoted_after=30)
    first = verdict.findings[0]

    assert verdict.result is Result.PASS
    assert (first.n, first.pass_e_value, first.e_threshold) == (30, None, pytest.approx(30_000))
    assert "since promotion: detector" in first.reason


def test_a_collapse_after_promotion_fails(judged):
    """The monitor fires within 60 requests of a collapse, and shows the newest requests beside the mean."""
    verdict = judged([0.7] * 100 + [0.2] * 60, promoted_after=40)

    assert verdict.result is Result.FAIL
    assert "since promotion, last 20 requests 0.20, is below 0.45: detector" in verdict.reason


def test_just_promoted_is_pending(judged):
    """Promoted without one request since: nothing to say yet."""
    verdict = judged([0.7] * 30 + [{"finish": Finish.ABORT}], promoted_after=30)

    assert verdict.result is Result.PENDING


@pytest.mark.parametrize(("promoted_after", "rule", "result"), [
    (None, "hold", Result.PENDING), (None, "fail", Result.FAIL), (10, "hold", Result.PENDING), (10, "fail", Result.FAIL),
])  # fmt: skip
def test_a_metric_that_falls_silent_is_not_healthy(judged, policy_mapping, promoted_after, rule, result):
    """Eight completed requests without a rate, after thirty with one, hold or fail as the policy says."""
    policy_mapping["checks"][0]["on_no_data"] = rule

    verdict = judged([0.7] * 30 + [{"rate": None}] * 8, under=parse_policy(policy_mapping), promoted_after=promoted_after)

    assert verdict.findings[0].result is result
    assert "the last 8 completed requests carried no acceptance_rate" in verdict.findings[0].reason


def test_the_verdict_is_reproducible(judged):
    """Same outcomes, same policy: the same record, ready for JSON."""
    assert judged([0.7] * 12).to_record() == judged([0.7] * 12).to_record()


def test_a_foreign_window_is_refused(policy, policy_mapping, now):
    """Evidence of one policy is not judged by another."""
    other = parse_policy(policy_mapping | {"name": "other"})

    with pytest.raises(InvalidRecord, match="gathered under"):
        judge(policy, Window.empty(other), terms=Terms(), now=now)
