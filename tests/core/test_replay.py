"""Replay of a story written by a small control loop of the test's own: the same bits, or the first that differs."""

import json
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specops.core.audit import AuditEntry
from specops.core.judge import judge
from specops.core.ladder import Terms
from specops.core.outcome import Acceptance, Arm, Finish, Kind, Outcome
from specops.core.policy import parse_policy
from specops.core.replay import Difference, Story, first_difference, replay
from specops.core.rollout import ActionKind, Rollout, Step, StepKind, advance
from specops.core.steer import pause
from specops.core.window import Window, fold
from specops.errors import InvalidRecord
from tests.core.conftest import T0

RULES = {
    "name": "test",
    "arl_requests": 10_000,
    "checks": [
        {"name": "acceptance", "metric": "acceptance_rate", "at_least": 0.45, "pass_at": 0.4, "min_requests": 8, "owner": "o"}
    ],
}
STEPS = (Step(kind=StepKind.CANARY, weight=0.1, min_requests=5), Step(kind=StepKind.WATCH, weight=1.0))


def outcome(number, rate, **changes):
    """Build an answer of the candidate, a second after the one before."""
    counts = Acceptance(rounds=25, drafted=100, accepted=round(100 * rate))
    plain = {"request_id": f"r{number}", "arm": Arm.CANDIDATE, "kind": Kind.LIVE, "release_id": "b", "e2e_s": 1.0}
    return Outcome(**(plain | {"at": T0 + timedelta(seconds=number), "finish": Finish.STOP, "acceptance": counts} | changes))


def entry(index, tag, at, **payload):
    """Build an audit entry."""
    return AuditEntry(index=index, tag=tag, actor="bob", subject="ro-1", payload=payload, at=at)


def lived(rates, rules=None):
    """Live through outcomes as control does, and return what it would have stored."""
    policy = parse_policy(RULES | (rules or {}))
    rollout = Rollout(id="ro-1", baseline="a", candidate="b", policy_digest=policy.digest, pipeline="p", steps=STEPS)
    outcomes = tuple(outcome(i, rate) for i, rate in enumerate(rates))
    window, verdicts = Window.empty(policy), []
    entries = [entry(0, "rollout:plan:started", T0, policy=policy.digest)]
    for one in outcomes:
        if not rollout.counts(one):
            continue
        window = fold(window, one, policy, promoted=rollout.state == "promoted")
        if rollout.is_terminal:
            continue
        verdict = judge(policy, window, terms=Terms(promoted=rollout.state == "promoted"), now=one.at)
        verdicts.append(verdict.to_record())
        action = advance(rollout, verdict, candidate_outcomes=window.candidate_outcomes)
        if action.kind is not ActionKind.HOLD:
            to = action.rollout
            said = {"action": str(action.kind), "reason": action.reason, "state": str(to.state), "step": to.step}
            said |= {"version": to.version, "evidence": to.evidence, "verdict": str(verdict.result)}
            entries.append(entry(len(entries), "rollout:any:moved", one.at, **said, outcomes=verdict.outcomes))
            window = window if to.evidence == rollout.evidence else Window.empty(policy)
            rollout = to
    return Story(
        rollout=rollout, policies={policy.digest: policy}, outcomes=outcomes,
        verdicts=tuple(jsonable(v) for v in verdicts), entries=tuple(entries), window=jsonable(window.to_record()),
    )  # fmt: skip


def jsonable(value):
    """Return a value as it comes back from the store."""
    return json.loads(json.dumps(value))


@settings(max_examples=25, deadline=None)
@given(
    rates=st.lists(st.sampled_from([0.0, 0.2, 0.45, 0.7, 0.9, 1.0]), max_size=60),
    rung=st.sampled_from(["roll_back", "fallback"]),
)
def test_what_was_lived_is_replayed_to_the_last_bit(rates, rung):
    """Whatever the outcomes are, and wherever the rollout ended."""
    story = lived(rates, {"checks": [RULES["checks"][0] | {"on_fail": rung}]})

    done = replay(story)

    assert done.difference is None
    assert (done.outcomes, done.verdicts) == (len(rates), len(story.verdicts))


@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_any_changed_outcome_that_was_judged_is_found(data):
    """One request's acceptance, changed after the fact, changes an e-value."""
    story = lived([0.6] * 30)
    at = data.draw(st.integers(0, 29))
    outcomes = [*story.outcomes]
    outcomes[at] = outcome(at, 0.1)

    assert replay(replace(story, outcomes=tuple(outcomes))).difference is not None


def test_another_policy_under_a_verdict_is_named():
    """The digest in the verdict is that of the policy in force."""
    story = lived([0.6] * 5)
    verdicts = (*story.verdicts[:2], story.verdicts[2] | {"policy_digest": "e" * 64})

    found = replay(replace(story, verdicts=verdicts)).difference

    assert found.where == "verdict 2.policy_digest"


def test_a_decision_that_the_policy_does_not_make_is_named():
    """The entry says more than the verdict asked for."""
    story = lived([0.7] * 60)
    moved = story.entries[1]
    forged = replace(moved, payload=moved.payload | {"step": 0})

    found = replay(replace(story, entries=(story.entries[0], forged, *story.entries[2:]))).difference

    assert found.text == "entry 1 rollout:any:moved.step: stored 0, replayed 1"


@pytest.mark.parametrize("cut", [3, 30])
def test_missing_outcomes_are_named(cut):
    """Under a verdict, and under the one that decided."""
    story = lived([0.7] * 60)

    found = replay(replace(story, outcomes=story.outcomes[:cut], verdicts=story.verdicts)).difference

    assert f"{cut} outcomes there are" in found.replayed


def test_a_forged_verdict_before_a_decision_is_named():
    """In whichever order they come."""
    story = lived([0.7] * 60)
    verdicts = (story.verdicts[0] | {"outcomes": 1, "result": "FAIL"}, *story.verdicts[1:])

    assert replay(replace(story, verdicts=verdicts)).difference.where == "verdict 0.result"


def test_a_forged_verdict_before_a_hand_is_named():
    """A person's deed does not hide it."""
    story = lived([0.6] * 5)
    held = entry(1, "rollout:state:held", T0 + timedelta(hours=1), reason="x")
    verdicts = (story.verdicts[0] | {"result": "FAIL"}, *story.verdicts[1:])

    assert replay(replace(story, verdicts=verdicts, entries=(*story.entries, held))).difference.where == "verdict 0.result"


def test_what_nobody_could_have_done_is_named():
    """A resume of a rollout that ran."""
    story = lived([0.6] * 5)
    resumed = entry(1, "rollout:state:resumed", T0 + timedelta(hours=1), reason="x")

    found = replay(replace(story, entries=(*story.entries, resumed))).difference

    assert found.stored == "done by bob"
    assert "expected paused" in found.replayed


def test_a_retry_passes_over_what_came_before_it():
    """Outcomes that ended before it count for nothing, also those that no verdict had read."""
    story = lived([0.6] * 5)
    later = T0 + timedelta(hours=1)
    hands = (entry(1, "rollout:state:held", later, reason="x"), entry(2, "rollout:state:retried", later, reason="y"))
    after = pause(story.rollout, reason="x").begun_anew(reason="y")

    done = replay(replace(story, verdicts=(), entries=(*story.entries, *hands), rollout=after, window=None))

    assert (done.difference, done.outcomes) == (None, 5)


def test_after_an_end_by_hand_the_evidence_is_not_compared():
    """Which outcomes the monitor had seen by then is known to nobody."""
    story = lived([0.7] * 60)
    ended = entry(9, "rollout:plan:aborted", T0 + timedelta(hours=1), reason="x")
    after = replace(story.rollout, state="aborted", version=story.rollout.version + 1)

    assert story.rollout.state == "promoted"
    assert replay(replace(story, entries=(*story.entries, ended), rollout=after, window={"outcomes": 1})).difference is None


def test_errors_of_the_baseline_after_a_fallback_are_counted_again():
    """They call a person; live requests of the baseline count, rejected ones don't."""
    story = lived([0.7] * 10 + [0.0] * 50, {"checks": [RULES["checks"][0] | {"on_fail": "fallback"}]})
    plain = {"arm": Arm.BASELINE, "release_id": "a", "acceptance": None}
    more = [outcome(50 + i, 0.5, **plain, finish=f) for i, f in enumerate([Finish.ERROR, Finish.REJECTED, Finish.STOP])]

    done = replay(replace(story, outcomes=(*story.outcomes, *more), window=None))

    assert story.rollout.state == "fallen_back"
    assert done.difference is None


def test_a_story_without_beginning_or_policy_is_refused():
    """There is nothing to replay from."""
    story = lived([0.6])

    with pytest.raises(InvalidRecord, match="no rollout:plan:started"):
        replay(replace(story, entries=()))
    with pytest.raises(InvalidRecord, match="was not given"):
        replay(replace(story, policies={}))


def test_the_first_differing_leaf_is_named():
    """Lists of another length differ as wholes, a long value is cut, and true is not 1."""
    assert first_difference({"a": [1, {"b": 2.0}]}, {"a": [1, {"b": 2.5}]}, "x") == Difference(
        where="x.a[1].b", stored="2.0", replayed="2.5"
    )
    assert first_difference([1], [1, 2], "x").where == "x"
    assert first_difference(True, 1, "x") is not None
    assert first_difference("a" * 300, "b", "x").stored.endswith("...")
    assert first_difference({"a": 1}, {"a": 1, "new": 2}, "x") is None


@pytest.mark.parametrize("record", [{}, {"outcomes": "x"}, {"outcomes": 1, "at": "yesterday"}, {"outcomes": 1, "at": 3}, []])
def test_a_record_that_is_none_is_refused(record):
    """One line, whatever stands in the database."""
    story = lived([0.6] * 5)

    with pytest.raises(InvalidRecord, match="no such record"):
        replay(replace(story, verdicts=(record, *story.verdicts)))
