"""PostgreSQL: one database for several hosts. Implements `dialect.Dialect`.

One writer at a time, as on SQLite: a transaction that may write takes one advisory lock when it begins and gives it back when
it ends, however it ends. The audit log is one chain, so its writers would queue at its head anyway; queueing at the start means
no deadlocks, no repeated transactions, and the same behaviour on both databases (docs/decisions/0011). Readers never wait.

Guards are triggers in plpgsql, enabled ALWAYS, which a session in replica mode fires too. A superuser can still drop them: they
are rails, the evidence is the signed checkpoint outside.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, cast

from sqlalchemy import URL, Connection, Engine, Executable, create_engine, event, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, OperationalError

from specops.errors import InvalidInput, InvalidRecord, MissingExtra, RuleViolation, SpecopsError, StoreUnavailable
from specops.store import schema

READING: Mapping[str, Any] = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
"""Execution options of a connection whose transaction only reads: one snapshot, and the server refuses writes."""

WRITER_LOCK = 0x73706563_6F707300
"""The advisory lock of writers: "specops" in ASCII. Advisory locks belong to one database of a server."""

CONNECT_TIMEOUT_S = 10
_IDLE_S = 120.0  # a writer that sleeps longer inside its transaction is cut off by the server, else it blocks every other one

_BODY = (
    "BEGIN RAISE EXCEPTION '% is append-only: % refused', TG_TABLE_NAME, TG_OP "
    "USING ERRCODE = 'integrity_constraint_violation'; END"
)
_FUNCTION = f"CREATE OR REPLACE FUNCTION specops_refuse() RETURNS trigger LANGUAGE plpgsql AS $body${_BODY}$body$"
# a guard's event, how often it fires, and both as bits of pg_trigger.tgtype: row 1, before 2, delete 8, update 16, truncate 32
_EVENTS = {"update": ("ROW", 19), "delete": ("ROW", 11), "truncate": ("STATEMENT", 34)}
_FOUND = """
    SELECT t.tgname AS name, t.tgtype AS kind, p.prosrc AS body
    FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_proc p ON p.oid = t.tgfoid
    WHERE NOT t.tgisinternal AND t.tgenabled = 'A' AND t.tgqual IS NULL AND cardinality(t.tgattr::int2[]) = 0
      AND c.relnamespace = current_schema()::regnamespace
      AND c.relname = substr(t.tgname, length(split_part(t.tgname, '_', 2)) + 9)  -- the table is the third part of the name
"""
_PRIVILEGE, _READ_ONLY = "42501", "25006"
# what the server says when it will say so again: its own words, because a failed connection carries no SQLSTATE
_REFUSED = ("authentication failed", "no password supplied", "does not exist", "no pg_hba.conf entry", "permission denied")


def engine(url: URL, lock_timeout_s: float) -> Engine:
    """Return an engine; nothing is connected yet.

    Raises:
        InvalidInput: another driver than psycopg 3, or no database named.
        MissingExtra: psycopg is not installed.
    """
    if url.drivername not in {"postgresql", "postgresql+psycopg"}:
        raise InvalidInput(f"the driver of {url.drivername}:// is not used; write postgresql://, which takes psycopg 3")
    if not url.database:
        raise InvalidInput("the PostgreSQL URL names no database; use postgresql://user:password@host/database")
    try:
        import psycopg  # noqa: F401, PLC0415  # an extra; create_engine would say less
    except ImportError as exc:
        raise MissingExtra("psycopg", "postgres") from exc
    made = create_engine(
        url.set(drivername="postgresql+psycopg"),
        isolation_level="READ COMMITTED",  # whatever the server's default: what others wrote during the wait must be seen
        pool_pre_ping=True,  # a server that was restarted costs a reconnection, not an error
        connect_args={"connect_timeout": CONNECT_TIMEOUT_S} if "connect_timeout" not in url.query else {},
    )
    limits = {"lock_timeout": lock_timeout_s, "idle_in_transaction_session_timeout": _IDLE_S}
    settings = ", ".join(f"set_config('{name}', '{limit_s * 1000:.0f}', true)" for name, limit_s in limits.items())

    def begin(connection: Connection) -> None:
        """Take the writer lock, in the one statement that says how long to wait for it."""
        if not connection.get_execution_options().get("postgresql_readonly", False):
            connection.exec_driver_sql(f"SELECT {settings}, pg_advisory_xact_lock({WRITER_LOCK})")

    event.listen(made, "begin", begin)
    event.listen(made, "connect", _check_encoding)
    return made


def missing_guards(connection: Connection, tables: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of the triggers that are absent, not enabled ALWAYS, conditional, or call something else."""
    found = {(row.name, row.kind, row.body) for row in connection.execute(text(_FOUND))}
    wanted = {f"refuse_{change}_{table}": bits for table in tables for change, (_, bits) in _EVENTS.items()}
    return tuple(name for name, bits in wanted.items() if (name, bits, _BODY) not in found)


def restore_guard(connection: Connection, name: str) -> None:
    """Put a trigger back, and the function that all of them call."""
    _, change, table = name.split("_", 2)
    each, _ = _EVENTS[change]
    for statement in (
        _FUNCTION,
        f"DROP TRIGGER IF EXISTS {name} ON {table}",
        f"CREATE TRIGGER {name} BEFORE {change.upper()} ON {table} FOR EACH {each} EXECUTE FUNCTION specops_refuse()",
        f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER {name}",
    ):
        connection.execute(text(statement))


def replacing(row: Mapping[str, Any]) -> Executable:
    """Return PostgreSQL's way of overwriting a row by inserting it."""
    statement = insert(schema.audit_entry).values(row)
    return statement.on_conflict_do_update(index_elements=["position"], set_={"tag": "replaced"})


def is_refusal(exc: DBAPIError) -> bool:
    """Say whether a guard, a constraint, or a privilege that was never granted refused a write."""
    return isinstance(exc, IntegrityError) or _state(exc) == _PRIVILEGE


def now(connection: Connection, given: datetime) -> datetime:  # noqa: ARG001  # the clocks of hosts differ
    """Return the database's clock: of now, not of the start of the transaction, which may have waited 30 s for the lock."""
    return cast("datetime", connection.execute(text("SELECT clock_timestamp()")).scalar_one()).astimezone(UTC)


def translated(exc: DBAPIError) -> SpecopsError:
    """Return our error for one of PostgreSQL's; libpq's messages name user, host and database, never the password."""
    said = getattr(getattr(exc.orig, "diag", None), "message_primary", None)  # DETAIL and CONTEXT may quote a whole row
    said = said or " ".join(str(exc.orig).split())
    if isinstance(exc, IntegrityError):
        return RuleViolation(f"the database refused a write: {said}; nothing was changed")
    if _state(exc) == _PRIVILEGE:
        return InvalidInput(f"the database role may not do that: {said}; see docs/how-to/use-postgresql.md for what it needs")
    if _state(exc) == _READ_ONLY:
        return InvalidInput(f"the database takes no writes: {said}; point to the primary, not to a standby")
    if isinstance(exc, OperationalError):
        if _state(exc) is None and any(word in said for word in _REFUSED):
            return InvalidInput(f"the database does not let specops in: {said}; check database_url: user, password, database")
        return StoreUnavailable(f"the database does not answer: {said}; try again")
    if isinstance(exc, DataError):
        return InvalidRecord(f"the database cannot hold a value: {said}; nothing was changed")
    return InvalidInput(f"the database cannot be used: {said}; point to a specops database or to an empty one")


def _state(exc: DBAPIError) -> str | None:
    """Return the SQLSTATE; None when the server was not reached or did not let us in."""
    return getattr(exc.orig, "sqlstate", None)


def _check_encoding(raw: Any, _record: Any) -> None:  # noqa: ANN401
    """Refuse a database whose texts are not UTF-8: it would refuse a name one day, in the middle of a rollout."""
    encoding = raw.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise InvalidInput(f"the database is encoded in {encoding}, specops needs UTF8; create it with ENCODING 'UTF8'")
