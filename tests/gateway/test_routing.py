"""The route in force and the local guard, without a network."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from specops.core.outcome import Arm, Finish, Kind, Outcome
from specops.errors import IllegalTransition, InvalidRecord
from specops.gateway.routing import Routing

T0 = datetime(2026, 1, 1, tzinfo=UTC)


def outcome(error=None, *, finish=None, arm=Arm.CANDIDATE, kind=Kind.LIVE):
    """Return an outcome that ended well unless told otherwise."""
    finish = finish or (Finish.ERROR if error else Finish.STOP)
    return Outcome(request_id="r", arm=arm, kind=kind, release_id="sd-1", at=T0, finish=finish, e2e_s=1.0, error=error)


@pytest.fixture
def route(make_route):
    """Return a route of revision 3."""
    return make_route("http://a", "http://b", weight=0.5, mirror=0.5, revision=3)


@pytest.fixture
def routing(tmp_path, route):
    """Return a routing that follows it."""
    routing = Routing(tmp_path, now=lambda: T0)
    routing.put(route)
    return routing


def test_unreachable_trips_at_first_sight(routing):
    """One refused connection takes weight and mirror to 0, with the reason."""
    routing.observe(outcome("engine_unreachable", kind=Kind.SHADOW), revision=3, detail="refused")

    assert (routing.effective_weight, routing.effective_mirror) == (0.0, 0.0)
    assert "http://b is unreachable: refused" in routing.tripped


@pytest.mark.parametrize("error", ["engine_5xx", "broken_stream", "malformed_stream"])
def test_three_failures_in_a_row_trip(routing, error):
    """Two are forgiven by one success; aborts and rejections neither count nor forgive."""
    for step in (outcome(error), outcome(error), outcome(), outcome(error), outcome(finish=Finish.ABORT), outcome(error)):
        routing.observe(step, revision=3)
    assert routing.tripped is None

    routing.observe(outcome(finish=Finish.REJECTED), revision=3)
    routing.observe(outcome(error), revision=3)

    assert routing.effective_weight == 0.0


def test_only_the_candidate_of_this_route_can_trip(routing):
    """Failures of the baseline, and late ones of an older route, do not count."""
    routing.observe(outcome("engine_unreachable", arm=Arm.BASELINE), revision=3)
    routing.observe(outcome("engine_unreachable"), revision=2)

    assert routing.effective_weight == 0.5


def test_a_trip_ends_only_with_a_higher_revision(routing, route):
    """The same route again changes nothing; the next revision re-arms."""
    routing.observe(outcome("engine_unreachable"), revision=3)
    routing.put(route)
    assert routing.effective_weight == 0.0

    routing.put(replace(route, revision=4))

    assert (routing.effective_weight, routing.tripped) == (0.5, None)


def test_lower_or_altered_revisions_are_refused(routing, route):
    """A lower revision, and another route of the same one, change nothing."""
    for stale in (replace(route, revision=2), replace(route, weight=0.9)):
        with pytest.raises(IllegalTransition, match="expected more than 3"):
            routing.put(stale)
    assert routing.route == route


def test_route_and_trip_survive_a_restart(routing, route, tmp_path):
    """A new process serves the last route and does not forget why it fell back."""
    assert Routing(tmp_path).route == route
    routing.observe(outcome("engine_unreachable"), revision=3)

    again = Routing(tmp_path)

    assert (again.effective_weight, again.tripped, again.applied_at) == (0.0, routing.tripped, T0.isoformat())


def test_a_damaged_file_is_named(tmp_path):
    """A file that is no route stops the start, with the way out."""
    (tmp_path / "route.json").write_text("{}")

    with pytest.raises(InvalidRecord, match="delete it and send the route again"):
        Routing(tmp_path)
