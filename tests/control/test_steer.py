"""Steering by hand: one audit entry each, control follows at its next pass, a retry is judged on new outcomes only."""

from dataclasses import replace

import pytest
import yaml

from specops.control.act import record_action
from specops.control.replay import replay_rollout
from specops.control.rollouts import Steer, abort_by_hand, start, steer
from specops.core.policy import parse_policy
from specops.core.rollout import Action, ActionKind, State
from specops.errors import IllegalTransition

WAITING = """
name: waiting
alpha: 0.01
settle: 0
max_wait: 1h
checks:
  - {name: acceptance, metric: acceptance_rate, at_least: 0.45, min_requests: 1000, owner: oncall}
"""


def act(store, clock, kind, state):
    """Store a rollout as the control loop would after an action that this policy can't ask for yet."""
    with store.begin() as unit:
        before = unit.rollouts.get("ro-1")
        after = replace(before, state=state, version=before.version + 1, falls=1)
        unit.rollouts.save(after)
        action = Action(kind=kind, rollout=after, reason="too slow")
        record_action(unit, action, before=before, actor="control", at=clock(), verdict=None, deciding=None)


def test_a_paused_rollout_keeps_its_share_until_resumed(controller, store, ring, clock, healthy, tags):
    """PASS does not move it while it is held; afterwards an empty poll is enough."""
    steer(store, "ro-1", Steer.PAUSE, reason="holiday", actor="bob", now=clock())
    ring.outcomes += healthy(60)
    assert controller.pass_once() is None
    assert ring.route.mirror == 1.0

    steer(store, "ro-1", Steer.RESUME, reason="back", actor="bob", now=clock())

    assert controller.pass_once().kind is ActionKind.ADVANCE
    assert tags(store)[1:3] == ["rollout:state:held", "rollout:state:resumed"]


def test_a_paused_rollout_still_fails(controller, store, ring, clock, collapsed):
    """A pause is no shelter from evidence."""
    steer(store, "ro-1", Steer.PAUSE, reason="holiday", actor="bob", now=clock())
    ring.outcomes += collapsed(40)

    assert controller.pass_once().kind is ActionKind.ROLL_BACK


def test_a_retry_is_judged_on_new_outcomes(controller, store, ring, clock, healthy):
    """The evidence from before the fall is gone; the outcomes themselves stay on record."""
    ring.outcomes += healthy(9)
    controller.pass_once()
    act(store, clock, ActionKind.FALL_BACK, State.FALLEN_BACK)
    controller.pass_once()
    assert (ring.route.weight, ring.route.mirror) == (0.0, 1.0)

    steer(store, "ro-1", Steer.RETRY, reason="fixed", actor="bob", now=clock())

    ring.outcomes += healthy(4)
    controller.pass_once()
    with store.read() as unit:
        assert unit.windows.load("ro-1")[0]["outcomes"] == 4
        assert unit.outcomes.count("ro-1") == 13


def test_a_retry_survives_a_kill_of_control(controller, store, ring, clock, healthy, make_controller):
    """A new process passes over what the gateway holds from before the retry."""
    ring.outcomes += healthy(9)
    controller.pass_once()
    act(store, clock, ActionKind.FALL_BACK, State.FALLEN_BACK)
    steer(store, "ro-1", Steer.RETRY, reason="fixed", actor="bob", now=clock())

    heir = make_controller(store, ring)
    heir.resume()
    ring.outcomes += healthy(4)
    heir.pass_once()

    with store.read() as unit:
        assert unit.windows.load("ro-1")[0]["outcomes"] == 4


@pytest.mark.parametrize(("kind", "state", "name"), [
    (ActionKind.FALL_BACK, State.FALLEN_BACK, "SpecopsFallenBack"),
    (ActionKind.ESCALATE, State.RUNNING, "SpecopsNeedsPerson"),
    (ActionKind.STOP, State.STOPPED, "SpecopsStopped"),
    (ActionKind.PAUSE, State.PAUSED, "SpecopsInconclusive"),
])
def test_each_rung_owes_its_alert(controller, store, clock, everything, kind, state, name):
    """One alert, named after what happened, without a reading among its labels."""
    act(store, clock, kind, state)

    (alert,) = [m.payload for m in everything(store)["outbox"] if m.kind == "alert"]

    assert (alert["labels"]["alertname"], alert["annotations"]["description"]) == (name, "too slow")


def test_a_stopped_candidate_needs_a_person(controller, store, clock, make_plan):
    """A new rollout of it is refused until somebody clears it."""
    act(store, clock, ActionKind.STOP, State.STOPPED)
    with pytest.raises(IllegalTransition, match="was stopped in rollout ro-1"):
        start(store, make_plan(rollout_id="ro-2"), actor="ann", now=clock())

    steer(store, "ro-1", Steer.CLEAR, reason="new driver", actor="bob", now=clock())

    assert start(store, make_plan(rollout_id="ro-2"), actor="ann", now=clock()).state is State.RUNNING


def test_a_promoted_rollout_finishes_and_the_alias_stays(controller, store, ring, clock, healthy, releases):
    """Everybody stays on the candidate; nothing moves it any more."""
    ring.outcomes += healthy(60)
    controller.pass_once()

    steer(store, "ro-1", Steer.FINISH, reason="good", actor="bob", now=clock())

    assert controller.pass_once() is None
    assert (ring.route.weight, controller.rollout.is_terminal) == (1.0, True)
    with store.read() as unit:
        assert unit.aliases.get("production") == releases[1].id


def test_aborting_a_promoted_rollout_moves_the_alias_back(controller, store, ring, clock, healthy, releases):
    """The alias names what serves everybody, also after an abort."""
    ring.outcomes += healthy(60)
    controller.pass_once()

    abort_by_hand(store, "ro-1", reason="smoke", actor="bob", now=clock())

    with store.read() as unit:
        assert unit.aliases.get("production") == releases[0].id


def test_the_policy_is_registered_before_the_first_outcome(controller, store, ring, healthy):
    """The digest is in the log, and the rollout started, before anything was read from the gateway."""
    ring.outcomes += healthy(60)
    controller.pass_once()

    with store.read() as unit:
        tags = [e.tag for e in unit.audit.all()]

    assert tags.index("policy:thresholds:registered") < tags.index("rollout:plan:started") < tags.index("rollout:step:advanced")


def test_a_retry_leaves_out_what_ended_before_it(controller, store, ring, clock, make_outcome):
    """Outcomes of the trial before that control had not read yet say nothing about the new one; replay agrees."""
    steer(store, "ro-1", Steer.PAUSE, reason="odd", actor="bob", now=clock())
    ring.outcomes += [make_outcome(at=clock()) for _ in range(7)]  # ended, not polled yet
    clock.pass_s(1)
    steer(store, "ro-1", Steer.RETRY, reason="fixed", actor="bob", now=clock())
    ring.outcomes += [make_outcome(at=clock()) for _ in range(2)]

    controller.pass_once()

    with store.read() as unit:
        assert (unit.windows.load("ro-1")[0]["outcomes"], unit.outcomes.count("ro-1")) == (2, 9)
    assert replay_rollout(store, "ro-1").difference is None


def test_no_outcome_is_lost_when_control_dies_after_a_retry(controller, store, ring, clock, make_outcome, make_controller):
    """The next process reads on from where the last one was, not from where the gateway is."""
    ring.outcomes += [make_outcome(at=clock()) for _ in range(5)]
    controller.pass_once()
    steer(store, "ro-1", Steer.PAUSE, reason="odd", actor="bob", now=clock())
    clock.pass_s(1)
    steer(store, "ro-1", Steer.RETRY, reason="fixed", actor="bob", now=clock())
    ring.outcomes += [make_outcome(at=clock()) for _ in range(4)]

    heir = make_controller(store, ring)
    heir.resume()
    heir.pass_once()

    with store.read() as unit:
        assert (unit.windows.load("ro-1")[0]["outcomes"], unit.outcomes.count("ro-1")) == (4, 9)


def test_a_retry_before_control_ever_ran_stores_no_position(store, begin, clock):
    """There is none to keep; control begins behind what the gateway holds."""
    begin(store)
    steer(store, "ro-1", Steer.PAUSE, reason="odd", actor="bob", now=clock())

    steer(store, "ro-1", Steer.RETRY, reason="fixed", actor="bob", now=clock())

    with store.read() as unit:
        assert unit.windows.load("ro-1") is None


def test_a_pause_by_hand_does_not_disarm_the_longest_wait(store, ring, begin, make_controller, make_outcome, clock):
    """Only who resumes after INCONCLUSIVE knows of it; a break for lunch leaves `max_wait` in force."""
    rules = parse_policy(yaml.safe_load(WAITING))
    begin(store, policy=rules, policy_text=WAITING)
    loop = make_controller(store, ring, policy=rules)
    loop.resume()
    ring.outcomes += [make_outcome(at=clock())]
    loop.pass_once()
    steer(store, "ro-1", Steer.PAUSE, reason="lunch", actor="bob", now=clock())
    steer(store, "ro-1", Steer.RESUME, reason="back", actor="bob", now=clock())
    clock.pass_s(10 * 3600)
    ring.outcomes += [make_outcome(at=clock())]

    assert loop.pass_once().kind is ActionKind.PAUSE
