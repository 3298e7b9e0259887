"""Opens the database and hands out transactions; the only file that knows which database it is.

`wiring` opens one store per process; control functions and the CLI call `begin`. SQLite needs three things said aloud, each
measured: WAL with synchronous FULL (a commit lasts through a power cut), foreign keys on, and BEGIN IMMEDIATE, since a
transaction that reads first and then writes fails at once when another writer was faster, whatever the timeout.
"""

import contextlib
import sqlite3
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import DatabaseError, IntegrityError, OperationalError

from specops.core.audit import Checkpoint, Signer
from specops.errors import InvalidInput, RuleViolation, StoreUnavailable
from specops.store import checkpoints, schema, triggers, upgrade
from specops.store.unit import Unit

LOCK_TIMEOUT_S = 30.0
_READ_ONLY = "specops_read_only"


class Store:
    """A database and the folder of its outcome segments. Safe to share between threads; one per process."""

    def __init__(self, engine: Engine, segments: Path) -> None:
        self._engine = engine
        self._segments = segments

    @contextlib.contextmanager
    def begin(self) -> Iterator[Unit]:
        """Run a transaction that may write: committed at the end of the block, rolled back on an exception.

        Writers wait for each other, at most 30 s.

        Raises:
            StoreUnavailable: the database is locked for longer, or cannot be read or written.
            RuleViolation: a constraint or an append-only guard refused a write.
        """
        with _translated(), self._engine.begin() as connection:
            yield Unit(connection, self._segments)

    @contextlib.contextmanager
    def read(self) -> Iterator[Unit]:
        """Run a transaction that only reads: one consistent view, never waits for writers, rolled back at the end."""
        with _translated(), self._engine.connect().execution_options(**{_READ_ONLY: True}) as connection:
            yield Unit(connection, self._segments)

    def checkpoint(self, signer: Signer, path: Path) -> Checkpoint:
        """Sign the head of the audit log; keep the note here and in a file, which should be on another machine."""
        with self.begin() as unit:
            return checkpoints.write(unit, signer, path)

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()


def open_store(url: str, *, segments: Path) -> Store:
    """Open a database, bring its schema up to date, and check its guards.

    Args:
        url: `sqlite:///relative/path.db` or `sqlite:////absolute/path.db`; made if absent. Processes may do this at once.
        segments: folder of the Parquet segments; made when the first one is sealed.

    Raises:
        InvalidInput: not a SQLite file URL, or not a database.
        RuleViolation: the database was made by a newer specops, or its audit log is not protected.
        StoreUnavailable: it is locked, or its folder cannot be written.
    """
    engine = create_engine(_checked(url), connect_args={"timeout": LOCK_TIMEOUT_S})
    event.listen(engine, "connect", _configure)
    event.listen(engine, "begin", _begin)
    try:
        with _translated(), engine.connect().execution_options(**{_READ_ONLY: True}) as connection:
            ready = upgrade.current(connection) == schema.HEAD_REVISION and not triggers.missing(connection)
        with _translated(), engine.begin() as connection:
            if not ready:
                _prepare(connection, segments)
            triggers.self_test(connection)
    except BaseException:
        engine.dispose()
        raise
    return Store(engine, segments)


def _checked(url: str) -> str:
    """Return the URL of a SQLite file whose folder exists."""
    try:
        parsed = make_url(url)
    except Exception as exc:
        raise InvalidInput(f"{url!r} is not a database URL; use sqlite:///path/to/specops.db") from exc
    if parsed.get_backend_name() != "sqlite" or not parsed.database or parsed.database == ":memory:":
        raise InvalidInput(
            f"{parsed.render_as_string()} is not a SQLite file; this version stores in sqlite:///path/to/specops.db"
        )
    try:
        Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise StoreUnavailable(f"cannot make the folder of {parsed.database}: {exc}") from exc
    return url


def _prepare(connection: Connection, segments: Path) -> None:
    """Upgrade the schema and put guards in place; say so in the audit log if guards of an existing database were gone."""
    before = upgrade.current(connection)
    upgrade.run(connection)
    restored = triggers.restore(connection)
    if restored and before == schema.HEAD_REVISION:
        Unit(connection, segments).audit.append(
            tag="store:triggers:restored",
            actor="store",
            subject="database",
            payload={"triggers": list(restored)},
            at=datetime.now(UTC),
        )


def _configure(raw: sqlite3.Connection, _record: Any) -> None:  # noqa: ANN401
    """Set up a new connection; transactions are begun by `_begin`, not by the driver."""
    raw.isolation_level = None
    for statement in ("PRAGMA foreign_keys = ON", "PRAGMA synchronous = FULL"):
        raw.execute(statement)
    deadline = time.monotonic() + LOCK_TIMEOUT_S
    while raw.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        try:  # the busy timeout does not cover this switch, and two processes may make the file at once
            raw.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _begin(connection: Connection) -> None:
    """Begin: a snapshot for readers, the write lock for everybody else."""
    read_only = connection.get_execution_options().get(_READ_ONLY, False)
    connection.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """Turn the database's errors into ours."""
    try:
        yield
    except IntegrityError as exc:
        raise RuleViolation(f"the database refused a write: {exc.orig}; nothing was changed") from exc
    except OperationalError as exc:
        raise StoreUnavailable(f"the database does not answer: {exc.orig}; try again") from exc
    except DatabaseError as exc:
        raise InvalidInput(f"the database cannot be used: {exc.orig}; point to a specops database or to a new file") from exc
