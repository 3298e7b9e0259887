"""The audit log in the database: appended within the transaction of the change that it records.

The exact canonical bytes are the record; the other columns are a projection for queries. The frontier in `audit_head` moves by
compare-and-swap, so that two writers can never give one number to two entries. Verification is `store.verify`'s job.
"""

from collections.abc import Generator, Iterable, Iterator
from datetime import datetime
from typing import Any, TypedDict, Unpack

from sqlalchemy import Connection, Select, String, insert, or_, select, type_coerce, update
from sqlalchemy.exc import IntegrityError

from specops.core.audit import AuditEntry
from specops.core.chain import Link
from specops.core.merkle import (
    EMPTY_ROOT,
    Frontier,
    Growth,
    Range,
    consistency_ranges,
    inclusion_ranges,
    leaf_hash,
    roots_of,
)
from specops.errors import ChainBroken, InvalidRecord, StoreUnavailable
from specops.store import schema, triggers

_LOG = "main"
_VERIFY = "run: specops audit verify"
_PAGE = 1_000  # rows fetched at once where a log is streamed


class NewEntry(TypedDict):
    """What an entry says; its number is given when it is appended."""

    tag: str
    actor: str
    subject: str
    payload: dict[str, Any]
    at: datetime


class AuditLog:
    """The one log of a store."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._held: Frontier | None = None  # the head as this transaction left it; the compare-and-swap guards it

    def append(self, **entry: Unpack[NewEntry]) -> int:
        """Append an entry and return its index, from 0.

        Raises:
            InvalidRecord: the tag, a name, the time or the payload is not allowed in an entry.
            ChainBroken: the head was altered, or an entry of this number is there already.
            StoreUnavailable: another writer was faster; run the whole transaction again.
        """
        return self.append_many([entry])

    def append_many(self, entries: Iterable[NewEntry]) -> int:
        """Append entries in their order, all or none, in one round trip, and return the index of the first.

        Raises:
            InvalidRecord: an entry has a tag, a name, a time or a payload that is not allowed.
            ChainBroken: the head was altered, or an entry of one of these numbers is there already.
            StoreUnavailable: another writer was faster; run the whole transaction again.
        """
        head = self._held or self.head()
        growth, rows = Growth(size=head.size, peaks=list(head.peaks)), []
        for new in entries:
            raw = AuditEntry(index=growth.size, **new).to_bytes()
            row = {key: new[key] for key in ("tag", "actor", "subject", "at")} | {"position": growth.size}
            leaf = leaf_hash(raw)
            growth.append(leaf)
            rows.append(row | {"raw": raw, "leaf": leaf, "root": growth.root})
        if rows:
            grown = growth.frontier()
            self._move_head(head, grown)
            self._insert(rows, head.size)
            self._held = grown
        return head.size

    def head(self) -> Frontier:
        """Return the size and frontier of the log.

        Raises:
            ChainBroken: what is stored is no head.
        """
        table = schema.audit_head
        row = self._connection.execute(select(table.c.size, table.c.peaks).where(table.c.log == _LOG)).first()
        try:
            return Frontier() if row is None else Frontier.from_bytes(row.size, row.peaks)
        except InvalidRecord as exc:
            raise ChainBroken(f"the head of the audit log was altered: {exc}; {_VERIFY}") from exc

    def unguarded(self) -> tuple[str, ...]:
        """Return the names of the guards of append-only tables that are gone or bent right now."""
        return triggers.missing(self._connection)

    def root_at(self, size: int) -> bytes | None:
        """Return the root stored when the log had `size` entries; None when it never had."""
        if size == 0:
            return EMPTY_ROOT
        table = schema.audit_entry
        return self._connection.execute(select(table.c.root).where(table.c.position == size - 1)).scalar()

    def all(self) -> list[AuditEntry]:
        """Return every entry, oldest first."""
        return list(self.read())

    def of(self, subject: str) -> list[AuditEntry]:
        """Return the entries about one subject, oldest first."""
        return list(self.read(subject=subject))

    def read(
        self, *, subject: str | None = None, tag: str | None = None, since: datetime | None = None, last: int | None = None
    ) -> Iterator[AuditEntry]:
        """Yield entries, oldest first, in memory that does not grow with the log.

        Args:
            subject: only entries about this.
            tag: only this tag, or with `rollout` or `rollout:step` all tags below it.
            since: only entries of this time or later.
            last: only the newest so many of those.

        Raises:
            ChainBroken: the bytes of an entry are none.
        """
        table = schema.audit_entry
        query = select(table.c.position, table.c.raw)
        if subject is not None:
            query = query.where(table.c.subject == subject)
        if tag is not None:
            query = query.where(or_(table.c.tag == tag, table.c.tag.startswith(f"{tag}:", autoescape=True)))
        if since is not None:
            query = query.where(table.c.at >= since)
        if last is not None:
            newest = query.order_by(table.c.position.desc()).limit(last).subquery()
            query = select(newest.c.position, newest.c.raw).order_by(newest.c.position)
        else:
            query = query.order_by(table.c.position)
        for row in self._stream(query):
            try:
                entry = AuditEntry.from_bytes(row.raw)
            except InvalidRecord as exc:
                raise ChainBroken(f"audit entry {row.position} was altered: {exc}; {_VERIFY}") from exc
            yield entry

    def raw_at(self, index: int) -> bytes:
        """Return the exact bytes of an entry.

        Raises:
            InvalidRecord: there is none of this index.
        """
        table = schema.audit_entry
        raw = self._connection.execute(select(table.c.raw).where(table.c.position == index)).scalar()
        if raw is None:
            raise InvalidRecord(f"no audit entry {index}; the log has entries 0..{self.head().size - 1}")
        return bytes(raw)

    def links(self) -> Generator[Link, None, None]:
        """Yield every entry as stored, unchecked, for `verify_chain`."""
        table = schema.audit_entry
        at = type_coerce(table.c.at, String(32))  # the text itself: a time that is none must not stop the check
        columns = (table.c.position, table.c.raw, table.c.root, table.c.leaf, table.c.tag, table.c.actor, table.c.subject, at)
        for row in self._stream(select(*columns).order_by(table.c.position)):
            yield Link._make(row)

    def prove(self, index: int, size: int | None = None) -> tuple[bytes, ...]:
        """Return the inclusion proof of an entry in the log of `size` entries (a checkpoint's; None: of now)."""
        return self._roots(inclusion_ranges(self.head().size if size is None else size, index))

    def prove_consistency(self, old_size: int, size: int | None = None) -> tuple[bytes, ...]:
        """Return the proof that the log of `old_size` entries is a prefix of the one of `size`."""
        return self._roots(consistency_ranges(self.head().size if size is None else size, old_size))

    def notes(self) -> list[str]:
        """Return the signed checkpoints that the database keeps, smallest first."""
        rows = self._connection.execute(select(schema.checkpoint.c.note).order_by(schema.checkpoint.c.size))
        return [row.note for row in rows]

    def keep_note(self, size: int, note: str) -> None:
        """Keep a signed checkpoint; the first one of a size stays."""
        table = schema.checkpoint
        if not self._connection.execute(select(table.c.size).where(table.c.size == size)).first():
            self._connection.execute(insert(table), {"size": size, "note": note})

    def _roots(self, ranges: tuple[Range, ...]) -> tuple[bytes, ...]:
        """Hash the leaves once, in one pass."""
        table = schema.audit_entry
        rows = self._stream(select(table.c.leaf).order_by(table.c.position))
        return roots_of((bytes(row.leaf) for row in rows), ranges)

    def _stream(self, query: "Select[Any]") -> Iterator[Any]:
        """Fetch page by page."""
        with self._connection.execute(query, execution_options={"yield_per": _PAGE}) as rows:
            yield from rows

    def _insert(self, rows: list[dict[str, Any]], first: int) -> None:
        try:
            self._connection.execute(insert(schema.audit_entry), rows)
        except IntegrityError as exc:
            which = f"audit entry {first}" if len(rows) == 1 else f"one of the audit entries {first}..{first + len(rows) - 1}"
            raise ChainBroken(f"{which} is there already, unknown to the log's head: the log was altered; {_VERIFY}") from exc

    def _move_head(self, old: Frontier, new: Frontier) -> None:
        table, values = schema.audit_head, {"size": new.size, "peaks": new.to_bytes()}
        if self._connection.execute(update(table).where(table.c.log == _LOG, table.c.size == old.size).values(values)).rowcount:
            return
        if old.size:
            raise StoreUnavailable(f"the audit log grew past {old.size} while an entry was appended; run the operation again")
        self._connection.execute(insert(table), {"log": _LOG} | values)
