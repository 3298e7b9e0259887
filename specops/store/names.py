"""What digests are, across artifacts, pairs and releases, and how a person may name one."""

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, String, false, select, type_coerce

from specops.store import schema
from specops.store.edges import batches, depending_on, one_of
from specops.store.mapping import checked_pair

DIGITS = 64
_PREFIX = re.compile(r"[0-9a-f]{8,64}")


class Named(NamedTuple):
    """What a digest is: `family` artifact, pair or release; `kind` an artifact's kind, a pair's relation, a release's id."""

    digest: str
    family: str
    kind: str
    name: str


class Names:
    """What digests are, across artifacts, pairs and releases; reads no JSON."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def of(self, digests: Iterable[str]) -> dict[str, Named]:
        """Return what each digest is; those that nothing is registered under are left out."""
        artifact, pair, release = schema.artifact.c, schema.pair.c, schema.release.c
        found: dict[str, Named] = {}
        wanted = 0
        for batch in batches(list(dict.fromkeys(digests))):
            wanted += len(batch)
            asked = (
                ("artifact", select(artifact.digest, artifact.kind, artifact.name), artifact.digest),
                ("pair", select(pair.digest, pair.relation, pair.digest), pair.digest),
                ("release", select(release.digest, release.id, release.name), release.digest),
            )
            for family, query, digests_of in asked:
                if len(found) == wanted:
                    break
                for digest, kind, name in self._connection.execute(query.where(one_of(digests_of, batch))).all():
                    shown = name if family != "pair" else f"pair {digest[:12]}"
                    found[digest] = Named(digest, family, kind, shown)
        return found

    def pairs(self, key: str) -> list[tuple[str, dict[str, Any]]]:
        """Return digest and record of the pairs whose digest begins like this (eight digits at least).

        Raises:
            LineageBroken: a row was altered.
        """
        table = schema.pair
        rows = self._connection.execute(select(table).where(begins(table.c.digest, key)).order_by(table.c.digest))
        return [(row.digest, checked_pair(row)) for row in rows]

    def depending_on(self, start: Sequence[str]) -> list[Named]:
        """Return what depends on any of the nodes, directly or not, without themselves; unregistered nodes are left out."""
        walk = depending_on(start)
        nodes = [node for (node,) in self._connection.execute(select(walk.c.node)).all()]
        return list(self.of(sorted(nodes)).values())  # in the index's order, which half as many pages answer


def is_text(column: ColumnElement[Any], text: str) -> ColumnElement[bool]:
    """Return the condition that a column is a text that a person typed; what is not printable matches nothing."""
    return type_coerce(column, String) == text if text.isprintable() else false()


def begins(column: ColumnElement[Any], text: str) -> ColumnElement[bool]:
    """Return the condition that a digest begins with `text`; short or other text only matches itself. Uses the index."""
    if not _PREFIX.fullmatch(text):
        return is_text(column, text)
    plain = type_coerce(column, String)
    if len(text) == DIGITS:
        return plain == text
    return (plain >= text) & (plain < text + "g")  # g comes after every hex digit
