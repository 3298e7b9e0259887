"""Guard rails on the append-only tables: UPDATE, DELETE and INSERT of an existing key are refused by the database itself.

Rails, not evidence: whoever owns the file can drop them, and Alembic's batch mode drops them silently. So `database` looks for
them at every open, puts back what is missing and says so in the audit log. The evidence is the signed checkpoint outside.
The one file with SQLite's own SQL beside `database`; PostgreSQL needs its own (REVOKE, row triggers, one for TRUNCATE).
"""

from collections.abc import Mapping

from sqlalchemy import Connection, inspect
from sqlalchemy.exc import IntegrityError

from specops.errors import RuleViolation
from specops.store import schema


def _statements() -> Mapping[str, str]:
    """Return name -> CREATE TRIGGER text."""
    out = {}
    for table in schema.APPEND_ONLY:
        for event in ("UPDATE", "DELETE"):
            out[f"refuse_{event.lower()}_{table}"] = (
                f"CREATE TRIGGER refuse_{event.lower()}_{table} BEFORE {event} ON {table} "
                f"BEGIN SELECT RAISE(ABORT, '{table} is append-only: {event} refused'); END"
            )
        key = schema.metadata.tables[table].primary_key.columns.keys()[0]
        # REPLACE deletes the old row without firing a DELETE trigger, so an existing key is refused before it comes to that
        exists = f"EXISTS (SELECT 1 FROM {table} WHERE {key} = NEW.{key})"  # noqa: S608  # names from our own schema
        out[f"refuse_replace_{table}"] = (
            f"CREATE TRIGGER refuse_replace_{table} BEFORE INSERT ON {table} WHEN {exists} "
            f"BEGIN SELECT RAISE(ABORT, '{table} is append-only: its keys are used once'); END"
        )
    return out


TRIGGERS = _statements()


def missing(connection: Connection) -> tuple[str, ...]:
    """Return the names of the triggers that are absent or not ours word for word, of the tables that exist."""
    rows = connection.exec_driver_sql("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
    found = {row.name: row.sql for row in rows}
    tables = set(inspect(connection).get_table_names())
    return tuple(n for n, sql in TRIGGERS.items() if found.get(n) != sql and any(n.endswith(f"_{t}") for t in tables))


def restore(connection: Connection) -> tuple[str, ...]:
    """Create what is missing and return its names."""
    names = missing(connection)
    for name in names:
        connection.exec_driver_sql(f"DROP TRIGGER IF EXISTS {name}")
        connection.exec_driver_sql(TRIGGERS[name])
    return names


def self_test(connection: Connection) -> None:
    """Try to change, delete and replace a row of the audit log, undo all of it, and see each try refused.

    Raises:
        RuleViolation: a try went through.
    """
    probe = "INSERT INTO audit_entry VALUES (-1, 't', 'a', 's', '', x'00', x'00', x'00')"
    tries = ("UPDATE audit_entry SET tag = 'x' WHERE position = -1", "DELETE FROM audit_entry WHERE position = -1", probe)
    outer = connection.begin_nested()
    try:
        connection.exec_driver_sql(probe)
        for statement in (*tries, probe.replace("INSERT", "INSERT OR REPLACE")):
            if not _is_refused(connection, statement):
                raise RuleViolation(
                    f"the audit log of this database can be changed: {statement.split()[0]} went through; restore a backup"
                )
    finally:
        outer.rollback()


def _is_refused(connection: Connection, statement: str) -> bool:
    inner = connection.begin_nested()
    try:
        connection.exec_driver_sql(statement)
    except IntegrityError:
        return True
    finally:
        inner.rollback()
    return False
