"""The lineage graph in the database: what came from what, and who depends on a thing.

Walks are recursive queries; nothing here reads the whole table. The index by target holds the source as well, so that the walk
to dependants reads the index alone: 0.5 s instead of 0.7 s for 10 k of them among 1 M unsorted edges, SQLite 3.40.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from sqlalchemy import CTE, ColumnElement, Connection, String, insert, select, tuple_, type_coerce

from specops.core.lineage import check_acyclic
from specops.core.release import Edge, EdgeKind
from specops.errors import InvalidRecord
from specops.store import mapping, schema

_T = TypeVar("_T")
BATCH = 300  # digests, or edges of three texts, per statement; SQLite before 3.32 binds 999
_ACYCLIC = tuple(kind.value for kind in EdgeKind if not kind.is_symmetric)
_SILENT = tuple(kind.value for kind in EdgeKind if not kind.carries_change)  # "not in": with "in" SQLite seeks once per kind


class Edges:
    """What came from what; acyclic but for the symmetric kind, which is stored once, smaller digest first."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, edge: Edge) -> bool:
        """Add an edge and say whether it is new; adding it again changes nothing.

        Raises:
            InvalidRecord: it would close a cycle.
        """
        edge = _stored(edge)
        if self._known([edge]):
            return False
        if not edge.kind.is_symmetric and self._leads(edge.target, edge.source):
            raise _cycle(edge)
        self._connection.execute(insert(schema.edge), mapping.edge_to_row(edge))
        return True

    def add_many(self, edges: Iterable[Edge]) -> int:
        """Add edges in bulk and return how many are new; nothing is added when one of them closes a cycle.

        The new edges are sorted among themselves once. A cycle through old and new ones has a new edge that an old one follows,
        and something leads into it: only such edges are walked.

        Raises:
            InvalidRecord: together with what is known they close a cycle.
        """
        given = list(dict.fromkeys(map(_stored, edges)))
        known = {edge for batch in batches(given) for edge in self._known(batch)}
        fresh = [edge for edge in given if edge not in known]
        directed = [edge for edge in fresh if not edge.kind.is_symmetric]
        check_acyclic(directed)
        followed = {e.source for e in self.out_of(e.target for e in directed)}
        entered = {e.target for e in directed} | {e.target for e in self.into(e.source for e in directed)}
        with self._connection.begin_nested():
            for batch in batches(fresh):
                self._connection.execute(insert(schema.edge), [mapping.edge_to_row(edge) for edge in batch])
            for edge in directed:
                if edge.target in followed and edge.source in entered and self._leads(edge.target, edge.source):
                    raise _cycle(edge)
        return len(fresh)

    def all(self) -> list[Edge]:
        """Return all edges in a stable order. Reads the whole table: for small stores and exports."""
        table = schema.edge
        rows = self._connection.execute(select(table).order_by(table.c.source, table.c.kind, table.c.target))
        return [mapping.edge_from_row(row) for row in rows]

    def out_of(self, nodes: Iterable[str]) -> list[Edge]:
        """Return the edges whose source is one of the nodes, in a stable order."""
        return self._touching("source", nodes)

    def into(self, nodes: Iterable[str]) -> list[Edge]:
        """Return the edges whose target is one of the nodes, in a stable order."""
        return self._touching("target", nodes)

    def dependants(self, start: Iterable[str]) -> list[str]:
        """Return what depends on any of the nodes, directly or not: what to look at again when they change; `start` left out.

        `shares_tensors_with` and `replaces` are not followed: they say nothing about what a change does.
        """
        begun = dict.fromkeys(start)
        walk = depending_on(list(begun))
        return [node for (node,) in self._connection.execute(select(walk.c.node)).all() if node not in begun]

    def ingredients(self, start: Iterable[str]) -> list[str]:
        """Return what the nodes came from, directly or not, nearest first, without themselves; symmetric edges not followed."""
        level = list(dict.fromkeys(start))
        seen = dict.fromkeys(level)
        begun = len(seen)
        while level:
            further = [e.target for e in self.out_of(level) if not e.kind.is_symmetric]
            level = [node for node in dict.fromkeys(further) if node not in seen]
            seen |= dict.fromkeys(level)
        return list(seen)[begun:]

    def _leads(self, start: str, goal: str) -> bool:
        """Say whether `goal` is among what `start` came from."""
        table = schema.edge
        first = select(table.c.target.label("node")).where(table.c.source == start, table.c.kind.in_(_ACYCLIC))
        walk = first.cte("came_from", recursive=True)
        further = select(table.c.target).join(walk, table.c.source == walk.c.node).where(table.c.kind.in_(_ACYCLIC))
        whole = walk.union(further)
        return self._connection.execute(select(whole.c.node).where(whole.c.node == goal).limit(1)).first() is not None

    def _known(self, edges: Sequence[Edge]) -> list[Edge]:
        table = schema.edge
        keys = [(e.source, e.kind.value, e.target) for e in edges]
        rows = self._connection.execute(select(table).where(tuple_(table.c.source, table.c.kind, table.c.target).in_(keys)))
        return [mapping.edge_from_row(row) for row in rows]

    def _touching(self, end: str, nodes: Iterable[str]) -> list[Edge]:
        table, asked = schema.edge, list(dict.fromkeys(nodes))
        queries = [select(table).where(one_of(table.c[end], batch)) for batch in batches(asked)]
        rows = [row for query in queries for row in self._connection.execute(query)]
        return [mapping.edge_from_row(row) for row in sorted(rows)]


def depending_on(start: Sequence[str]) -> CTE:
    """Return the query for all that depends on `start`, as a table with the one column `node`."""
    table = schema.edge
    first = select(type_coerce(table.c.source, String).label("node"))
    first = first.where(one_of(table.c.target, start), ~one_of(table.c.kind, _SILENT))
    walk = first.cte("depending", recursive=True)
    further = select(table.c.source).where(table.c.target == walk.c.node, ~one_of(table.c.kind, _SILENT))
    return walk.union(further)


def _stored(edge: Edge) -> Edge:
    """Return the form in which an edge is kept: a symmetric one has the smaller digest first."""
    if edge.kind.is_symmetric and edge.source > edge.target:
        return Edge(source=edge.target, kind=edge.kind, target=edge.source)
    return edge


def _cycle(edge: Edge) -> InvalidRecord:
    return InvalidRecord(
        f"lineage would have a cycle: {edge.source[:19]} {edge.kind} {edge.target[:19]}, which itself came from"
        f" {edge.source[:19]}; a thing cannot come from itself, leave this edge out"
    )


def one_of(column: ColumnElement[str], values: Sequence[str]) -> ColumnElement[bool]:
    """Return the condition that a column is one of some values, bound as they are: checking each costs more than asking."""
    return type_coerce(column, String).in_(values)


def batches(items: Sequence[_T]) -> Iterator[list[_T]]:
    """Cut a sequence into pieces that fit into one statement."""
    for start in range(0, len(items), BATCH):
        yield list(items[start : start + BATCH])
