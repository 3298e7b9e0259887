"""After a fallback the loop judges mirrored requests only, brings the trial back by itself, and looks at the baseline too."""

from datetime import timedelta

import pytest
import yaml

from specops.core.ladder import COOL_DOWN_S
from specops.core.outcome import Arm, Finish, Kind
from specops.core.policy import parse_policy
from specops.core.rollout import ActionKind, State

POLICY = """
name: falls
alpha: 0.01
settle: 0
arl_requests: 10000
fatal: {engine_unreachable: 1}
checks:
  - {name: acceptance, metric: acceptance_rate, at_least: 0.45, min_requests: 8, owner: oncall, on_fail: fallback}
"""


@pytest.fixture
def mirrored(make_outcome, clock):
    """Return a builder of mirrored answers that end now."""
    return lambda count, rate=0.7: [make_outcome(rate, kind=Kind.SHADOW, at=clock()) for _ in range(count)]


@pytest.fixture
def plain(make_outcome, releases, clock):
    """Return a builder of the baseline's answers that end now."""
    common = {"arm": Arm.BASELINE, "release_id": releases[0].id, "acceptance": None}
    return lambda count, **changes: [make_outcome(**(common | {"at": clock()} | changes)) for _ in range(count)]


@pytest.fixture
def fallen(store, ring, begin, make_controller, collapsed):
    """Return the loop of a rollout that fell back in its first step."""
    rules = parse_policy(yaml.safe_load(POLICY))
    begin(store, policy=rules, policy_text=POLICY)
    loop = make_controller(store, ring, policy=rules)
    loop.resume()
    ring.outcomes += collapsed(40)
    assert loop.pass_once().kind is ActionKind.FALL_BACK
    return loop


def alerts(store, clock):
    """Return name and end of each alert owed, in order."""
    with store.read() as unit:
        owed = [m.payload for m in unit.outbox.due(clock()) if m.kind == "alert"]
    return [(a["labels"]["alertname"], "endsAt" in a) for a in owed]


def test_the_fall_leaves_no_evidence_and_no_live_share(fallen, store, ring):
    """Behind the deciding outcome nothing live is folded any more."""
    assert (ring.route.weight, ring.route.mirror) == (0.0, 1.0)
    with store.read() as unit:
        assert unit.windows.load("ro-1")[0]["outcomes"] == 0
        assert unit.outcomes.count("ro-1") == 40


def test_it_recovers_by_itself_after_the_cool_down(fallen, store, ring, clock, mirrored, tags):
    """Good mirrored answers wait for the cool-down, then the trial begins again on evidence of its own; the alert ends."""
    ring.outcomes += mirrored(60)
    assert fallen.pass_once() is None
    clock.pass_s(COOL_DOWN_S)

    assert fallen.pass_once().kind is ActionKind.RECOVER

    assert (fallen.rollout.state, fallen.rollout.step, ring.route.mirror) == (State.RUNNING, 0, 1.0)
    assert tags(store)[-1] == "rollout:release:recovered"
    assert alerts(store, clock) == [("SpecopsFallenBack", False), ("SpecopsFallenBack", True)]
    with store.read() as unit:
        assert unit.windows.load("ro-1")[0]["outcomes"] == 0


def test_the_alert_that_ends_is_the_one_that_began(fallen, store, ring, clock, mirrored):
    """Same labels, so that the receiver closes the incident."""
    ring.outcomes += mirrored(60)
    clock.pass_s(COOL_DOWN_S)
    fallen.pass_once()

    with store.read() as unit:
        began, ended = [m.payload for m in unit.outbox.due(clock()) if m.kind == "alert"]

    assert (began["labels"], began["startsAt"]) == (ended["labels"], ended["startsAt"])
    assert ended["endsAt"] == clock().isoformat()


def test_a_kill_while_fallen_back_forgets_nothing(fallen, store, ring, clock, mirrored, make_controller):
    """The next process goes on with the mirrored evidence."""
    ring.outcomes += mirrored(30)
    fallen.pass_once()
    heir = make_controller(store, ring, policy=fallen.policy)
    heir.resume()
    ring.outcomes += mirrored(30)
    clock.pass_s(COOL_DOWN_S)

    assert heir.pass_once().kind is ActionKind.RECOVER


def test_bad_mirrored_answers_keep_it_down(fallen, store, ring, clock, mirrored, tags):
    """The attempt fails, another begins with a higher bar."""
    ring.outcomes += mirrored(60, 0.1)
    fallen.pass_once()
    clock.pass_s(COOL_DOWN_S)

    assert fallen.pass_once().kind is ActionKind.PROBE

    assert (fallen.rollout.state, fallen.rollout.attempt, ring.route.weight) == (State.FALLEN_BACK, 2, 0.0)
    assert tags(store)[-1] == "rollout:recovery:retried"


def test_a_sick_baseline_calls_its_requester_until_it_is_well(fallen, store, ring, clock, plain, make_controller):
    """Errors of plain itself while fallen back: one call, kept through a restart, ended after 20 good answers in a row."""
    broken = {"finish": Finish.ERROR, "error": "engine_error"}
    ring.outcomes += [*plain(3, **broken), *plain(1, finish=Finish.ABORT), *plain(2, **broken), *plain(9, **broken)]
    assert fallen.pass_once() is None
    heir = make_controller(store, ring, policy=fallen.policy)
    heir.resume()
    ring.outcomes += plain(19)
    heir.pass_once()

    assert heir.rollout.state is State.FALLEN_BACK
    with store.read() as unit:
        _fallen, call = [m.payload for m in unit.outbox.due(clock()) if m.kind == "alert"]
    assert call["labels"]["alertname"] == "SpecopsBaselineUnhealthy"
    assert (call["labels"]["check"], call["annotations"]["owner"]) == ("fallback:plain", "ann")
    assert "14 requests of the baseline failed, the last 14 in a row" in call["annotations"]["description"]

    ring.outcomes += plain(1)
    heir.pass_once()
    with store.read() as unit:
        *_, ended = [m.payload for m in unit.outbox.due(clock()) if m.kind == "alert"]
    assert (ended["labels"], "endsAt" in ended) == (call["labels"], True)


def test_a_healthy_baseline_calls_nobody(fallen, ring, plain):
    """Falling back helped."""
    ring.outcomes += plain(40)

    assert fallen.pass_once() is None


def test_outcomes_from_before_the_fall_are_recorded_only(fallen, store, ring, clock, mirrored):
    """They ended before, so they say nothing about now."""
    clock.at -= timedelta(seconds=9)
    ring.outcomes += mirrored(20)
    clock.pass_s(9)
    fallen.pass_once()

    with store.read() as unit:
        assert unit.windows.load("ro-1")[0]["outcomes"] == 0
        assert unit.outcomes.count("ro-1") == 60
