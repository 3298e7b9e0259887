"""Outcomes, one record per request and arm: the newest as rows, the rest sealed into Parquet segments.

A thousand rows become one file, which never changes again; SQL keeps its place and digest, in the same transaction. A crash
leaves at worst a file that no row names, and the next seal of the same rows overwrites it with the same bytes.
"""

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import Connection, delete, func, insert, select

from specops.core.outcome import Outcome
from specops.errors import LineageBroken
from specops.store import mapping, schema

SEAL_AT = 1_000  # rows: a file of some 40 kB, and at most this many JSON rows to parse in a read


class Outcomes:
    """The outcomes of each rollout (or offline evaluation: any stable id will do), in the order of their arrival."""

    def __init__(self, connection: Connection, folder: Path) -> None:
        self._connection = connection
        self._folder = folder

    def append(self, rollout_id: str, outcomes: Iterable[Outcome]) -> None:
        """Append outcomes, and seal the tail once it fills a segment."""
        sealed, tail = self._extent(rollout_id)
        rows = [
            {"rollout_id": rollout_id, "position": sealed + tail + number, "record": outcome.to_record()}
            for number, outcome in enumerate(outcomes)
        ]
        if rows:
            self._connection.execute(insert(schema.outcome_tail), rows)
        if tail + len(rows) >= SEAL_AT:
            self.seal(rollout_id)

    def read(self, rollout_id: str) -> list[Outcome]:
        """Return all outcomes, sealed ones first, each segment checked against its digest.

        Raises:
            LineageBroken: a segment is missing or was changed.
        """
        table = schema.outcome_segment
        segments = self._connection.execute(select(table).where(table.c.rollout_id == rollout_id).order_by(table.c.first))
        sealed = [outcome for segment in segments for outcome in self._load(segment)]
        return sealed + [outcome for _, outcome in self._tail(rollout_id)]

    def count(self, rollout_id: str) -> int:
        """Return the number of outcomes, without reading any."""
        return sum(self._extent(rollout_id))

    def seal(self, rollout_id: str) -> Path | None:
        """Write the tail as one Parquet segment and return its path; None when there is no tail."""
        tail = self._tail(rollout_id)
        if not tail:
            return None
        first = tail[0][0]
        raw = _parquet([outcome for _, outcome in tail])
        digest = hashlib.sha256(raw).hexdigest()
        name = f"rollout={quote(rollout_id, safe='')}/{first:012d}-{len(tail)}-{digest[:12]}.parquet"
        _write(self._folder / name, raw)
        row = {"rollout_id": rollout_id, "first": first, "count": len(tail), "path": name, "sha256": digest}
        self._connection.execute(insert(schema.outcome_segment), row)
        self._connection.execute(delete(schema.outcome_tail).where(schema.outcome_tail.c.rollout_id == rollout_id))
        return self._folder / name

    def _extent(self, rollout_id: str) -> tuple[int, int]:
        """Return the numbers of sealed and of unsealed outcomes."""
        segment, tail = schema.outcome_segment, schema.outcome_tail
        sealed = select(func.coalesce(func.sum(segment.c.count), 0)).where(segment.c.rollout_id == rollout_id)
        open_rows = select(func.count()).select_from(tail).where(tail.c.rollout_id == rollout_id)
        return int(self._connection.execute(sealed).scalar_one()), int(self._connection.execute(open_rows).scalar_one())

    def _tail(self, rollout_id: str) -> list[tuple[int, Outcome]]:
        table = schema.outcome_tail
        rows = self._connection.execute(select(table).where(table.c.rollout_id == rollout_id).order_by(table.c.position))
        return [(row.position, Outcome.from_record(row.record)) for row in rows]

    def _load(self, segment: Any) -> list[Outcome]:  # noqa: ANN401  # a row
        import pyarrow as pa  # noqa: PLC0415
        import pyarrow.parquet as pq  # noqa: PLC0415

        path = self._folder / segment.path
        try:
            raw = path.read_bytes()
        except OSError as exc:
            raise LineageBroken(f"segment {path} with {segment.count} outcomes is missing; restore it from a backup") from exc
        if (got := hashlib.sha256(raw).hexdigest()) != segment.sha256:
            raise LineageBroken(f"segment {path} was changed: sha256 {got[:16]}, expected {segment.sha256[:16]}; restore it")
        return mapping.outcomes_from_table(pq.read_table(pa.BufferReader(raw)))


def _parquet(outcomes: list[Outcome]) -> bytes:
    import pyarrow as pa  # noqa: PLC0415  # 0.3 s to import; most commands never seal
    import pyarrow.parquet as pq  # noqa: PLC0415

    sink = pa.BufferOutputStream()
    pq.write_table(mapping.outcomes_to_table(outcomes), sink, compression="zstd")
    return bytes(sink.getvalue())


def _write(path: Path, raw: bytes) -> None:
    """Write a whole file or nothing, and make it last before the row that names it is committed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".part")
    with draft.open("wb") as file:
        file.write(raw)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    if os.name == "posix":
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
