"""Replay on a real store: what the control loop wrote is made again bit for bit, and a change anywhere is named."""

from datetime import timedelta

import pytest
import sqlalchemy as sa

from specops.control import rollouts
from specops.control.amend import approve_amendment, propose_amendment, read_policy
from specops.control.replay import recorded, replay_rollout
from specops.control.rollouts import Steer, steer
from specops.core.outcome import Arm, Finish, Kind
from specops.errors import InvalidRecord
from specops.store.sqlite import TRIGGERS

GRACE = timedelta(seconds=1)


def drain(controller, ring):
    """Let the control loop read all that the gateway holds."""
    while controller._cursor < len(ring.outcomes):
        controller.pass_once()


def tampered(store, statement):
    """Edit the database behind its guards."""
    with store.begin() as unit:
        for name in TRIGGERS:
            unit._connection.execute(sa.text(f"DROP TRIGGER IF EXISTS {name}"))
        assert unit._connection.execute(sa.text(statement)).rowcount >= 1


def test_a_promotion_and_its_roll_back_are_replayed(store, ring, controller, healthy, collapsed):
    """Shadow, canary, watch, collapse: every verdict and every decision comes out again."""
    ring.outcomes += [*healthy(120), *collapsed(60)]
    drain(controller, ring)

    done = replay_rollout(store, "ro-1")

    assert controller.rollout.state == "rolled_back"
    assert (done.difference, done.decisions) == (None, 4)
    assert done.outcomes == 180
    assert done.verdicts >= done.decisions


def test_how_outcomes_were_cut_does_not_matter(store, ring, controller, healthy, collapsed):
    """A control loop that reads three at a time leaves the same decisions behind."""
    ring.limit = 3
    ring.outcomes += [*healthy(60), *collapsed(30)]
    drain(controller, ring)

    assert replay_rollout(store, "ro-1").difference is None


def test_what_people_did_is_done_again(store, ring, controller, healthy, clock):
    """A pause, a resume and the end by hand are part of the story, not differences."""
    ring.outcomes += healthy(15)
    drain(controller, ring)
    steer(store, "ro-1", Steer.PAUSE, reason="lunch", actor="bob", now=clock())
    ring.outcomes += healthy(15)
    drain(controller, ring)
    steer(store, "ro-1", Steer.RESUME, reason="back", actor="bob", now=clock())
    ring.outcomes += healthy(40)
    drain(controller, ring)
    rollouts.abort_by_hand(store, "ro-1", reason="enough", actor="bob", now=clock())

    assert replay_rollout(store, "ro-1").difference is None


def test_an_amended_policy_judges_from_its_approval_on(store, ring, controller, make_outcome, clock, policy):
    """Verdicts before keep the old digest, those after are judged by the new policy on new outcomes."""
    text = "name: second\nchecks: [{name: acceptance, metric: acceptance_rate, at_least: 0.3, owner: oncall}]"
    ring.outcomes += [make_outcome() for _ in range(7)]
    drain(controller, ring)
    clock.pass_s(10)
    propose_amendment(
        store, "ro-1", policy=read_policy(text), policy_text=text, reason="too strict", actor="ann", now=clock()
    )
    approve_amendment(store, "ro-1", digest=read_policy(text).digest, actor="bob", now=clock())
    clock.pass_s(10)
    ring.outcomes += [make_outcome(at=clock()) for _ in range(30)]
    drain(controller, ring)

    assert controller.policy.digest != policy.digest
    assert replay_rollout(store, "ro-1").difference is None


def test_a_retry_begins_at_the_outcomes_after_it(store, ring, controller, make_outcome, clock):
    """Old outcomes count for nothing, in the replay too."""
    ring.outcomes += [make_outcome() for _ in range(7)]
    drain(controller, ring)
    clock.pass_s(10)
    steer(store, "ro-1", Steer.PAUSE, reason="wait", actor="bob", now=clock())
    steer(store, "ro-1", Steer.RETRY, reason="again", actor="bob", now=clock())
    clock.pass_s(10)
    ring.outcomes += [make_outcome(at=clock()) for _ in range(60)]
    drain(controller, ring)

    assert replay_rollout(store, "ro-1").difference is None


def test_complaints_about_data_are_taken_from_the_verdict(store, ring, begin, make_controller, healthy):
    """A refused batch is no evidence; its ERROR is replayed from the complaints that the verdict holds."""
    begin(store)
    faults = [("clock of the gateway is off; by 3 h", "a field is missing"), ()]
    loop = make_controller(store, ring, check=lambda _o, _at: faults.pop(0))
    loop.resume()
    ring.outcomes += healthy(5)
    loop.pass_once()
    ring.outcomes += healthy(20)
    loop.pass_once()

    done = replay_rollout(store, "ro-1")

    assert (done.difference, done.outcomes) == (None, 20)


@pytest.mark.parametrize(
    ("statement", "where"),
    [
        (
            "UPDATE verdict SET record = json_set(record, '$.findings[0].e_value', 1.25) WHERE id = 2",
            "verdict 1.findings[0].e_value",
        ),
        ("UPDATE verdict SET record = json_set(record, '$.result', 'FAIL') WHERE id = 1", "verdict 0.result"),
        (
            "UPDATE outcome_tail SET record = json_set(record, '$.acceptance', json('null')) WHERE position = 1",
            "verdict 0.",
        ),
        ("DELETE FROM outcome_tail WHERE position > 20", "verdict"),
        ("UPDATE rollout SET record = json_set(record, '$.state', 'paused')", "rollout.state"),
        ("UPDATE evidence_window SET record = json_set(record, '$.tracks[0].gate.peak', 99.0)", "evidence.tracks[0].gate.peak"),
    ],
)
def test_a_change_anywhere_is_named(store, ring, controller, healthy, statement, where):
    """In a verdict, an outcome, the rollout or the folded evidence."""
    ring.outcomes += healthy(30)
    drain(controller, ring)
    tampered(store, statement)

    difference = replay_rollout(store, "ro-1").difference

    assert difference is not None
    assert difference.text.startswith(where)


def test_a_decision_without_its_verdict_is_named(store, ring, controller, healthy):
    """An entry that rests on a verdict which is not there."""
    ring.outcomes += healthy(30)
    drain(controller, ring)
    tampered(store, "DELETE FROM verdict")

    assert "no such verdict" in replay_rollout(store, "ro-1").difference.text


def test_a_policy_text_that_was_changed_is_refused(store, ring, controller, healthy):
    """The digest of what it now says is not the one it is stored under."""
    ring.outcomes += healthy(30)
    drain(controller, ring)
    tampered(store, "UPDATE policy SET text = replace(text, '0.45', '0.40')")

    with pytest.raises(InvalidRecord, match="now reads as policy"):
        replay_rollout(store, "ro-1")


def test_a_fallback_and_its_recovery_are_replayed(
    store, ring, begin, make_controller, make_plan, make_outcome, clock, releases
):
    """After the fall only mirrored requests count, before and after the recovery, in the replay too."""
    text = make_plan().policy_text.replace("at_least: 0.45,", "at_least: 0.45, pass_at: 0.3, on_fail: fallback,")
    begin(store, policy=read_policy(text), policy_text=text)
    loop = make_controller(store, ring, policy=read_policy(text))
    loop.resume()
    ring.outcomes += [make_outcome() for _ in range(20)] + [make_outcome(rate=0.0) for _ in range(30)]
    drain(loop, ring)
    assert loop.rollout.state == "fallen_back"
    clock.pass_s(1e5)
    ring.outcomes += [make_outcome(at=clock(), kind=Kind.SHADOW) for _ in range(200)]
    ring.outcomes += [
        make_outcome(at=clock(), arm=Arm.BASELINE, release_id=releases[0].id, finish=Finish.STOP) for _ in range(5)
    ]
    drain(loop, ring)

    done = replay_rollout(store, "ro-1")

    assert loop.rollout.falls == 1
    assert loop.rollout.state != "fallen_back"
    assert done.difference is None


def test_what_is_recorded_is_handed_over_whole(store, ring, controller, healthy, policy):
    """Rollout, outcomes in order, and the policy in force."""
    ring.outcomes += healthy(12)
    drain(controller, ring)

    rollout, outcomes, rules = recorded(store, "ro-1")

    assert (rollout.id, len(outcomes), rules.digest) == ("ro-1", 12, policy.digest)


def test_sealed_outcomes_are_replayed_to_the_same_bits(store, ring, controller, healthy):
    """Parquet gives back what was folded."""
    ring.outcomes += healthy(120)
    drain(controller, ring)
    with store.begin() as unit:
        assert unit.outcomes.seal("ro-1") is not None

    assert replay_rollout(store, "ro-1").difference is None
