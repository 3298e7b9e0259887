"""Kill -9 of each process in the middle of a canary: what clients see, where traffic goes, what is on record."""

import os
import signal
from datetime import timedelta

import pytest

from specops.control.act import TAGS
from specops.control.rollouts import roll_back_by_hand
from specops.core.outcome import Arm
from specops.core.rollout import State
from specops.wiring import now

pytestmark = pytest.mark.flow
MOVED = frozenset(TAGS.values())


def test_a_killed_candidate_engine_costs_no_client_an_error_and_is_rolled_back(site):
    """Within a second all traffic is on plain; the rollout ends with the engine named, an alert, and a sound audit log."""
    site.begin(canary_requests=100_000)
    traffic = site.load(12.0)
    site.wait_canary()

    site.stage.speculative.kill()
    killed_at = now()  # the process is reaped, so the kernel has closed its sockets
    settled_at = killed_at + timedelta(seconds=1)
    site.wait(lambda: sum(sent.sent_at > settled_at for sent in traffic.sent) >= 20, "requests after the kill")
    site.wait(lambda: site.rollout().is_terminal, "the roll-back")
    report = site.stop(traffic)

    assert [(sent.request_id, sent.error) for sent in report.sent if sent.error] == []
    assert {sent.arm for sent in report.sent if sent.sent_at > settled_at} == {Arm.BASELINE}
    assert any(sent.arm == Arm.CANDIDATE for sent in report.sent)
    assert site.rollout().state is State.ROLLED_BACK
    assert "candidate" in site.rollout().reason
    assert "engine_unreachable" in site.rollout().reason
    site.wait(site.receiver.received, "the alert", timeout_s=20.0)
    assert site.receiver.received()[0].annotations["description"] == site.rollout().reason
    assert len(site.entries("rollout:release:rolled_back")) == 1
    assert site.proof().proven > 0


def test_a_killed_control_process_resumes_the_rollout_with_its_evidence_and_acts_once(site):
    """The gateway serves on without it; after the restart evidence only grows and each transition is on record once."""
    site.begin(canary_requests=60)
    traffic = site.load(12.0)
    site.wait_canary()

    site.stage.end("control", kill=True)
    step, (seen, _) = site.rollout().step, site.window()
    answered = len(traffic.sent)
    site.wait(lambda: len(traffic.sent) >= answered + 15, "answers without a control plane")
    assert {sent.arm for sent in traffic.sent[answered:]} == {Arm.BASELINE, Arm.CANDIDATE}
    assert (site.rollout().step, site.window()[0]) == (step, seen)

    site.start_control()
    site.wait(lambda: site.window()[0] > seen, "evidence after the restart")
    assert site.rollout().step >= step
    site.wait(lambda: site.rollout().state is not State.RUNNING, "the end of the canary")
    report = site.stop(traffic)

    assert report.errors == 0
    versions = [entry.payload["version"] for entry in site.entries(*MOVED)]
    assert versions == list(range(2, 2 + len(versions)))  # one entry for each version of the rollout, none twice
    assert len(site.entries("rollout:release:promoted", "rollout:release:rolled_back")) == 1
    outcomes, counted = site.snapshot()
    folded = [outcome.request_id for outcome in outcomes if outcome.arm is Arm.CANDIDATE]
    assert len(folded) == len(set(folded)) == counted  # nothing lost between store and evidence, nothing counted twice
    assert site.proof().proven > 0


def test_a_restarted_gateway_keeps_its_last_route_and_control_goes_on_with_the_new_epoch(site):
    """A gateway alone never raises the candidate's share; its new epoch does not reset the evidence."""
    site.begin(canary_requests=100_000)
    traffic = site.load(12.0)
    site.wait_canary()
    assert site.stop(traffic).errors == 0
    control = site.stage._children["control"]
    os.kill(control.pid, signal.SIGSTOP)  # so that only the file can tell the gateway its route
    try:
        before, (seen, epoch) = site.status(), site.window()

        site.stage.gateway.kill()
        site.stage.gateway.start().wait_ready(30.0)

        after = site.status()
        assert after["route"] == before["route"]
        assert after["effective_weight"] == before["effective_weight"] == 0.5
        assert after["epoch"] != before["epoch"] == epoch
    finally:
        os.kill(control.pid, signal.SIGCONT)
    again = site.load(12.0, seed=1)
    site.wait(lambda: site.window()[0] > seen and site.window()[1] == after["epoch"], "evidence of the new epoch")
    assert site.stop(again).errors == 0
    assert site.rollout().state is State.RUNNING
    assert site.status()["effective_weight"] == 0.5
    assert site.status()["route"]["revision"] > before["route"]["revision"]


def test_a_roll_back_while_the_gateway_was_away_reaches_it_when_it_returns(site):
    """The gateway comes back with the share in its file; control takes it away although the rollout has ended."""
    site.begin(canary_requests=100_000)
    traffic = site.load(12.0)
    site.wait_canary(1)
    site.stop(traffic)
    site.stage.gateway.kill()

    roll_back_by_hand(site.house.store, site.rollout_id, reason="gateway is away", actor="tester", now=now())
    site.wait(lambda: "waiting" in (site.stage.logs / "control.log").read_text(), "control to miss the gateway")
    site.stage.gateway.start().wait_ready(30.0)

    site.wait(lambda: (site.status() or {"effective_weight": 1})["effective_weight"] == 0, "the roll-back", timeout_s=15.0)
    assert site.status()["route"]["weight"] == 0


def test_a_roll_back_while_control_was_dead_reaches_the_gateway_at_its_restart(site):
    """A kill between commit and route loses nothing: the next control process puts the route that is owed."""
    site.begin(canary_requests=100_000)
    traffic = site.load(12.0)
    site.wait_canary(1)
    site.stop(traffic)
    site.stage.end("control", kill=True)

    roll_back_by_hand(site.house.store, site.rollout_id, reason="control is dead", actor="tester", now=now())
    assert site.status()["effective_weight"] == 0.5
    site.start_control()

    site.wait(lambda: site.status()["effective_weight"] == 0, "the roll-back", timeout_s=25.0)
