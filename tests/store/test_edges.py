"""The graph grows without circles, and is walked without being read whole."""

import random

import pytest

from specops.core.lineage import ancestors, descendants
from specops.core.release import Edge, EdgeKind
from specops.errors import InvalidRecord
from specops.store import edges as module

USES, SHARES, REPLACES = EdgeKind.USES, EdgeKind.SHARES_TENSORS_WITH, EdgeKind.REPLACES


def edge(source, target, kind=USES):
    """Return an edge."""
    return Edge(source=source, kind=kind, target=target)


def test_an_edge_says_whether_it_is_new(store):
    """Adding it again changes nothing."""
    with store.begin() as unit:
        assert [unit.edges.add(edge("a", "b")), unit.edges.add(edge("a", "b"))] == [True, False]
        assert unit.edges.all() == [edge("a", "b")]


def test_a_long_way_round_is_a_cycle_too(store):
    """The refusal names both ends, and what was there stays."""
    with store.begin() as unit:
        for source, target in ("ab", "bc", "cd"):
            unit.edges.add(edge(source, target))
        with pytest.raises(InvalidRecord, match=r"cycle: d uses a, which itself came from d"):
            unit.edges.add(edge("d", "a"))
        assert len(unit.edges.all()) == 3


def test_a_symmetric_edge_is_kept_once_and_may_close_a_circle(store):
    """It says the same from both ends."""
    with store.begin() as unit:
        assert unit.edges.add(edge("b", "a", SHARES))
        assert not unit.edges.add(edge("a", "b", SHARES))
        assert unit.edges.add_many([edge("a", "b"), edge("a", "c", SHARES), edge("b", "c", SHARES)]) == 3
        assert edge("a", "b", SHARES) in unit.edges.all()


def test_many_edges_are_added_at_once(store):
    """Known ones are counted out, more than one statement can bind included."""
    chain = [edge(f"{n:05}", f"{n + 1:05}") for n in range(module.BATCH + 7)]
    with store.begin() as unit:
        unit.edges.add(chain[3])
        assert unit.edges.add_many([*chain, chain[0]]) == len(chain) - 1
        assert unit.edges.add_many(chain) == 0
        assert unit.edges.add_many([]) == 0
        assert len(unit.edges.ingredients(["00000"])) == len(chain)


@pytest.mark.parametrize("added", [[("x", "y"), ("y", "x")], [("d", "x"), ("x", "a")], [("x", "a"), ("d", "x"), ("p", "q")]])
def test_many_edges_that_close_a_cycle_are_none(store, added):
    """Among themselves, or through what was there before, in any order: nothing of them stays."""
    with store.begin() as unit:
        unit.edges.add_many([edge("a", "b"), edge("b", "d")])
        with pytest.raises(InvalidRecord, match="cycle"):
            unit.edges.add_many([edge(*ends) for ends in added])
        assert len(unit.edges.all()) == 2


def test_walks_agree_with_the_pure_ones(store):
    """On a random graph, in both directions."""
    rng = random.Random(5)
    graph = [edge(f"n{b:02}", f"n{a:02}") for b in range(1, 40) for a in {rng.randrange(b) for _ in range(2)}]
    with store.begin() as unit:
        unit.edges.add_many(graph)
        for node in ("n00", "n07", "n39"):
            assert set(unit.edges.dependants([node])) == set(descendants(graph, node))
            assert set(unit.edges.ingredients([node])) == set(ancestors(graph, node))


def test_dependants_do_not_follow_what_carries_no_change(store):
    """Equal tensors and a replaced predecessor say nothing about a change."""
    with store.begin() as unit:
        unit.edges.add_many([edge("a", "root"), edge("b", "root", SHARES), edge("c", "root", REPLACES), edge("d", "c")])
        assert unit.edges.dependants(["root"]) == ["a"]
        assert unit.edges.dependants(["root", "c"]) == ["a", "d"] or unit.edges.dependants(["root", "c"]) == ["d", "a"]


def test_edges_are_found_by_either_end(store):
    """In a stable order."""
    with store.begin() as unit:
        unit.edges.add_many([edge("b", "x"), edge("a", "x"), edge("x", "y")])
        assert unit.edges.into(["x", "x"]) == [edge("a", "x"), edge("b", "x")]
        assert unit.edges.out_of(["x"]) == [edge("x", "y")]
        assert unit.edges.out_of([]) == []
