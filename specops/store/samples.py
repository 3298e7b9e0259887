"""Raw prompts and outputs, kept for a time and erasable: the one place for personal data, apart from everything append-only.

Off unless `keep_samples` is set. A sample is filed under HMAC-SHA256 of its request id, so that without the secret beside the
signing key nobody can say whose a row is, and what the audit log says about an erasure (keyed hash, counts) names nobody.
Called by the offline evaluation (`keep`), `specops samples`, and the retention job. The table is `schema.sample`.
"""

import hashlib
import hmac
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import Connection, delete, insert, select

from specops.errors import InvalidRecord
from specops.store import schema

if TYPE_CHECKING:
    from specops.store.unit import Unit

MIN_SECRET_BYTES = 32
PROMPT, OUTPUT = "prompt", "output"


class Sample(NamedTuple):
    """One part of a request: `prompt` or `output`."""

    part: str
    content: bytes
    at: datetime
    expires_at: datetime


class Samples:
    """The table, by keyed hash."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def put(self, key: str, part: str, content: bytes, *, at: datetime, expires_at: datetime) -> None:
        """Keep one part; an earlier one of the same key and part is replaced."""
        table = schema.sample
        self._connection.execute(delete(table).where(table.c.key == key, table.c.part == part))
        row = {"key": key, "part": part, "content": content, "at": at, "expires_at": expires_at}
        self._connection.execute(insert(table), row)

    def get(self, key: str) -> list[Sample]:
        """Return the parts that are kept, none when there are none."""
        table = schema.sample
        columns = (table.c.part, table.c.content, table.c.at, table.c.expires_at)
        rows = self._connection.execute(select(*columns).where(table.c.key == key).order_by(table.c.part.desc()))
        return [Sample(row.part, bytes(row.content), row.at, row.expires_at) for row in rows]

    def erase(self, key: str) -> int:
        """Remove all parts of a key and return how many there were."""
        self._overwrite()
        return self._connection.execute(delete(schema.sample).where(schema.sample.c.key == key)).rowcount

    def expire(self, now: datetime) -> int:
        """Remove all parts whose time is over and return how many there were."""
        self._overwrite()
        return self._connection.execute(delete(schema.sample).where(schema.sample.c.expires_at <= now)).rowcount

    def _overwrite(self) -> None:
        """Have SQLite write zeros over what it deletes; it would leave the text in free pages of the file."""
        if self._connection.dialect.name == "sqlite":
            self._connection.exec_driver_sql("PRAGMA secure_delete = ON")


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleKeeper:
    """Keeps, shows and erases samples under one secret (32 bytes or more); they expire after `days`."""

    secret: bytes = field(repr=False)
    days: int

    def __post_init__(self) -> None:
        """Check the secret's length and the days."""
        if len(self.secret) < MIN_SECRET_BYTES or self.days < 1:
            raise InvalidRecord(f"samples need a secret of {MIN_SECRET_BYTES} bytes and samples_days >= 1, got {self.days}")

    def key(self, request_id: str) -> str:
        """Return the keyed hash of a request id, 64 hex digits."""
        return hmac.new(self.secret, request_id.encode(), hashlib.sha256).hexdigest()

    def keep(self, unit: "Unit", request_id: str, prompt: str, output: str, now: datetime) -> None:
        """Keep a request's prompt and output until its time is over."""
        key, expires_at = self.key(request_id), now + timedelta(days=self.days)
        for part, text in ((PROMPT, prompt), (OUTPUT, output)):
            unit.samples.put(key, part, text.encode("utf-8", "surrogatepass"), at=now, expires_at=expires_at)

    def show(self, unit: "Unit", request_id: str) -> list[Sample]:
        """Return what is kept of a request, prompt first."""
        return unit.samples.get(self.key(request_id))

    def erase(self, unit: "Unit", request_id: str, *, actor: str, now: datetime) -> int:
        """Erase what is kept of a request and return the number of parts; an audit entry says that, and not what."""
        key = self.key(request_id)
        parts = unit.samples.erase(key)
        if parts:
            unit.audit.append(tag="samples:request:erased", actor=actor, subject=key, payload={"parts": parts}, at=now)
        return parts

    def expire(self, unit: "Unit", *, actor: str, now: datetime) -> int:
        """Erase what is over its time and return the number of parts; an audit entry says how many."""
        parts = unit.samples.expire(now)
        if parts:
            unit.audit.append(
                tag="samples:retention:expired", actor=actor, subject="samples", payload={"parts": parts}, at=now
            )
        return parts
