"""Every table, once. `mapping` and the repositories read and write them; migrations/ must lead to exactly these.

Three rules: registered things are never updated; names and aliases are rows of an event table; records of frozen types are kept
whole as JSON text, with a column beside it only for what a query needs. PostgreSQL-ready: no SQLite-only type or default.
"""

import json
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Dialect,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
)

from specops.errors import InvalidRecord

HEAD_REVISION = "0003"
"""The newest migration; a test compares it with migrations/, so that opening a current database need not import Alembic."""

APPEND_ONLY = ("audit_entry", "verdict", "alias_event", "checkpoint")
"""Tables whose rows never change and never go; `triggers` guards them."""

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    },
)


class UtcText(TypeDecorator[datetime]):
    """A time as UTC text of fixed width, which sorts like the time; SQLite's own type loses the zone."""

    impl = String(32)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        """Write; a time without zone is refused."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"time without zone: {value.isoformat()}; use UTC")
        return value.astimezone(UTC).isoformat(timespec="microseconds")

    def process_result_value(self, value: str | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        """Read."""
        return None if value is None else datetime.fromisoformat(value)


class PlainText(TypeDecorator[str]):
    """Text that both databases take: PostgreSQL refuses NUL characters and what is too long, neither takes half a surrogate."""

    impl = String
    cache_ok = True  # the key of the cache is the class and what __init__ takes, by name

    def __init__(self, length: int | None = None) -> None:
        self.length = length
        super().__init__(length)

    def coerce_compared_value(self, op: Any, value: Any) -> "PlainText":  # noqa: ANN401, ARG002
        """Compare with texts of any length: only what is stored is limited."""
        return PlainText()

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        """Write."""
        if value is None:
            return None
        if self.length is not None and len(value) > self.length:
            raise InvalidRecord(f"{_shown(value)} has {len(value)} characters, at most {self.length} can be stored; shorten it")
        if "\0" in value or not _is_utf8(value):
            raise InvalidRecord(f"{_shown(value)} holds a NUL character or half a surrogate pair; databases cannot store it")
        return value


class LongText(PlainText):
    """Text without a limit."""

    impl = Text
    cache_ok = True


class JsonText(TypeDecorator[Any]):
    """JSON as text: keeps infinite e-values, which the JSON types of databases refuse; a NUL character is escaped."""

    impl = Text()
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str:  # noqa: ANN401, ARG002
        """Write."""
        out = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
        # half a surrogate pair has no UTF-8; escaped, it is plain ASCII, and reading gives it back
        return out if _is_utf8(out) else json.dumps(value, separators=(",", ":"))

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:  # noqa: ANN401, ARG002
        """Read."""
        return None if value is None else json.loads(value)


def _is_utf8(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shown(value: str) -> str:
    """Return the beginning of a text, printable anywhere."""
    return ascii(value[:60])


def _digest(name: str = "digest", *args: Any, **options: Any) -> "Column[Any]":  # noqa: ANN401
    return Column(name, PlainText(64), *args, **({"nullable": False} | options))


def _row_id() -> "Column[Any]":
    return Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True)


def _text(name: str, length: int = 200, **options: Any) -> "Column[Any]":  # noqa: ANN401
    return Column(name, PlainText(length), **({"nullable": False} | options))


def _json(name: str = "record", **options: Any) -> "Column[Any]":  # noqa: ANN401
    return Column(name, JsonText(), nullable=False, **options)


def _time(name: str = "at", *, nullable: bool = False) -> "Column[Any]":
    return Column(name, UtcText(), nullable=nullable)


artifact = Table(
    "artifact",
    metadata,
    _digest(primary_key=True),
    _text("kind", 32),
    _text("name"),
    Column("location", LongText(), nullable=False),
    _json("files"),
    _json("facts"),
    _json("properties", server_default="{}"),
    _json("claims", server_default="{}"),
    Index(None, "name"),
)

tensor = Table(
    "tensor",
    metadata,
    Column("artifact", PlainText(64), ForeignKey("artifact.digest"), primary_key=True),
    Column("file", LongText(), primary_key=True),
    Column("name", LongText(), primary_key=True),
    _text("dtype", 16),
    _json("shape"),
    _text("digest", 80, index=True),
)

pair = Table("pair", metadata, _digest(primary_key=True), _text("relation", 32), _json())

release = Table(
    "release",
    metadata,
    _text("id", 32, primary_key=True),
    _digest(unique=True),
    _text("name", unique=True),
    _json(),
)

edge = Table(
    "edge",
    metadata,
    _digest("source", primary_key=True),
    _text("kind", 32, primary_key=True),
    _digest("target", primary_key=True),
    Index(None, "target", "kind", "source"),
)

alias_event = Table(
    "alias_event",
    metadata,
    _row_id(),
    _text("name"),
    Column("release_id", PlainText(32), ForeignKey("release.id"), nullable=False),
    _text("actor"),
    _time(),
    Index(None, "name", "id"),
)

policy = Table("policy", metadata, _digest(primary_key=True), _text("name"), Column("text", LongText(), nullable=False))

evidence = Table(
    "evidence",
    metadata,
    _row_id(),
    _text("subject", index=True),
    _text("kind", 64),
    _json("payload"),
    _time(),
    _digest("scope", nullable=True, index=True),
)

rollout = Table(
    "rollout",
    metadata,
    _text("id", primary_key=True),
    Column("version", Integer(), nullable=False),
    _text("state", 32, index=True),
    _json(),
)

window = Table(
    "evidence_window",
    metadata,
    Column("rollout_id", PlainText(200), ForeignKey("rollout.id"), primary_key=True),
    _json(),
    _text("epoch", 64),
    Column("sequence", BigInteger(), nullable=False),
)

verdict = Table(
    "verdict",
    metadata,
    _row_id(),
    Column("rollout_id", PlainText(200), ForeignKey("rollout.id"), nullable=False, index=True),
    _text("result", 16),
    _digest("policy_digest"),
    Column("outcomes", BigInteger(), nullable=False),
    _time(),
    _json(),
)

outcome_tail = Table(
    "outcome_tail",
    metadata,
    _text("rollout_id", primary_key=True),
    Column("position", BigInteger(), primary_key=True, autoincrement=False),
    _json(),
)

outcome_segment = Table(
    "outcome_segment",
    metadata,
    _text("rollout_id", primary_key=True),
    Column("first", BigInteger(), primary_key=True, autoincrement=False),
    Column("count", Integer(), CheckConstraint("count > 0", name="not_empty"), nullable=False),
    Column("path", LongText(), nullable=False),
    _digest("sha256"),
)

audit_entry = Table(
    "audit_entry",
    metadata,
    Column("position", BigInteger(), primary_key=True, autoincrement=False),
    _text("tag"),
    _text("actor"),
    _text("subject", index=True),
    _time(),
    Column("raw", LargeBinary(), nullable=False),
    Column("leaf", LargeBinary(32), nullable=False),
    Column("root", LargeBinary(32), nullable=False),
)

audit_head = Table(
    "audit_head",
    metadata,
    _text("log", 32, primary_key=True),
    Column("size", BigInteger(), nullable=False),
    Column("peaks", LargeBinary(), nullable=False),
)

checkpoint = Table(
    "checkpoint",
    metadata,
    Column("size", BigInteger(), primary_key=True, autoincrement=False),
    Column("note", LongText(), nullable=False),
)

outbox = Table(
    "outbox",
    metadata,
    _row_id(),
    _text("kind", 64),
    _text("key"),
    _json("payload"),
    _time(),
    _time("due_at"),
    Column("attempts", Integer(), nullable=False),
    _time("done_at", nullable=True),
    Column("error", LongText(), nullable=True),
    UniqueConstraint("kind", "key"),
    Index(None, "done_at", "due_at"),
)

counter = Table("counter", metadata, _text("name", 64, primary_key=True), Column("value", BigInteger(), nullable=False))

lease = Table(
    "lease",
    metadata,
    _text("name", primary_key=True),
    _text("holder"),
    Column("token", BigInteger(), nullable=False),
    _time("expires_at"),
)

sample = Table(
    "sample",
    metadata,
    _digest("key", primary_key=True),
    _text("part", 16, primary_key=True),
    Column("content", LargeBinary(), nullable=False),
    _time(),
    _time("expires_at"),
    Index(None, "expires_at"),
)
