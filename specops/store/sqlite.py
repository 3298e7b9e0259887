"""SQLite: one file on one machine, the default. Implements `dialect.Dialect`.

Three things are said aloud, each measured: WAL with synchronous FULL (a commit lasts through a power cut), foreign keys on, and
BEGIN IMMEDIATE, since a transaction that reads first and then writes fails at once when another writer was faster, whatever
the timeout.
"""

import sqlite3
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, Executable, create_engine, event, insert
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError

from specops.errors import InvalidInput, RuleViolation, SpecopsError, StoreUnavailable
from specops.store import schema

READING: Mapping[str, Any] = {"specops_read_only": True}
"""Execution options of a connection whose transaction only reads."""


def _triggers(table: str) -> dict[str, str]:
    """Return name -> CREATE TRIGGER text of a table's guards."""
    out = {}
    for change in ("UPDATE", "DELETE"):
        name = f"refuse_{change.lower()}_{table}"
        out[name] = (
            f"CREATE TRIGGER {name} BEFORE {change} ON {table} "
            f"BEGIN SELECT RAISE(ABORT, '{table} is append-only: {change} refused'); END"
        )
    key = schema.metadata.tables[table].primary_key.columns.keys()[0]
    # REPLACE deletes the old row without firing a DELETE trigger, so an existing key is refused before it comes to that
    exists = f"EXISTS (SELECT 1 FROM {table} WHERE {key} = NEW.{key})"  # noqa: S608  # names from our own schema
    out[f"refuse_replace_{table}"] = (
        f"CREATE TRIGGER refuse_replace_{table} BEFORE INSERT ON {table} WHEN {exists} "
        f"BEGIN SELECT RAISE(ABORT, '{table} is append-only: its keys are used once'); END"
    )
    return out


TRIGGERS: Mapping[str, str] = {name: sql for table in schema.APPEND_ONLY for name, sql in _triggers(table).items()}
"""Name -> CREATE TRIGGER text of every guard."""


def engine(url: URL, lock_timeout_s: float) -> Engine:
    """Return an engine on a file; its folder is made.

    Raises:
        InvalidInput: not a file, or another driver.
        StoreUnavailable: the folder cannot be made.
    """
    if not url.database or url.database == ":memory:" or url.get_driver_name() != "pysqlite":
        raise InvalidInput(f"{url.render_as_string()} is not a SQLite file; use sqlite:///path/to/specops.db")
    try:
        Path(url.database).parent.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as exc:
        raise StoreUnavailable(f"cannot make the folder of {url.database!r}: {exc}") from exc
    made = create_engine(url, connect_args={"timeout": lock_timeout_s})

    def configure(raw: sqlite3.Connection, _record: Any) -> None:  # noqa: ANN401
        """Set up a new connection; transactions are begun by `_begin`, not by the driver."""
        raw.isolation_level = None
        for statement in ("PRAGMA foreign_keys = ON", "PRAGMA synchronous = FULL"):
            raw.execute(statement)
        _switch_to_wal(raw, lock_timeout_s)

    event.listen(made, "connect", configure)
    event.listen(made, "begin", _begin)
    return made


def missing_guards(connection: Connection, tables: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of the triggers that are absent or not ours word for word."""
    rows = connection.exec_driver_sql("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
    found = {row.name: row.sql for row in rows}
    return tuple(name for table in tables for name in _triggers(table) if found.get(name) != TRIGGERS[name])


def restore_guard(connection: Connection, name: str) -> None:
    """Put a trigger back."""
    connection.exec_driver_sql(f"DROP TRIGGER IF EXISTS {name}")
    connection.exec_driver_sql(TRIGGERS[name])


def replacing(row: Mapping[str, Any]) -> Executable:
    """Return SQLite's way of overwriting a row by inserting it."""
    return insert(schema.audit_entry).prefix_with("OR REPLACE").values(row)


def is_refusal(exc: DBAPIError) -> bool:
    """Say whether a guard or a constraint refused a write."""
    return isinstance(exc, IntegrityError)


def now(connection: Connection, given: datetime) -> datetime:  # noqa: ARG001  # the other database needs it
    """Return the given time: a file has one machine and one clock."""
    return given


def translated(exc: DBAPIError) -> SpecopsError:
    """Return our error for one of SQLite's."""
    if isinstance(exc, IntegrityError):
        return RuleViolation(f"the database refused a write: {exc.orig}; nothing was changed")
    if isinstance(exc, OperationalError):
        return StoreUnavailable(f"the database does not answer: {exc.orig}; try again")
    return InvalidInput(
        f"the database cannot be used: {exc.orig}; if it is the one of specops, stop all processes, copy the file as it is, "
        "and restore a backup"
    )


def _switch_to_wal(raw: sqlite3.Connection, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while raw.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        try:  # the busy timeout does not cover this switch, and two processes may make the file at once
            raw.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _begin(connection: Connection) -> None:
    """Begin: a snapshot for readers, the write lock for everybody else."""
    read_only = connection.get_execution_options().get("specops_read_only", False)
    connection.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")
