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

HEAD_REVISION = "0002"
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


class JsonText(TypeDecorator[Any]):
    """JSON as text: keeps infinite e-values, which the JSON types of databases refuse."""

    impl = Text()
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str:  # noqa: ANN401, ARG002
        """Write."""
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:  # noqa: ANN401, ARG002
        """Read."""
        return None if value is None else json.loads(value)


def _digest(name: str = "digest", *args: Any, **options: Any) -> "Column[Any]":  # noqa: ANN401
    return Column(name, String(64), *args, **({"nullable": False} | options))


def _row_id() -> "Column[Any]":
    return Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True)


def _text(name: str, length: int = 200, **options: Any) -> "Column[Any]":  # noqa: ANN401
    return Column(name, String(length), **({"nullable": False} | options))


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
    Column("location", Text(), nullable=False),
    _json("files"),
    _json("facts"),
    _json("properties", server_default="{}"),
    _json("claims", server_default="{}"),
)

tensor = Table(
    "tensor",
    metadata,
    Column("artifact", String(64), ForeignKey("artifact.digest"), primary_key=True),
    Column("file", Text(), primary_key=True),
    Column("name", Text(), primary_key=True),
    _text("dtype", 16),
    _json("shape"),
    _digest("sha256", index=True),
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
    Index(None, "target", "kind"),
)

alias_event = Table(
    "alias_event",
    metadata,
    _row_id(),
    _text("name"),
    Column("release_id", String(32), ForeignKey("release.id"), nullable=False),
    _text("actor"),
    _time(),
    Index(None, "name", "id"),
)

policy = Table("policy", metadata, _digest(primary_key=True), _text("name"), Column("text", Text(), nullable=False))

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
    Column("rollout_id", String(200), ForeignKey("rollout.id"), primary_key=True),
    _json(),
    _text("epoch", 64),
    Column("sequence", BigInteger(), nullable=False),
)

verdict = Table(
    "verdict",
    metadata,
    _row_id(),
    Column("rollout_id", String(200), ForeignKey("rollout.id"), nullable=False, index=True),
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
    Column("path", Text(), nullable=False),
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
    Column("note", Text(), nullable=False),
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
    Column("error", Text(), nullable=True),
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
