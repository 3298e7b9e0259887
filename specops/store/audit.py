"""The audit log in the database: appended within the transaction of the change that it records.

The exact canonical bytes are the record; the other columns are a projection for queries. The frontier in `audit_head` moves by
compare-and-swap, so that two writers can never give one number to two entries. Verification is `store.verify`'s job.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, insert, select, update

from specops.core.audit import AuditEntry, Link
from specops.core.merkle import EMPTY_ROOT, Frontier, consistency_proof, inclusion_proof, leaf_hash
from specops.errors import StoreUnavailable
from specops.store import schema

_LOG = "main"


class AuditLog:
    """The one log of a store."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def append(self, *, tag: str, actor: str, subject: str, payload: dict[str, Any], at: datetime) -> int:
        """Append an entry and return its index, from 0.

        Raises:
            InvalidRecord: the tag, a name, the time or the payload is not allowed in an entry.
        """
        head = self.head()
        entry = AuditEntry(index=head.size, tag=tag, actor=actor, subject=subject, payload=payload, at=at)
        raw = entry.to_bytes()
        leaf = leaf_hash(raw)
        grown = head.append(leaf)
        self._move_head(head, grown)
        projection = {"position": entry.index, "tag": tag, "actor": actor, "subject": subject, "at": at}
        self._connection.execute(insert(schema.audit_entry), projection | {"raw": raw, "leaf": leaf, "root": grown.root})
        return entry.index

    def head(self) -> Frontier:
        """Return the size and frontier of the log."""
        table = schema.audit_head
        row = self._connection.execute(select(table.c.size, table.c.peaks).where(table.c.log == _LOG)).first()
        return Frontier() if row is None else Frontier.from_bytes(row.size, row.peaks)

    def root_at(self, size: int) -> bytes | None:
        """Return the root stored when the log had `size` entries; None when it never had."""
        if size == 0:
            return EMPTY_ROOT
        table = schema.audit_entry
        return self._connection.execute(select(table.c.root).where(table.c.position == size - 1)).scalar()

    def all(self) -> list[AuditEntry]:
        """Return every entry, oldest first."""
        return self._entries()

    def of(self, subject: str) -> list[AuditEntry]:
        """Return the entries about one subject, oldest first."""
        return self._entries(schema.audit_entry.c.subject == subject)

    def links(self) -> Iterator[Link]:
        """Yield every entry as stored, unchecked, for `verify_chain`."""
        table = schema.audit_entry
        for row in self._connection.execute(select(table.c.position, table.c.raw, table.c.root).order_by(table.c.position)):
            yield Link(row.position, row.raw, row.root)

    def prove(self, index: int, size: int | None = None) -> tuple[bytes, ...]:
        """Return the inclusion proof of an entry in the log of `size` entries (a checkpoint's; None: of now)."""
        return inclusion_proof(self._leaves(size), index)

    def prove_consistency(self, old_size: int, size: int | None = None) -> tuple[bytes, ...]:
        """Return the proof that the log of `old_size` entries is a prefix of the one of `size`."""
        return consistency_proof(self._leaves(size), old_size)

    def notes(self) -> list[str]:
        """Return the signed checkpoints that the database keeps, smallest first."""
        rows = self._connection.execute(select(schema.checkpoint.c.note).order_by(schema.checkpoint.c.size))
        return [row.note for row in rows]

    def keep_note(self, size: int, note: str) -> None:
        """Keep a signed checkpoint; the first one of a size stays."""
        table = schema.checkpoint
        if not self._connection.execute(select(table.c.size).where(table.c.size == size)).first():
            self._connection.execute(insert(table), {"size": size, "note": note})

    def _entries(self, *conditions: Any) -> list[AuditEntry]:  # noqa: ANN401
        table = schema.audit_entry
        rows = self._connection.execute(select(table.c.raw).where(*conditions).order_by(table.c.position))
        return [AuditEntry.from_bytes(row.raw) for row in rows]

    def _leaves(self, size: int | None) -> list[bytes]:
        table = schema.audit_entry
        rows = self._connection.execute(select(table.c.leaf).order_by(table.c.position).limit(size))
        return [row.leaf for row in rows]

    def _move_head(self, old: Frontier, new: Frontier) -> None:
        table, values = schema.audit_head, {"size": new.size, "peaks": new.to_bytes()}
        if self._connection.execute(update(table).where(table.c.log == _LOG, table.c.size == old.size).values(values)).rowcount:
            return
        if old.size:
            raise StoreUnavailable(f"the audit log grew past {old.size} while an entry was appended; run the operation again")
        self._connection.execute(insert(table), {"log": _LOG} | values)
