"""A person hears once that something began and once that it is over; labels never carry a reading."""

import pytest
import yaml

from specops.control.alarms import alert_of, open_alarms
from specops.control.rollouts import Steer, abort_by_hand, steer
from specops.core.outcome import Finish
from specops.core.policy import parse_policy
from specops.core.rollout import Action, ActionKind, State, Step, StepKind

GATED = (Step(kind=StepKind.CANARY, weight=0.5, gate=True), Step(kind=StepKind.WATCH, weight=1.0))
WITH_PRECURSOR = """
name: early
alpha: 0.01
settle: 0
arl_requests: 10000
checks:
  - {name: acceptance, metric: acceptance_rate, at_least: 0.05, pass_at: 0.02, min_requests: 8, owner: oncall}
  - {name: early, metric: acceptance_rate, at_least: 0.45, min_requests: 8, owner: research, precursor: true}
"""

HOLDING = """
name: holding
alpha: 0.01
settle: 0
checks:
  - {name: acceptance, metric: acceptance_rate, at_least: 0.45, min_requests: 8, owner: oncall, on_fail: abstain}
"""
CALLING = """
name: calling
checks:
  - {name: acceptance, metric: acceptance_rate, at_least: 0.45, min_requests: 8, owner: alice, on_fail: abstain}
  - {name: errors, metric: error, at_most: 0.05, pass_at: 0.25, min_requests: 8, owner: bob, on_fail: escalate}
  - {name: ttft, metric: ttft_s, at_most: {limit_s: 2.0, share: 0.05}, pass_at: 0.25, min_requests: 8, owner: carol,
     on_fail: escalate}
"""


@pytest.fixture
def owed(store, clock):
    """Return a function that lists name, check, and whether it ended, of each alert in the outbox."""

    def read():
        with store.read() as unit:
            payloads = [m.payload for m in unit.outbox.due(clock()) if m.kind == "alert"]
        return [(p["labels"]["alertname"], p["labels"]["check"], "endsAt" in p) for p in payloads]

    return read


def fail_suite(store, clock, errors):
    """Let the data suite say something."""
    with store.begin() as unit:
        unit.evidence.add("ro-1", "data_suite", {"outcomes": 1, "errors": errors}, clock())


def test_unusable_evidence_is_told_once_and_ends(controller, store, ring, clock, healthy, owed):
    """Many ERROR verdicts, one alert; it is resolved when the data is sound; a second time is a second incident."""
    unusable = ("SpecopsEvidenceUnusable", "data")
    for expected in (1, 2):
        fail_suite(store, clock, ["completion_tokens is null"])
        for _ in range(3):
            ring.outcomes += healthy(2)
            controller.pass_once()
        fail_suite(store, clock, [])
        controller.pass_once()
        assert owed() == [(*unusable, False), (*unusable, True)] * expected


def test_an_ended_rollout_has_no_open_alarm_about_evidence(controller, store, clock, owed):
    """Nobody waits for data any more."""
    fail_suite(store, clock, ["broken"])
    controller.pass_once()

    abort_by_hand(store, "ro-1", reason="enough", actor="bob", now=clock())

    assert owed()[-1] == ("SpecopsEvidenceUnusable", "data", True)


def test_a_precursor_is_told_once_and_moves_nothing(store, ring, begin, make_controller, make_outcome, owed):
    """Its owner reads it; the rollout goes on."""
    rules = parse_policy(yaml.safe_load(WITH_PRECURSOR))
    begin(store, policy=rules, policy_text=WITH_PRECURSOR, steps=GATED)
    loop = make_controller(store, ring, policy=rules)
    loop.resume()
    for _ in range(4):
        ring.outcomes += [make_outcome(0.2) for _ in range(10)]
        loop.pass_once()

    assert owed() == [("SpecopsPrecursor", "early", False)]
    assert not loop.rollout.is_terminal
    with store.read() as unit:
        assert [m.payload["annotations"]["owner"] for m in unit.outbox.due(loop.clock()) if m.kind == "alert"] == ["research"]


def test_a_clock_set_back_still_ends_an_alert(controller, store, clock):
    """A receiver refuses an alert that ends before it begins."""
    fail_suite(store, clock, ["broken"])
    controller.pass_once()
    began = clock()
    clock.pass_s(-60)
    abort_by_hand(store, "ro-1", reason="enough", actor="bob", now=clock())
    clock.pass_s(60)

    with store.read() as unit:
        assert unit.outbox.due(clock())[-1].payload["endsAt"] == began.isoformat()


def test_a_person_who_resumes_ends_the_pause_alert(controller, store, clock, make_alarm, owed):
    """And a person who clears a stop ends that one."""
    make_alarm(ActionKind.PAUSE, State.PAUSED)
    steer(store, "ro-1", Steer.RESUME, reason="seen", actor="bob", now=clock())
    make_alarm(ActionKind.STOP, State.STOPPED)
    steer(store, "ro-1", Steer.CLEAR, reason="new driver", actor="bob", now=clock())

    assert [(name, ended) for name, _, ended in owed()] == [
        ("SpecopsInconclusive", False), ("SpecopsInconclusive", True), ("SpecopsStopped", False), ("SpecopsStopped", True),
    ]  # fmt: skip


def test_a_call_ends_when_nobody_is_called_any_more(controller, store, clock, make_alarm):
    """A retry forgets what a person was called about."""
    make_alarm(ActionKind.ESCALATE, State.FALLEN_BACK, about="latency", escalated=("latency",))
    with store.read() as unit:
        assert list(open_alarms(unit.evidence.of("ro-1"))) == ["called:latency"]

    steer(store, "ro-1", Steer.RETRY, reason="fixed", actor="bob", now=clock())

    with store.read() as unit:
        assert open_alarms(unit.evidence.of("ro-1")) == {}


def test_other_readings_do_not_open_another_incident(controller, clock):
    """The description carries them; the labels are the same."""
    actions = [Action(kind=ActionKind.ROLL_BACK, rollout=controller.rollout, reason=f"rate {rate}") for rate in (0.3, 0.2)]
    first, second = (alert_of(action, None, clock()) for action in actions)

    assert first["labels"] == second["labels"]
    assert first["annotations"]["description"] != second["annotations"]["description"]


@pytest.fixture
def make_alarm(store, clock):
    """Return a function that stores a rollout as an action would leave it, with the alert of that action."""
    from dataclasses import replace  # noqa: PLC0415

    from specops.control.record import record_action  # noqa: PLC0415

    def act(kind, state, about="", **changes):
        with store.begin() as unit:
            before = unit.rollouts.get("ro-1")
            after = replace(before, state=state, version=before.version + 1, **changes)
            unit.rollouts.save(after)
            action = Action(kind=kind, rollout=after, reason="because", about=about)
            record_action(unit, action, before=before, actor="control", at=clock(), verdict=None, deciding=None)

    return act


def test_an_alarm_stays_open_while_any_finding_is_an_error(store, ring, begin, make_controller, collapsed, owed):
    """A check that fails as well hides nothing: the data is still broken."""
    text = HOLDING
    rules = parse_policy(yaml.safe_load(text))
    begin(store, policy=rules, policy_text=text)
    loop = make_controller(store, ring, policy=rules)
    loop.resume()
    ring.dropped = 3
    ring.outcomes += collapsed(1)
    loop.pass_once()
    ring.outcomes += collapsed(40)
    loop.pass_once()

    assert owed() == [("SpecopsEvidenceUnusable", "source", False)]


def test_each_failing_check_calls_its_own_owner_once(store, ring, begin, make_controller, make_outcome, collapsed, owed):
    """A check that only abstains calls nobody, and takes nobody's call away."""
    rules = parse_policy(yaml.safe_load(CALLING))
    begin(store, policy=rules, policy_text=CALLING)
    loop = make_controller(store, ring, policy=rules)
    loop.resume()
    ring.outcomes += collapsed(60)
    loop.pass_once()
    ring.outcomes += [make_outcome(finish=Finish.ERROR, error="engine_5xx", ttft_s=9.0, e2e_s=9.0) for _ in range(40)]
    ring.outcomes += [make_outcome(0.1, ttft_s=9.0, e2e_s=9.0) for _ in range(40)]
    for _ in range(3):
        loop.pass_once()

    assert owed() == [("SpecopsNeedsPerson", "errors", False), ("SpecopsNeedsPerson", "ttft", False)]
    assert loop.rollout.escalated == ("errors", "ttft")
