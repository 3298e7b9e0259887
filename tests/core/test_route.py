"""A route is whole or refused."""

import pytest

from specops.core.route import Route
from specops.errors import InvalidRecord

ROUTE = {"revision": 3, "baseline_url": "http://127.0.0.1:1", "baseline_release": "rel-a"}
CANDIDATE = {"candidate_url": "http://127.0.0.1:2", "candidate_release": "rel-b"}


@pytest.mark.parametrize("changes", [{}, CANDIDATE | {"weight": 0.1, "mirror": 0.5, "rollout_id": "ro-1"}])
def test_a_record_restores_the_route(changes):
    """Sent and received are the same route."""
    route = Route(**ROUTE, **changes)

    assert Route.from_record(route.to_record()) == route


@pytest.mark.parametrize(
    "changes", [CANDIDATE | {"weight": 1.1}, CANDIDATE | {"mirror": -1}, {"weight": 0.1}, {"mirror": 0.1}, {"colour": 1}]
)
def test_an_impossible_route_is_refused(changes):
    """Shares out of range, a share for nobody, an unknown field."""
    with pytest.raises(InvalidRecord):
        Route.from_record(ROUTE | changes)


def test_a_route_needs_a_baseline():
    """Without a fallback there is no route."""
    with pytest.raises(InvalidRecord, match="not a route"):
        Route.from_record({"revision": 1})


@pytest.mark.parametrize("changes", [{"revision": "x"}, {"revision": True}, {"baseline_url": 5}, {"rollout_id": []}])
def test_a_field_of_another_kind_is_refused(changes):
    """A gateway that took it would fail on every request, or on the next route."""
    sound = {"revision": 1, "baseline_url": "http://b", "baseline_release": "b"}

    with pytest.raises(InvalidRecord, match="no whole number, or a name that is no text"):
        Route.from_record(sound | changes)
