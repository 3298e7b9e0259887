"""Proven pairs, by digest. They only grow; a pair that is proved again is the same row."""

from sqlalchemy import Connection, insert, select

from specops.core.pair import Pair
from specops.errors import InvalidRecord
from specops.store import mapping, schema


class Pairs:
    """Target and draft, with the proof that they belong together."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, pair: Pair) -> bool:
        """Keep a pair and say whether it is new; keeping it again changes nothing."""
        table, digest = schema.pair, pair.digest
        if self._connection.execute(select(table.c.digest).where(table.c.digest == digest)).first():
            return False
        row = {"digest": digest, "relation": pair.vocabulary.kind.value, "record": pair.to_record()}
        self._connection.execute(insert(table), row)
        return True

    def get(self, digest: str) -> Pair:
        """Return a pair.

        Raises:
            InvalidRecord: there is none with this digest.
            LineageBroken: its row was altered.
        """
        row = self._connection.execute(select(schema.pair).where(schema.pair.c.digest == digest)).first()
        if row is None:
            raise InvalidRecord(f"no pair {digest[:16]}; register a release of it first (specops release register)")
        return Pair.from_record(mapping.checked_pair(row))

    def all(self) -> list[Pair]:
        """Return all pairs by digest."""
        rows = self._connection.execute(select(schema.pair.c.record).order_by(schema.pair.c.digest))
        return [Pair.from_record(row.record) for row in rows]
