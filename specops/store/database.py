"""Opens the database and hands out transactions.

`wiring` opens one store per process; control functions and the CLI call `begin`. Which database it is, the URL says; what that
changes is in `dialect`, `sqlite` and `postgres`.
"""

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, StatementError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from specops.core.audit import Checkpoint, Signer
from specops.errors import ChainBroken, SpecopsError, StoreUnavailable
from specops.store import checkpoints, dialect, schema, triggers, upgrade
from specops.store.dialect import Dialect
from specops.store.unit import Unit

LOCK_TIMEOUT_S = 30.0


class Store:
    """A database and the folder of its outcome segments. Safe to share between threads; one per process."""

    def __init__(self, engine: Engine, kind: Dialect, segments: Path) -> None:
        self._engine = engine
        self._kind = kind
        self._segments = segments

    @contextlib.contextmanager
    def begin(self) -> Iterator[Unit]:
        """Run a transaction that may write: committed at the end of the block, rolled back on an exception.

        Writers wait for each other, at most 30 s. On PostgreSQL the server ends a writer that does nothing for 120 s.

        Raises:
            StoreUnavailable: another writer is busy for longer, or the database cannot be reached, read or written.
            RuleViolation: a constraint or an append-only guard refused a write.
            InvalidRecord: a text cannot be stored: too long, a NUL character, half a surrogate pair.
        """
        with _translated(self._kind), self._engine.begin() as connection:
            yield Unit(connection, self._segments)

    @contextlib.contextmanager
    def read(self) -> Iterator[Unit]:
        """Run a transaction that only reads: one consistent view, never waits for writers, rolled back at the end."""
        with _translated(self._kind), self._engine.connect().execution_options(**self._kind.READING) as connection:
            yield Unit(connection, self._segments)

    def checkpoint(self, signer: Signer, path: Path) -> Checkpoint:
        """Sign the head of the audit log; keep the note here and in a file, which should be on another machine."""
        with self.begin() as unit:
            return checkpoints.write(unit, signer, path)

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()


def open_store(url: str, *, segments: Path, lock_timeout_s: float = LOCK_TIMEOUT_S) -> Store:
    """Open a database, bring its schema up to date, and check its guards. Processes may do this at once.

    Args:
        url: `sqlite:///relative/path.db` or `sqlite:////absolute/path.db`, made if absent; or
            `postgresql://user:password@host:port/database`, which must exist and be empty or ours.
        segments: folder of the Parquet segments; made when the first one is sealed. Several hosts must share it.
        lock_timeout_s: how long a writer waits for another one.

    Raises:
        InvalidInput: not such a URL, not a database of specops, or user, password or database are wrong.
        MissingExtra: PostgreSQL is asked for and psycopg is not installed.
        RuleViolation: the database was made by a newer specops, or its audit log is not protected.
        StoreUnavailable: it is locked or does not answer, or its folder cannot be written.
    """
    kind, parsed = dialect.for_url(url)
    engine = kind.engine(parsed, lock_timeout_s)
    try:
        with _translated(kind), engine.connect().execution_options(**kind.READING) as connection:
            ready = upgrade.current(connection) == schema.HEAD_REVISION and not triggers.missing(connection)
        with _translated(kind), engine.begin() as connection:
            if not ready:
                _prepare(connection, segments)
            triggers.self_test(connection)
    except BaseException:
        engine.dispose()
        raise
    return Store(engine, kind, segments)


def _prepare(connection: Connection, segments: Path) -> None:
    """Upgrade the schema and put guards in place; say so in the audit log if guards of an existing database were gone.

    A log that was altered meanwhile may take no entry. It opens all the same: only then can `verify` name what was altered.
    """
    before = upgrade.current(connection)
    upgrade.run(connection)
    restored = triggers.restore(connection)
    if restored and before == schema.HEAD_REVISION:
        with contextlib.suppress(ChainBroken), connection.begin_nested():
            Unit(connection, segments).audit.append(
                tag=triggers.RESTORED,
                actor="store",
                subject="database",
                payload={"triggers": list(restored)},
                at=datetime.now(UTC),
            )


@contextlib.contextmanager
def _translated(kind: Dialect) -> Iterator[None]:
    """Turn the database's errors into ours; one of ours that SQLAlchemy wrapped, because a column type raised it, comes out."""
    try:
        yield
    except DBAPIError as exc:
        raise kind.translated(exc) from exc
    except StatementError as exc:
        if isinstance(exc.orig, SpecopsError):
            raise exc.orig from exc
        raise
    except PoolTimeout as exc:
        raise StoreUnavailable(f"all connections of this process to the database are busy: {exc}; try again") from exc
