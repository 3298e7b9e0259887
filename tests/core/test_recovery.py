"""The way back up: mirrored evidence at a higher bar after a cool-down, bounded falls, and a look at the baseline itself."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specops.core.ladder import COOL_DOWN_S, PlainHealth, Rung, has_recovered, is_cool
from specops.core.outcome import Arm, Finish, Kind
from specops.core.policy import parse_policy
from specops.core.rollout import RECOVERY, ActionKind, Rollout, State, advance
from specops.core.track import Track
from specops.core.verdict import Result

T0 = datetime(2026, 1, 2, tzinfo=UTC)
COOL = T0 + timedelta(seconds=COOL_DOWN_S)


def say(result, at=COOL, e_value=None, check="latency", rung=None):
    """Return a verdict of one finding that passes a trial at 100."""
    finding = SimpleNamespace(check=check, action=rung, pass_e_value=e_value, pass_threshold=e_value and 100.0)
    return SimpleNamespace(result=result, reason="because", deciding=(finding,), action=rung, at=at)


@pytest.fixture
def fallen(make_rollout):
    """Return a rollout that fell at T0 from its second step."""
    verdict = say(Result.FAIL, at=T0, rung=Rung.FALLBACK)
    return advance(make_rollout(2, approved_steps=(2,)), verdict, candidate_outcomes=90).rollout


def test_a_fall_begins_evidence_of_its_own(fallen):
    """What made it fall can't speak for it, nor does what was served live."""
    assert (fallen.evidence, fallen.attempt, fallen.evidence_since, fallen.step_began_at) == (2, 1, T0, 0)


def test_it_recovers_at_the_bar_after_the_cool_down(fallen):
    """The trial begins again at its first step, gates closed, on new evidence; the fall still counts."""
    action = advance(fallen, say(Result.PASS, e_value=2000.0), candidate_outcomes=50)

    again = action.rollout
    assert (action.kind, again.state, again.step, again.approved_steps) == (ActionKind.RECOVER, State.RUNNING, 0, ())
    assert (again.falls, again.evidence, again.evidence_since, again.version) == (1, 3, COOL, fallen.version + 1)


@pytest.mark.parametrize(
    ("verdict", "reason"),
    [
        (say(Result.PASS, at=COOL - timedelta(seconds=1), e_value=9e9), "cools down"),
        (say(Result.PASS, e_value=1999.0), "attempt 1 to recover says PASS"),
        (say(Result.PASS), "attempt 1 to recover says PASS"),
        (say(Result.PENDING, e_value=9e9), "attempt 1 to recover says PENDING"),
        (say(Result.ERROR), "attempt 1 to recover says ERROR"),
    ],
)
def test_it_stays_down_without_proof(fallen, verdict, reason):
    """Too early, below the bar, nothing claimed, or no PASS."""
    action = advance(fallen, verdict, candidate_outcomes=50)

    assert (action.kind, action.rollout) == (ActionKind.HOLD, fallen)
    assert reason in action.reason


def test_a_failed_attempt_is_followed_by_one_with_a_higher_bar(fallen):
    """The FAIL of mirrored evidence would stay for ever; a new attempt costs a factor of two, and cools down again."""
    failed = advance(fallen, say(Result.FAIL, rung=Rung.ASK_MORE), candidate_outcomes=50)
    second = failed.rollout
    late = COOL + timedelta(seconds=COOL_DOWN_S)

    assert (failed.kind, second.state, second.attempt, second.evidence) == (ActionKind.PROBE, State.FALLEN_BACK, 2, 3)
    assert "cools down" in advance(second, say(Result.PASS, e_value=9e9), candidate_outcomes=5).reason
    assert advance(second, say(Result.PASS, at=late, e_value=3999.0), candidate_outcomes=5).kind is ActionKind.HOLD
    assert advance(second, say(Result.PASS, at=late, e_value=4000.0), candidate_outcomes=5).kind is ActionKind.RECOVER


def test_after_the_last_fall_a_person_is_called_once(fallen):
    """No evidence brings it back any more."""
    worn = Rollout.from_record(fallen.to_record() | {"falls": 4})
    called = advance(worn, say(Result.PASS, e_value=9e9), candidate_outcomes=50)

    assert (called.kind, called.about, called.rollout.escalated) == (ActionKind.ESCALATE, RECOVERY, (RECOVERY,))
    assert "fell back 4 times, 3 may recover" in called.reason
    assert advance(called.rollout, say(Result.PASS, e_value=9e9), candidate_outcomes=51).kind is ActionKind.HOLD


def test_a_harder_rung_needs_no_baseline_and_no_cool_down(fallen):
    """FAIL of a check that rolls back ends it at once."""
    verdict = say(Result.FAIL, at=T0, rung=Rung.ROLL_BACK)

    assert advance(fallen, verdict, candidate_outcomes=1).kind is ActionKind.ROLL_BACK


def test_a_fall_of_an_older_release_waits_for_a_person(make_rollout):
    """Its evidence is the one that made it fall."""
    old = make_rollout(1, state=State.FALLEN_BACK)

    assert "by hand" in advance(old, say(Result.PASS, e_value=9e9), candidate_outcomes=50).reason


def test_stragglers_and_old_outcomes_are_no_evidence(fallen, make_outcome):
    """Only mirrored answers, and the baseline's, that ended after the fall."""
    early = make_outcome(kind=Kind.SHADOW, at=T0 - timedelta(seconds=1))
    assert not fallen.counts(early)
    assert not fallen.counts(make_outcome(at=T0))
    assert fallen.counts(make_outcome(kind=Kind.SHADOW, at=T0))
    assert fallen.counts(make_outcome(arm=Arm.BASELINE, at=T0))


@pytest.mark.parametrize(
    ("errors", "is_unhealthy"),
    [([True] * 4, False), ([True] * 5, True), ([True] * 4 + [False] + [True] * 4, False), ([True, False, False] * 9, True),
     ([True, *[False] * 4] * 9, False), ([True] * 5 + [False] * 19, True), ([True] * 5 + [False] * 20, False)],
)  # fmt: skip
def test_the_baseline_is_sick_by_a_row_or_by_a_share(errors, is_unhealthy):
    """Five in a row, or over a quarter of twenty or more; until twenty good ones in a row."""
    plain = PlainHealth()
    for is_error in errors:
        plain = plain.seen(is_error=is_error)

    assert plain.is_unhealthy is is_unhealthy


@pytest.mark.parametrize(
    ("changes", "counts"),
    [({}, (1, 0)), ({"finish": Finish.ERROR}, (1, 1)), ({"finish": Finish.ABORT}, (0, 0)),
     ({"finish": Finish.REJECTED}, (0, 0)), ({"kind": Kind.OFFLINE}, (0, 0)),
     ({"arm": Arm.CANDIDATE, "finish": Finish.ERROR}, (0, 0))],
)  # fmt: skip
def test_only_live_requests_of_the_baseline_speak_about_it(make_outcome, changes, counts):
    """A request that was refused or broken off says nothing, nor does one of the candidate."""
    plain = PlainHealth().after(make_outcome(**({"arm": Arm.BASELINE} | changes)))

    assert (plain.requests, plain.errors) == counts


@given(e=st.floats(0, 1e300), bar=st.floats(1, 1e6), attempt=st.integers(1, 2000))
def test_recovery_is_harder_than_a_pass_and_gets_harder(e, bar, attempt):
    """Whoever recovers would pass twenty times over, and would have recovered in each earlier attempt."""
    if has_recovered([(e, bar)], attempt=attempt):
        assert e >= 20 * bar
        assert has_recovered([(e, bar), (None, None)], attempt=max(attempt - 1, 1))
    assert not has_recovered([(e, bar), (19.0 * bar, bar)], attempt=attempt)


@given(falls=st.integers(0, 3000), waited=st.floats(0, 1e6))
def test_each_fall_doubles_the_cool_down(falls, waited):
    """More falls never wait less."""
    now = T0 + timedelta(seconds=waited)
    more = is_cool(since=T0, falls=falls + 1, cool_down_s=300.0, now=now)

    assert is_cool(since=T0, falls=falls, cool_down_s=300.0, now=now) or not more


@pytest.mark.calibration
def test_a_bad_candidate_rarely_recovers(policy_mapping):
    """No better than `pass_at`, looked at after every request: 500 first attempts at alpha 0.05 expect at most 1.25."""
    policy = parse_policy(policy_mapping | {"alpha": 0.05, "checks": policy_mapping["checks"][:1]})
    check, rng, recovered = policy.checks[0], np.random.default_rng(11), 0
    for _ in range(500):
        track = Track.start(check)
        for rate in rng.beta(9, 11, 150):  # mean 0.45, the limit itself
            track = track.take(float(rate), promoted=False)
            if has_recovered([(track.non_inferior.e_value, check.pass_threshold)], attempt=1):
                recovered += 1
                break

    assert recovered <= 3  # alpha / 20 * 500 + 2 standard errors
