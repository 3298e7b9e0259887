"""A trial is judged on its own data only, and on usable data only."""

from datetime import UTC, datetime

from specops.control.rollouts import abort_by_hand
from specops.core.verdict import Result

T0 = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_rollout_begins_after_what_the_gateway_held_before(store, begin, make_controller, ring, healthy):
    """Outcomes from before the rollout move nothing: no request of its own, no step."""
    ring.outcomes += healthy(60)
    begin(store)
    controller = make_controller(store, ring)

    controller.resume()
    moved = controller.pass_once(wait_s=0.0)

    assert moved is None
    assert controller.rollout.step == 0


def test_an_unusable_batch_never_becomes_evidence(store, begin, make_controller, ring, healthy):
    """What the check refuses is left out for good; later passes do not advance on it."""
    begin(store)
    bad = {"now": True}
    controller = make_controller(store, ring, check=lambda _o, _n: ("broken clock",) if bad["now"] and _o else ())
    controller.resume()
    ring.outcomes += healthy(60)

    controller.pass_once(wait_s=0.0)
    bad["now"] = False
    moved = controller.pass_once(wait_s=0.0)

    with store.read() as unit:
        verdicts, tags = unit.verdicts.of("ro-1"), [e.tag for e in unit.audit.of("ro-1")]
    assert moved is None
    assert verdicts[0]["result"] == Result.ERROR
    assert "outcomes:batch:refused" in tags


def test_a_gateway_that_fell_back_on_its_own_ends_the_rollout(controller, store, ring, tags):
    """Without traffic no check can fail, so the trip itself is the reason; the route follows."""
    ring.tripped = "3 engine_5xx in a row"

    controller.pass_once(wait_s=0.0)

    with store.read() as unit:
        assert "3 engine_5xx" in unit.rollouts.get("ro-1").reason
    assert tags(store)[-1] == "rollout:release:rolled_back"
    assert ring.route.weight == ring.route.mirror == 0


def test_a_restart_of_control_does_not_arm_a_tripped_gateway_again(controller, store, ring, make_controller):
    """The route that is put next is the roll-back's."""
    ring.tripped = "engine_unreachable"
    put = len(ring.routes)
    again = make_controller(store, ring)

    again.resume()
    assert len(ring.routes) == put

    again.pass_once(wait_s=0.0)
    assert ring.route.weight == 0


def test_an_abort_is_obeyed_while_every_batch_is_refused(store, begin, make_controller, ring, healthy):
    """A broken clock must not keep the candidate's traffic against a person's word."""
    begin(store)
    controller = make_controller(store, ring, check=lambda outcomes, _n: ("broken clock",) if outcomes else ())
    controller.resume()
    abort_by_hand(store, "ro-1", reason="r", actor="ann", now=T0)
    ring.outcomes += healthy(3)

    controller.pass_once(wait_s=0.0)

    assert ring.route.weight == ring.route.mirror == 0


def test_a_route_follows_one_put_by_hand_however_high_its_revision(store):
    """The next revision is above it at once, without counting up to it."""
    with store.begin() as unit:
        assert unit.next_revision(beyond=10**12) == 10**12 + 1
        assert unit.next_revision() == 10**12 + 2
