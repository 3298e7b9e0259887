"""Guard rails on the append-only tables: changing, removing and overwriting rows is refused by the database itself.

Rails, not evidence: whoever owns the database can drop them, and Alembic's batch mode drops SQLite's silently. So `database`
looks for them at every open, puts back what is missing and says so in the audit log. The evidence is the signed checkpoint
outside. Each database's own SQL is in `sqlite` and `postgres`.
"""

from datetime import UTC, datetime

from sqlalchemy import Connection, Executable, delete, insert, inspect, update
from sqlalchemy.exc import DBAPIError, IntegrityError

from specops.errors import ChainBroken, RuleViolation
from specops.store import dialect, schema

RESTORED = "store:triggers:restored"
"""Tag of the entry that names guards which were gone; `verify` repeats each as a warning."""
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
_PROBE = {"position": -1, "tag": "t", "actor": "a", "subject": "s", "at": _LONG_AGO, "raw": b"", "leaf": b"", "root": b""}


def missing(connection: Connection) -> tuple[str, ...]:
    """Return the names of the triggers that are absent, switched off, or not ours, of the tables that exist."""
    there = set(inspect(connection).get_table_names())
    return dialect.of(connection).missing_guards(connection, tuple(t for t in schema.APPEND_ONLY if t in there))


def restore(connection: Connection) -> tuple[str, ...]:
    """Create what is missing and return its names."""
    names = missing(connection)
    for name in names:
        dialect.of(connection).restore_guard(connection, name)
    return names


def self_test(connection: Connection) -> None:
    """Try to change, delete and overwrite a row of the audit log, undo all of it, and see each try refused.

    PostgreSQL's TRUNCATE is not tried: it would wait for every reader before it could be refused. `missing` looks at its guard.

    Raises:
        RuleViolation: a try went through.
        ChainBroken: the log has an entry of the number that is tried, which no log has.
    """
    table = schema.audit_entry
    row = table.c.position == _PROBE["position"]
    tries = {
        "UPDATE": update(table).where(row).values(tag="x"),
        "DELETE": delete(table).where(row),
        "INSERT": insert(table).values(_PROBE),
        "an overwriting INSERT": dialect.of(connection).replacing(_PROBE),
    }
    outer = connection.begin_nested()
    try:
        try:
            connection.execute(insert(table).values(_PROBE))
        except IntegrityError as exc:
            number = _PROBE["position"]
            raise ChainBroken(f"audit entry {number} was put into the log, which counts from 0; restore a backup") from exc
        for name, statement in tries.items():
            if not _is_refused(connection, statement):
                raise RuleViolation(f"the audit log of this database can be changed: {name} went through; restore a backup")
    finally:
        outer.rollback()


def _is_refused(connection: Connection, statement: Executable) -> bool:
    inner = connection.begin_nested()
    try:
        connection.execute(statement)
    except DBAPIError as exc:
        if dialect.of(connection).is_refusal(exc):
            return True
        raise
    finally:
        inner.rollback()
    return False
