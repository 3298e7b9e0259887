"""Repositories of what moves: rollouts, their folded evidence, verdicts, the outbox, leases, route revisions."""

from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import Connection, case, insert, or_, select, update

from specops.core.rollout import TERMINAL, Rollout
from specops.core.verdict import Verdict
from specops.errors import IllegalTransition, InvalidRecord
from specops.store import dialect, mapping, schema

_DUE_LIMIT = 100
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


class Rollouts:
    """Rollouts, changed only from the version that was read."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, rollout: Rollout) -> None:
        """Store a new rollout.

        Raises:
            IllegalTransition: the id is taken.
        """
        if self._rows(schema.rollout.c.id == rollout.id):
            raise IllegalTransition(f"rollout {rollout.id} exists already; start one with another id")
        self._connection.execute(insert(schema.rollout), mapping.rollout_to_row(rollout))

    def get(self, rollout_id: str) -> Rollout:
        """Return a rollout.

        Raises:
            InvalidRecord: there is none with this id.
        """
        found = self._rows(schema.rollout.c.id == rollout_id)
        if not found:
            raise InvalidRecord(f"no rollout {rollout_id}; see specops rollout status for those there are")
        return found[0]

    def save(self, rollout: Rollout) -> None:
        """Replace a rollout by its next version.

        Raises:
            IllegalTransition: the stored version is not the one just before; somebody else changed it.
        """
        table, row = schema.rollout, mapping.rollout_to_row(rollout)
        expected = (table.c.id == rollout.id) & (table.c.version == rollout.version - 1)
        if self._connection.execute(update(table).where(expected).values(row)).rowcount != 1:
            stored = self._connection.execute(select(table.c.version).where(table.c.id == rollout.id)).scalar()
            raise IllegalTransition(
                f"rollout {rollout.id} is stored at version {stored}, not {rollout.version - 1}; load it and decide again"
            )

    def active(self) -> list[Rollout]:
        """Return the rollouts that have not ended."""
        return self._rows(schema.rollout.c.state.not_in([state.value for state in TERMINAL]))

    def all(self) -> list[Rollout]:
        """Return every rollout by id."""
        return self._rows()

    def _rows(self, *conditions: Any) -> list[Rollout]:  # noqa: ANN401
        rows = self._connection.execute(select(schema.rollout).where(*conditions).order_by(schema.rollout.c.id))
        return [mapping.rollout_from_row(row) for row in rows]


class Windows:
    """The folded evidence of each rollout, and how far the gateway's outcomes were read."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def save(self, rollout_id: str, record: dict[str, Any], epoch: str, sequence: int) -> None:
        """Replace the evidence and the cursor (`epoch` of the gateway, last `sequence` that is folded in)."""
        table = schema.window
        row = {"rollout_id": rollout_id, "record": record, "epoch": epoch, "sequence": sequence}
        if self._connection.execute(update(table).where(table.c.rollout_id == rollout_id).values(row)).rowcount == 0:
            self._connection.execute(insert(table), row)

    def load(self, rollout_id: str) -> tuple[dict[str, Any], str, int] | None:
        """Return record, epoch and sequence; None before the first save."""
        table = schema.window
        columns = (table.c.record, table.c.epoch, table.c.sequence)
        row = self._connection.execute(select(*columns).where(table.c.rollout_id == rollout_id)).first()
        return None if row is None else (row.record, row.epoch, row.sequence)


class Verdicts:
    """Every verdict that was acted upon."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, rollout_id: str, verdict: Verdict) -> None:
        """Keep a verdict."""
        self._connection.execute(insert(schema.verdict), mapping.verdict_to_row(rollout_id, verdict))

    def of(self, rollout_id: str) -> list[dict[str, Any]]:
        """Return the records of a rollout's verdicts, oldest first."""
        table = schema.verdict
        rows = self._connection.execute(select(table.c.record).where(table.c.rollout_id == rollout_id).order_by(table.c.id))
        return [row.record for row in rows]


class Message(NamedTuple):
    """A side effect that waits for delivery; `key` makes a second delivery recognisable."""

    id: int
    kind: str
    key: str
    payload: dict[str, Any]
    attempts: int


class Outbox:
    """Side effects, committed with the change that caused them and delivered at least once."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, kind: str, key: str, payload: dict[str, Any], at: datetime) -> None:
        """Queue a side effect, due at once; the same kind and key twice is queued once."""
        table = schema.outbox
        if not self._connection.execute(select(table.c.id).where(table.c.kind == kind, table.c.key == key)).first():
            row = {"kind": kind, "key": key, "payload": payload, "at": at, "due_at": at, "attempts": 0}
            self._connection.execute(insert(table), row)

    def due(self, now: datetime) -> list[Message]:
        """Return at most 100 messages that are due, oldest first."""
        table = schema.outbox
        columns = (table.c.id, table.c.kind, table.c.key, table.c.payload, table.c.attempts)
        waiting = select(*columns).where(table.c.done_at.is_(None), table.c.due_at <= now)
        return [Message(*row) for row in self._connection.execute(waiting.order_by(table.c.id).limit(_DUE_LIMIT))]

    def done(self, message_id: int, at: datetime) -> None:
        """Note that a message was delivered."""
        table = schema.outbox
        self._connection.execute(update(table).where(table.c.id == message_id).values(done_at=at, error=None))

    def failed(self, message_id: int, error: str, next_at: datetime) -> None:
        """Note a failed try and when to try again."""
        table = schema.outbox
        said = error.encode(errors="replace").decode().replace("\0", "?")  # somebody else's text: storing it must not fail
        values = {"attempts": table.c.attempts + 1, "error": said, "due_at": next_at}
        self._connection.execute(update(table).where(table.c.id == message_id).values(values))


class Leases:
    """Who may do what only one may do. The token grows with every new holding, so that a late writer can be told."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def take(self, name: str, holder: str, now: datetime, ttl_s: float) -> int | None:
        """Take or renew a lease for `ttl_s` seconds, by the database's own clock on PostgreSQL and by `now` on SQLite.

        Returns:
            The fencing token: the same on renewal, a higher one on every new holding. None while another holds it.
        """
        table, now = schema.lease, dialect.of(self._connection).now(self._connection, now)
        expires_at = now + timedelta(seconds=ttl_s)
        expired = table.c.expires_at <= now
        token = case((expired, table.c.token + 1), else_=table.c.token)
        free = (table.c.name == name) & or_(expired, table.c.holder == holder)
        taken = update(table).where(free).values(holder=holder, token=token, expires_at=expires_at)
        if self._connection.execute(taken).rowcount == 0:
            if self._connection.execute(select(table.c.token).where(table.c.name == name)).first():
                return None
            self._connection.execute(insert(table), {"name": name, "holder": holder, "token": 1, "expires_at": expires_at})
        return int(self._connection.execute(select(table.c.token).where(table.c.name == name)).scalar_one())

    def release(self, name: str, holder: str) -> bool:
        """Give a lease back; False when this holder did not have it."""
        table = schema.lease
        mine = (table.c.name == name) & (table.c.holder == holder) & (table.c.expires_at > _LONG_AGO)
        return self._connection.execute(update(table).where(mine).values(expires_at=_LONG_AGO)).rowcount == 1


def next_value(connection: Connection, name: str, *, beyond: int = 0) -> int:
    """Return the next number of a counter, from 1 and above `beyond`."""
    table = schema.counter
    value = table.c.value
    grown = case((value < beyond, beyond), else_=value) + 1
    if connection.execute(update(table).where(table.c.name == name).values(value=grown)).rowcount == 0:
        connection.execute(insert(table), {"name": name, "value": beyond + 1})
    return int(connection.execute(select(value).where(table.c.name == name)).scalar_one())
