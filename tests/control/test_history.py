"""A trial is judged on its own data only, and on usable data only."""

from specops.core.verdict import Result


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
