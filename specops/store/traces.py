"""Traces, one Parquet file each, in a folder of their own that can be erased: they hold token ids, and ids are content.

A row is a round; what belongs to the whole request is JSON in the file's metadata, so a listing reads footers only. A file is
written beside its name and renamed, so a crash leaves no half of one, and it is never changed again. Its name has the time of
arrival and a hash of the request id: a client chooses the id, so it must not choose a path. Each file carries a digest of its
trace; one that does not match is named in an error and stops no other from being read. The folder has a size limit, and a
write beyond it is refused. Called by wiring, for the engine and `specops trace`.
"""

import contextlib
import hashlib
import json
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specops.core.trace import Round, Trace
from specops.errors import InvalidInput, InvalidRecord, StoreUnavailable

if TYPE_CHECKING:
    import pyarrow as pa

MOST_BYTES = 1 << 30  # of a folder, unless it is opened with another limit: some 100,000 short requests
SUFFIX = ".parquet"
_TIME = "%Y%m%dT%H%M%S.%fZ"
_HEADER, _DIGEST = b"specops.trace", b"specops.sha256"
_FLOATS = ("draft_probs", "target_probs", "accept_probs", "draft_entropies_nats", "target_entropies_nats", "coins", "stage_s")
_WHOLE = ("drafted", "emitted")


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceLine:
    """What a listing says of one file.

    Attributes:
        path: the file.
        at: when the request arrived, UTC; from the file's name, so it is known of a broken file too.
        request_id: None where the file cannot be read.
        rounds, drafted, accepted, emitted: counts; `emitted` includes the prefill's token.
        ended: what ended the answer, None if it was still running.
        wrong: why the file cannot be read; None if it can.
    """

    path: Path
    at: datetime
    request_id: str | None = None
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    emitted: int = 0
    ended: str | None = None
    wrong: str | None = None


class TraceFolder:
    """The traces in one folder; it is made at the first write. Several processes may write, read and erase at once."""

    def __init__(self, folder: Path, *, most_bytes: int = MOST_BYTES) -> None:
        self.folder, self.most_bytes = folder, most_bytes
        self._used: int | None = None  # as counted here; counted anew before a write is refused
        self._lock = threading.Lock()

    def write(self, trace: Trace) -> Path:
        """Write a trace and return its file.

        Raises:
            StoreUnavailable: the folder is full, or the disk does not take it.
        """
        raw = _parquet(trace)
        with self._lock:
            self._make_room(len(raw))
            path = self.folder / f"{trace.at.astimezone(UTC).strftime(_TIME)}-{_key(trace.request_id)}{SUFFIX}"
            try:
                _write(path, raw)
            except OSError as exc:
                raise StoreUnavailable(f"cannot write trace {path}: {exc.strerror or exc}; check disk and rights") from exc
            self._used = (self._used or 0) + len(raw)
        return path

    def read(self, request_id: str) -> Trace:
        """Return the trace of a request, the newest if the id was used more than once.

        Raises:
            InvalidInput: there is none.
            InvalidRecord: its file is broken.
        """
        paths = self._paths(request_id)
        if not paths:
            raise InvalidInput(f"no trace of {request_id!r} in {self.folder}; specops trace list shows what there is")
        return read_trace(paths[0])

    def lines(
        self, *, since: datetime | None = None, before: datetime | None = None, last: int | None = None
    ) -> list[TraceLine]:
        """Return a line for each file, newest first; a broken file's line says what is wrong with it.

        Args:
            since: only requests that arrived from then on.
            before: only requests that arrived before.
            last: at most so many.
        """
        inside = [
            (at, path) for at, path in self._files() if (since is None or at >= since) and (before is None or at < before)
        ]
        return [_line(at, path) for at, path in inside[:last]]

    def read_all(self, *, since: datetime | None = None, before: datetime | None = None) -> Iterator[Trace | TraceLine]:
        """Yield every trace, newest first, and in the place of one that cannot be read its line."""
        for line in self.lines(since=since, before=before):
            try:
                yield read_trace(line.path)
            except InvalidRecord as exc:
                yield TraceLine(path=line.path, at=line.at, request_id=line.request_id, wrong=str(exc))
            except FileNotFoundError:  # erased since it was listed
                continue

    def erase(self, request_id: str | None = None, *, before: datetime | None = None) -> int:
        """Remove the traces of a request, or of all that arrived before a time; return how many there were.

        Raises:
            InvalidInput: neither is given, or both.
        """
        if (request_id is None) == (before is None):
            raise InvalidInput("erase takes a request id or a time, one of them; name what is to go")
        if request_id is not None:
            paths = self._paths(request_id)
        else:
            paths = [path for at, path in self._files() if before is not None and at < before]
        for path in paths:
            path.unlink(missing_ok=True)
        with self._lock:
            self._used = None
        return len(paths)

    def _make_room(self, size: int) -> None:
        if self._used is None or self._used + size > self.most_bytes:
            self._used = sum(_size(path) for _, path in self._files())
        if self._used + size > self.most_bytes:
            used = f"{self._used} of {self.most_bytes} bytes are used, the trace needs {size}"
            raise StoreUnavailable(f"trace folder {self.folder} is full: {used}; erase old traces to make room")

    def _paths(self, request_id: str) -> list[Path]:
        return sorted(self.folder.glob(f"*-{_key(request_id)}{SUFFIX}"), reverse=True)

    def _files(self) -> list[tuple[datetime, Path]]:
        """Return every trace's time and file, newest first; other files are not ours."""
        found = []
        for path in self.folder.glob(f"*{SUFFIX}"):
            with contextlib.suppress(ValueError):
                found.append((datetime.strptime(path.name.partition("-")[0], _TIME).replace(tzinfo=UTC), path))
        return sorted(found, reverse=True)


def read_trace(path: Path) -> Trace:
    """Read one file and check it against its digest.

    Raises:
        InvalidRecord: it is no trace, or was changed.
        FileNotFoundError: it is gone.
    """
    import pyarrow.parquet as pq  # noqa: PLC0415  # 0.3 s to import

    raw = path.read_bytes()
    try:
        import pyarrow as pa  # noqa: PLC0415

        table = pq.read_table(pa.BufferReader(raw), page_checksum_verification=True)
        header, digest = _header(table.schema.metadata)
        record = header["trace"] | {"rounds": table.to_pylist()}
        trace = Trace.from_record(record)
    except (OSError, ValueError, KeyError, TypeError, InvalidRecord) as exc:
        raise _broken(path, exc) from exc
    if _digest(trace) != digest:
        raise _broken(path, f"its content has digest {_digest(trace)}, it was written with {digest}")
    return trace


def _broken(path: Path, why: object) -> InvalidRecord:
    text = " ".join(str(why).split())
    return InvalidRecord(f"trace file {path} cannot be read: {text}; restore it, or remove it: the others are not affected")


def _line(at: datetime, path: Path) -> TraceLine:
    import pyarrow.parquet as pq  # noqa: PLC0415

    try:
        header, _ = _header(pq.read_metadata(path).metadata)
        whole = header["trace"]
        return TraceLine(path=path, at=at, request_id=whole["request_id"], ended=whole["ended"], **header["counts"])
    except (OSError, ValueError, KeyError, TypeError) as exc:
        return TraceLine(path=path, at=at, wrong=str(_broken(path, exc)))


def _header(metadata: dict[bytes, bytes] | None) -> tuple[dict[str, Any], str]:
    if metadata is None or _HEADER not in metadata:
        raise ValueError("it has no trace in its metadata")
    header: dict[str, Any] = json.loads(metadata[_HEADER])
    return header, metadata[_DIGEST].decode()


def _parquet(trace: Trace) -> bytes:
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    record = trace.to_record()
    rounds = record.pop("rounds")
    counts = {
        "rounds": len(rounds), "drafted": trace.drafted, "accepted": trace.accepted, "emitted": len(trace.emitted)
    }  # fmt: skip
    header = json.dumps({"trace": record, "counts": counts}).encode()
    schema = _schema().with_metadata({_HEADER: header, _DIGEST: _digest(trace).encode()})
    sink = pa.BufferOutputStream()
    table = pa.Table.from_pylist(rounds, schema=schema)
    pq.write_table(table, sink, compression="zstd", write_page_checksum=True)
    return bytes(sink.getvalue())


def _schema() -> "pa.Schema":
    """Return a round's columns; their names are the fields of `Round`."""
    import pyarrow as pa  # noqa: PLC0415

    state = pa.struct({"committed": pa.int64(), "target_cached": pa.int64(), "draft_cached": pa.int64(), "sha256": pa.string()})
    alternative = pa.struct({"token": pa.int64(), "target_prob": pa.float64(), "draft_prob": pa.float64()})
    kinds = dict.fromkeys(_FLOATS, pa.list_(pa.float64())) | dict.fromkeys(_WHOLE, pa.list_(pa.int64())) | {
        "is_one_hot": pa.bool_(), "alternatives": pa.list_(pa.list_(alternative)), "last_coin": pa.float64(),
        "last_prob": pa.float64(), "accepted": pa.int64(), "residual_mass": pa.float64(),
        "stage_bytes": pa.list_(pa.int64()), "before": state, "after": state,
    }  # fmt: skip
    return pa.schema([(name, kinds.get(name, pa.string())) for name in Round.__dataclass_fields__])


def _digest(trace: Trace) -> str:
    """Return the SHA-256 of the trace's JSON with sorted keys; floats are written so that they read back as they were."""
    return hashlib.sha256(json.dumps(trace.to_record(), sort_keys=True).encode()).hexdigest()


def _key(request_id: str) -> str:
    return hashlib.sha256(request_id.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _write(path: Path, raw: bytes) -> None:
    """Write a whole file or nothing; the folder is for its owner only."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with draft.open("wb") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
