"""The control loop moves traffic by the policy alone, in one transaction each time, and survives being killed."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specops.control import rollouts
from specops.control.act import LEASE_S, SILENT_S
from specops.control.replay import replay_rollout
from specops.core.judge import judge
from specops.core.ladder import Terms
from specops.core.outcome import Finish
from specops.core.policy import parse_policy
from specops.core.rollout import ActionKind, State, Step, StepKind
from specops.core.verdict import Result
from specops.core.window import Window, fold
from specops.errors import GatewayUnavailable, StoreUnavailable

LADDER = """
name: ladder
alpha: 0.01
settle: 0
checks:
  - {{name: acceptance, metric: acceptance_rate, at_least: 0.45, min_requests: 8, owner: oncall, on_fail: {rung}}}
"""
CROWDED = """
name: crowded
alpha: 0.01
settle: 0
speculate: {below_in_flight: 9}
checks:
  - {name: acceptance, metric: acceptance_rate, at_least: 0.45, min_requests: 8, owner: oncall}
  - {name: crowd, metric: ttft_s, at_most: {limit_s: 1.0, share: 0.05}, pass_at: 0.2, min_requests: 8, owner: oncall,
     only: {in_flight_above: 4}, on_fail: shed}
"""
PROMOTED = 60  # healthy outcomes after which every test rollout watches
STEPS_WITH_GATE = (
    Step(kind=StepKind.SHADOW, mirror=1.0, min_requests=5),
    Step(kind=StepKind.CANARY, weight=0.5, min_requests=5, gate=True),
    Step(kind=StepKind.WATCH, weight=1.0),
)


class PulledPlug(Exception):
    """Stands for a process that dies in the middle of a transaction."""


@dataclass(frozen=True, slots=True)
class Fragile:
    """A real store whose units die when something is written into the outbox, after rollout and audit were."""

    inner: Any

    def read(self):
        """Open a reading transaction."""
        return self.inner.read()

    def begin(self):
        """Open a writing transaction with a broken outbox."""
        return _FragileTransaction(self.inner.begin())


@dataclass(slots=True)
class _FragileTransaction:
    inner: Any

    def __enter__(self):
        unit = self.inner.__enter__()
        unit.outbox = self
        return unit

    def __exit__(self, *exc):
        return self.inner.__exit__(*exc)

    def add(self, *_):
        """Die."""
        raise PulledPlug


def test_resume_puts_the_route_of_the_first_step(controller, ring, releases):
    """A fresh rollout mirrors and sends nobody to the candidate."""
    assert controller.rollout.state is State.RUNNING
    assert (ring.route.weight, ring.route.mirror, ring.route.rollout_id) == (0.0, 1.0, "ro-1")
    assert (ring.route.baseline_release, ring.route.candidate_release) == tuple(r.id for r in releases)


def test_healthy_outcomes_walk_every_step(controller, ring, healthy, tags, store):
    """Each step is put as a route with a growing revision, up to the watch step."""
    ring.outcomes += healthy(PROMOTED)
    assert controller.pass_once().kind is ActionKind.PROMOTE
    assert [(r.weight, r.mirror) for r in ring.routes] == [(0.0, 1.0), (0.1, 0.0), (1.0, 0.0), (1.0, 0.0)]
    assert [r.revision for r in ring.routes] == sorted({r.revision for r in ring.routes})
    assert tags(store) == ["rollout:plan:started", *["rollout:step:advanced"] * 2, "rollout:release:promoted"]
    assert controller.rollout.state is State.PROMOTED


def test_a_step_waits_for_its_own_requests(controller, ring, healthy):
    """A PASS alone does not advance before the step has seen its minimum."""
    ring.outcomes += healthy(9)
    assert controller.pass_once() is None
    assert controller.rollout.step == 0


def test_roll_back_happens_at_the_deciding_outcome(controller, ring, collapsed, policy, store):
    """The outcome at which the policy first says FAIL decides; the ones behind it are only recorded."""
    bad = collapsed(40)
    window = Window.empty(policy)
    index = -1
    while judge(policy, window, terms=Terms(), now=bad[0].at).result is not Result.FAIL:
        index += 1
        window = fold(window, bad[index], policy, promoted=False)
    ring.outcomes += bad
    assert controller.pass_once().kind is ActionKind.ROLL_BACK
    with store.read() as unit:
        (entry,) = [e for e in unit.audit.of("ro-1") if e.tag == "rollout:release:rolled_back"]
        assert (entry.payload["outcomes"], entry.payload["deciding_request"]) == (index + 1, bad[index].request_id)
        assert unit.outcomes.count("ro-1") == 40
    assert 0 < index < 39


def test_roll_back_sends_everybody_to_the_baseline(controller, ring, collapsed):
    """After a FAIL the candidate gets no live and no mirrored request."""
    ring.outcomes += collapsed(40)
    controller.pass_once()
    assert (ring.route.weight, ring.route.mirror) == (0.0, 0.0)
    assert controller.rollout.is_terminal


def test_a_collapse_after_promotion_rolls_back(controller, ring, healthy, collapsed):
    """The promoted release is still watched."""
    ring.outcomes += healthy(PROMOTED)
    controller.pass_once()
    ring.outcomes += collapsed(60)
    assert controller.pass_once().kind is ActionKind.ROLL_BACK
    assert ring.route.weight == 0.0


def test_the_alias_follows_promotion_and_roll_back(controller, ring, healthy, collapsed, store, releases):
    """`production` names what serves everybody, and every move is an audit entry."""
    ring.outcomes += healthy(PROMOTED)
    controller.pass_once()
    with store.read() as unit:
        assert unit.aliases.get("production") == releases[1].id
    ring.outcomes += collapsed(60)
    controller.pass_once()
    with store.read() as unit:
        assert [e.release_id for e in unit.aliases.history("production")] == [releases[1].id, releases[0].id]
        assert sum(e.tag == "release:alias:moved" for e in unit.audit.all()) == 2


def test_roll_back_owes_exactly_one_alert(controller, ring, collapsed, everything, store):
    """Later bad outcomes repeat neither the audit entry nor the alert, which names check and owner."""
    for _ in range(3):
        ring.outcomes += collapsed(30)
        controller.pass_once()
    stored = everything(store)
    alerts = [m for m in stored["outbox"] if m.kind == "alert"]
    assert len(alerts) == sum(e.tag == "rollout:release:rolled_back" for e in stored["audit"]) == 1
    assert (alerts[0].payload["labels"]["check"], alerts[0].payload["annotations"]["owner"]) == ("acceptance", "oncall")
    assert len(stored["outcomes"]) == 90


def test_a_fatal_error_rolls_back_at_first_sight(controller, ring, make_outcome, healthy):
    """An engine that does not answer needs no statistics."""
    ring.outcomes += [*healthy(3), make_outcome(finish=Finish.ERROR, error="engine_unreachable", acceptance=None)]
    assert controller.pass_once().kind is ActionKind.ROLL_BACK
    assert "engine_unreachable" in controller.rollout.reason


def test_an_exception_in_the_transaction_changes_nothing(store, ring, begin, make_controller, collapsed, everything):
    """Rollout, audit, verdict, evidence and cursor stay as they were, the route too; the next try does it all."""
    begin(store)
    loop = make_controller(Fragile(store), ring)
    loop.resume()
    before, routes = everything(store), list(ring.routes)
    ring.outcomes += collapsed(40)
    with pytest.raises(PulledPlug):
        loop.pass_once()
    assert (everything(store), ring.routes) == (before, routes)
    loop.store = store
    assert loop.pass_once().kind is ActionKind.ROLL_BACK


def test_resume_after_a_kill_equals_never_having_died(open_fresh, make_ring, begin, make_controller, healthy, everything):
    """A new control loop on the same store goes on with the same evidence, from the same outcome."""
    outcomes, results = healthy(33), []
    for kills in (False, True):
        store, ring = open_fresh(), make_ring(limit=7)
        begin(store)
        loop = make_controller(store, ring)
        loop.resume()
        ring.outcomes += outcomes
        for _ in range(6):
            loop.pass_once()
            if kills:
                loop = make_controller(store, ring)
                loop.resume()
        results.append(everything(store))
    assert results[0]["window"] == results[1]["window"]
    assert results[0]["rollout"] == results[1]["rollout"]
    assert [e.payload for e in results[0]["audit"]] == [e.payload for e in results[1]["audit"]]


def test_a_kill_after_the_roll_back_repeats_nothing(controller, store, ring, make_controller, collapsed, everything, tags):
    """The next process puts the baseline's route again and acts no second time."""
    ring.outcomes += collapsed(40)
    controller.pass_once()
    before = everything(store)
    heir = make_controller(store, ring)
    heir.resume()
    assert ring.route.weight == 0.0
    assert ring.route.revision > ring.routes[-2].revision
    heir.pass_once()
    assert everything(store) == before
    assert tags(store).count("rollout:release:rolled_back") == 1


def test_a_gateway_that_misses_the_put_gets_it_at_the_next_pass(controller, ring, collapsed, make_controller, store):
    """The decision was committed; the route is owed until the gateway took it."""

    @dataclass(slots=True)
    class Deaf:
        inner: Any
        refusals: int = 1

        def poll(self, *arguments):
            return self.inner.poll(*arguments)

        def status(self):
            return self.inner.status()

        def put_route(self, route):
            if self.refusals:
                self.refusals -= 1
                raise GatewayUnavailable("reset")
            self.inner.put_route(route)

    ring.outcomes += collapsed(40)
    controller.gateway = Deaf(ring)
    with pytest.raises(GatewayUnavailable):
        controller.pass_once()
    controller.pass_once()
    assert ring.route.weight == ring.route.mirror == 0.0


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=st.lists(st.integers(1, 40), min_size=3, max_size=8), good=st.integers(0, 30))
def test_decisions_do_not_depend_on_batches(cuts, good, open_fresh, make_ring, begin, make_controller, make_outcome):
    """However polls cut the stream, evidence, rollout and decisions are those of one poll."""
    outcomes = [make_outcome(0.7 if i < good else 0.1, request_id=f"q{i}") for i in range(good + 35)]
    results = []
    for sizes in ([500], cuts):
        store, ring = open_fresh(), make_ring()
        begin(store)
        loop = make_controller(store, ring)
        loop.resume()
        ring.outcomes += outcomes
        for turn in range(len(outcomes)):
            ring.limit = sizes[turn % len(sizes)]
            loop.pass_once()
            if loop._cursor == len(outcomes):
                break
        with store.read() as unit:
            decisions = [(e.tag, e.payload) for e in unit.audit.of("ro-1")]
            results.append((unit.windows.load("ro-1"), unit.rollouts.get("ro-1"), decisions))
        store.close()
    assert results[0] == results[1]
    assert results[0][1].state is State.ROLLED_BACK


def test_a_second_control_plane_is_kept_out(controller, store, ring, make_controller, clock):
    """Only the holder of the lease acts; the lease ends with its time."""
    rival = make_controller(store, ring, holder="there")
    with pytest.raises(StoreUnavailable, match="another control plane"):
        rival.resume()
    clock.pass_s(LEASE_S + 1)
    rival.resume()
    with pytest.raises(StoreUnavailable):
        controller.pass_once()


def test_an_absent_gateway_changes_nothing(controller, ring, store, everything):
    """Without a gateway there is no verdict and no transaction."""
    before = everything(store)
    ring.is_down = True
    with pytest.raises(GatewayUnavailable):
        controller.pass_once()
    assert everything(store) == before


def test_a_gateway_that_stays_away_holds_and_calls_once(controller, ring, store, clock, healthy):
    """A broken source is ERROR: nothing moves, somebody hears of it after ten seconds, and again when it is over."""
    ring.outcomes += healthy(3)
    controller.pass_once()
    ring.is_down = True
    for _ in range(4):
        with pytest.raises(GatewayUnavailable):
            controller.pass_once()
        clock.pass_s(SILENT_S / 2)
    ring.is_down = False
    controller.pass_once()

    with store.read() as unit:
        began, ended = [m.payload for m in unit.outbox.due(clock()) if m.kind == "alert"]
        results = [v["result"] for v in unit.verdicts.of("ro-1")]
    assert (began["labels"]["alertname"], began["labels"]["check"]) == ("SpecopsEvidenceUnusable", "source")
    assert "endsAt" in ended
    assert results == ["PENDING", "ERROR", "PENDING"]
    assert controller.rollout.state is State.RUNNING


def test_silence_from_the_first_day_pauses(store, ring, clock, begin, make_controller):
    """Without any outcome the wait counts from the start of the rollout."""
    text = LADDER.format(rung="roll_back").replace("alpha: 0.01", "alpha: 0.01\nmax_wait: 1h")
    rules = parse_policy(yaml.safe_load(text))
    begin(store, policy=rules, policy_text=text)
    loop = make_controller(store, ring, policy=rules)
    loop.resume()

    assert loop.pass_once() is None
    clock.pass_s(3601)
    assert loop.pass_once().kind is ActionKind.PAUSE
    assert replay_rollout(store, "ro-1").difference is None


def test_a_route_that_the_gateway_does_not_take_calls_a_person(controller, ring, store, clock, collapsed):
    """Decided is not done: the alert stands until the route is in force, and how long that took is kept."""
    ring.outcomes += collapsed(40)
    ring.refuses = True
    with pytest.raises(GatewayUnavailable):
        controller.pass_once()
    clock.pass_s(2.5)
    ring.refuses = False
    controller.pass_once()

    with store.read() as unit:
        alerts = [m.payload for m in unit.outbox.due(clock()) if m.kind == "alert"]
        *_, route = [e["payload"] for e in unit.evidence.of("ro-1") if e["kind"] == "route"]
    late = [a for a in alerts if a["labels"]["alertname"] == "SpecopsRouteNotInForce"]
    assert ["endsAt" in a for a in late] == [False, True]
    assert (route["weight"], route["in_force_after_s"], ring.route.weight) == (0.0, 2.5, 0.0)


def test_a_policy_that_speculates_at_low_load_only_says_so_to_the_gateway(store, ring, begin, make_controller, make_outcome):
    """Its limit is part of every route, and a check that fails above a lower load lowers it without ending the rollout."""
    rules = parse_policy(yaml.safe_load(CROWDED))
    begin(store, policy=rules, policy_text=CROWDED)
    loop = make_controller(store, ring, policy=rules)
    loop.resume()
    assert ring.route.speculate_below == 9

    ring.outcomes += [make_outcome(0.9, in_flight=7, ttft_s=3.0, e2e_s=9.0) for _ in range(20)]
    assert loop.pass_once().kind is ActionKind.SHED

    assert (ring.route.speculate_below, loop.rollout.state) == (5, State.RUNNING)
    ring.outcomes += [make_outcome(0.9, in_flight=7, ttft_s=3.0, e2e_s=9.0) for _ in range(40)]  # stragglers of the old route
    assert loop.pass_once() is None
    assert replay_rollout(store, "ro-1").difference is None


def test_resume_says_that_the_gateway_is_absent(store, ring, begin, make_controller):
    """A control loop does not begin to judge before the gateway follows it."""
    begin(store)
    ring.is_down = True
    with pytest.raises(GatewayUnavailable):
        make_controller(store, ring).resume()


def test_a_restarted_gateway_is_read_from_its_beginning(controller, ring, healthy, store):
    """Another epoch means another numbering; nothing is skipped, and the route is told again, once."""
    ring.outcomes += healthy(4)
    controller.pass_once()
    ring.epoch, ring.outcomes = "e2", healthy(3)
    controller.pass_once()
    controller.pass_once()
    assert [r.mirror for r in ring.routes] == [1.0, 1.0]
    with store.read() as unit:
        assert unit.windows.load("ro-1")[1:] == ("e2", 3)
        assert unit.outcomes.count("ro-1") == 7


def test_abort_by_hand_empties_the_candidate(controller, store, ring, clock, tags):
    """The next pass puts a route without share and mirror, though no outcome came."""
    rollouts.abort_by_hand(store, "ro-1", reason="smoke", actor="bob", now=clock())
    assert controller.pass_once() is None
    assert (ring.route.weight, ring.route.mirror) == (0.0, 0.0)
    assert controller.rollout.state is State.ABORTED
    assert tags(store)[-1] == "rollout:plan:aborted"


def test_an_ended_rollout_is_still_recorded_but_not_judged(controller, store, ring, clock, collapsed):
    """Outcomes after an abort fold into the evidence and decide nothing."""
    rollouts.abort_by_hand(store, "ro-1", reason="smoke", actor="bob", now=clock())
    ring.outcomes += collapsed(40)
    assert controller.pass_once() is None
    with store.read() as unit:
        assert unit.outcomes.count("ro-1") == 40
        assert unit.verdicts.of("ro-1") == []


def test_a_gate_waits_for_another_person(store, ring, begin, make_controller, healthy, clock):
    """PASS stops at the gate; after the approval an empty poll is enough to go on."""
    begin(store, steps=STEPS_WITH_GATE)
    loop = make_controller(store, ring)
    loop.resume()
    ring.outcomes += healthy(60)
    assert loop.pass_once().kind is ActionKind.ADVANCE
    assert (loop.rollout.step, ring.route.weight) == (1, 0.5)
    rollouts.approve_by_hand(store, "ro-1", actor="bob", now=clock())
    assert loop.pass_once().kind is ActionKind.PROMOTE


def test_data_errors_hold(store, ring, begin, make_controller, healthy):
    """Unusable outcomes make the verdict ERROR, and ERROR moves nothing."""
    begin(store)
    loop = make_controller(store, ring, check=lambda _outcomes, _at: ("times run backwards",))
    loop.resume()
    ring.outcomes += healthy(PROMOTED)
    assert loop.pass_once() is None
    with store.read() as unit:
        assert unit.verdicts.of("ro-1")[-1]["result"] == "ERROR"
    assert loop.rollout.step == 0


def test_a_failed_suite_holds_until_it_passes(controller, store, ring, healthy, clock):
    """The newest word of the data suite counts, also when control did not run it."""
    for errors in (["completion_tokens is null"], []):
        with store.begin() as unit:
            unit.evidence.add("ro-1", "data_suite", {"outcomes": 1, "errors": errors}, clock())
        ring.outcomes += healthy(30)
        moved = controller.pass_once()
        assert (moved is None) is bool(errors)


def test_dropped_outcomes_hold(controller, ring, healthy, store):
    """What the gateway forgot could have been the failures."""
    ring.dropped = 5
    ring.outcomes += healthy(PROMOTED)
    assert controller.pass_once() is None
    with store.read() as unit:
        assert "dropped 5" in unit.verdicts.of("ro-1")[-1]["findings"][0]["reason"]


def test_foreign_outcomes_are_ignored(controller, ring, make_outcome, store):
    """Answers of an earlier route's release count for nothing, but the cursor passes them."""
    ring.outcomes += [make_outcome(0.0, release_id="rel-other") for _ in range(60)]
    assert controller.pass_once() is None
    with store.read() as unit:
        assert unit.outcomes.count("ro-1") == 0
        record, _, cursor = unit.windows.load("ro-1")
    assert (record["outcomes"], cursor) == (0, 60)


def test_verdicts_are_stored_now_and_then(controller, ring, healthy, store):
    """A changed result is always stored, an unchanged one every tenth outcome."""
    for outcome in healthy(9):
        ring.outcomes.append(outcome)
        controller.pass_once()
    with store.read() as unit:
        few = len(unit.verdicts.of("ro-1"))
    assert 1 <= few <= 3
    ring.outcomes += healthy(1)
    controller.pass_once()
    with store.read() as unit:
        assert len(unit.verdicts.of("ro-1")) == few + 1
        assert [v["outcomes"] for v in unit.verdicts.of("ro-1")][-1] == 10


def test_time_is_taken_from_the_clock(controller, ring, collapsed, clock, store):
    """An audit entry carries the time of the pass."""
    clock.at += timedelta(seconds=3)
    ring.outcomes += collapsed(40)
    controller.pass_once()
    with store.read() as unit:
        assert unit.audit.of("ro-1")[-1].at == clock.at


@pytest.mark.parametrize("rung", ["escalate", "fallback"])
def test_a_trip_ends_the_rollout_whatever_the_policy_decides(store, ring, begin, make_controller, collapsed, policy, rung):
    """A gateway that fell back on its own may not be armed again by a milder action of the same batch."""
    text = LADDER.format(rung=rung)
    rules = parse_policy(yaml.safe_load(text))
    begin(store, policy=rules, policy_text=text)
    loop = make_controller(store, ring, policy=rules)
    loop.resume()
    ring.outcomes, ring.tripped, before = collapsed(40), "baseline died", len(ring.routes)

    action = loop.pass_once()

    assert (action.kind, loop.rollout.state) == (ActionKind.ROLL_BACK, State.ROLLED_BACK)
    assert "fell back on its own: baseline died" in action.reason
    assert [(r.weight, r.mirror) for r in ring.routes[before:]] == [(0.0, 0.0)]
    assert replay_rollout(store, "ro-1").difference is None


def test_a_policy_that_ends_the_rollout_keeps_its_own_word(controller, ring, collapsed):
    """FAIL in the same batch as a trip: the check is the reason, with its verdict."""
    ring.outcomes, ring.tripped = collapsed(40), "baseline died"

    assert "acceptance" in controller.pass_once().reason
