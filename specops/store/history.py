"""Looking back: the audit entries of a time span, and the outcomes of one request. Read by `control.lineage_time`.

A request id is not indexed: tails are searched as text, sealed segments by their `request_id` column alone, so the time
grows with the number of segments; name the rollout where there are many. A segment that holds the request is checked against
its digest before a word of it is believed.
"""

import hashlib
import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Text, or_, select, type_coerce

from specops.core.audit import AuditEntry
from specops.core.outcome import Outcome
from specops.errors import LineageBroken
from specops.store import mapping, schema

Found = tuple[str, Outcome, dict[str, Any] | None]  # rollout id, outcome, and the sealed segment that holds it


class History:
    """What was, as the database and its segments tell it."""

    def __init__(self, connection: Connection, folder: Path) -> None:
        self._connection = connection
        self._folder = folder

    def entries(self, *sources: str, until: datetime | None = None) -> list[AuditEntry]:
        """Return the audit entries whose tag begins with one of `sources` (`rollout:`), up to a time, oldest first."""
        table = schema.audit_entry
        asked = select(table.c.raw).where(or_(*(table.c.tag.startswith(source, autoescape=True) for source in sources)))
        if until is not None:
            asked = asked.where(table.c.at <= until)
        return [AuditEntry.from_bytes(row.raw) for row in self._connection.execute(asked.order_by(table.c.position))]

    def request(self, request_id: str, rollout_id: str | None = None) -> list[Found]:
        """Return every outcome of a request, of one rollout or of all.

        Raises:
            LineageBroken: a segment is missing, unreadable, or not what was sealed.
        """
        return [*self._in_segments(request_id, rollout_id), *self._in_tails(request_id, rollout_id)]

    def _in_tails(self, request_id: str, rollout_id: str | None) -> Iterator[Found]:
        table = schema.outcome_tail
        named = f'"request_id":{json.dumps(request_id, ensure_ascii=False)}'
        asked = select(table).where(type_coerce(table.c.record, Text).contains(named, autoescape=True))
        if rollout_id is not None:
            asked = asked.where(table.c.rollout_id == rollout_id)
        for row in self._connection.execute(asked.order_by(table.c.rollout_id, table.c.position)):
            outcome = Outcome.from_record(row.record)
            if outcome.request_id == request_id:
                yield row.rollout_id, outcome, None

    def _in_segments(self, request_id: str, rollout_id: str | None) -> Iterator[Found]:
        table = schema.outcome_segment
        asked = select(table) if rollout_id is None else select(table).where(table.c.rollout_id == rollout_id)
        for segment in self._connection.execute(asked.order_by(table.c.rollout_id, table.c.first)):
            path = self._folder / segment.path
            if not _holds(path, request_id):
                continue
            sealed = {"path": segment.path, "sha256": segment.sha256, "outcomes": segment.count}
            for outcome in _load(path, segment.sha256):
                if outcome.request_id == request_id:
                    yield segment.rollout_id, outcome, sealed


def _holds(path: Path, request_id: str) -> bool:
    """Say whether a segment names a request, reading one column."""
    import pyarrow as pa  # noqa: PLC0415  # 0.3 s to import
    import pyarrow.compute as pc  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    try:
        column = pq.read_table(path, columns=["request_id"])["request_id"]
    except (OSError, pa.ArrowException) as exc:
        raise LineageBroken(f"segment {path.name} cannot be read: {exc}; restore it from a backup") from exc
    return bool(pc.any(pc.equal(column, request_id)).as_py())


def _load(path: Path, expected: str) -> list[Outcome]:
    """Read a segment whole, its digest checked."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    raw = path.read_bytes()
    if (got := hashlib.sha256(raw).hexdigest()) != expected:
        raise LineageBroken(f"segment {path.name} was changed: sha256 {got[:16]}, expected {expected[:16]}; restore it")
    return mapping.outcomes_from_table(pq.read_table(pa.BufferReader(raw)))
