"""What was hashed before: a hint that lets an unchanged file be taken as it was, from its metadata alone.

Called by `adapters.weights`. The key is path, size, inode, time of the last write and of the last change to the inode; any
difference means a new hash. Each file is kept as soon as it is hashed, so an interrupted run goes on where it stopped. The
cache proves nothing: whoever must be sure hashes everything again (`full`), and a cache that cannot be read is an empty one.

An entry is kept only when the last write lies well before the hash began: a second write in the same clock tick would not be
seen (the racy-clean problem of version control, git's Documentation/technical/racy-git).
"""

import contextlib
import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Self

from specops.adapters.file_tree import Located
from specops.adapters.hashing import Hashed
from specops.core.release import FileDigest, TensorDigest

QUIET_NS = 2_000_000_000  # FAT and some network file systems keep times in steps of 2 s
_TABLE = (
    "CREATE TABLE IF NOT EXISTS hashed_1 (file TEXT PRIMARY KEY, size INTEGER, mtime_ns INTEGER, ctime_ns INTEGER, "
    "inode TEXT, sha256 TEXT, blake3 TEXT, tensors TEXT)"
)
_BATCH = 500  # parameters in one query; SQLite allowed 999 before 3.32


class HashCache:
    """Digests by file; a context that closes its database. With `full` nothing is believed, but what is hashed is kept.

    Args:
        path: a SQLite file, made where it is missing.
        full: find nothing.
        clock_ns: current time in ns since the epoch.
    """

    def __init__(self, path: Path, *, full: bool = False, clock_ns: Callable[[], int] = time.time_ns) -> None:
        self._full, self._clock_ns = full, clock_ns
        self._lock = threading.Lock()
        self._base: sqlite3.Connection | None = None
        with contextlib.suppress(sqlite3.Error, OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            base = sqlite3.connect(path, timeout=2.0, isolation_level=None, check_same_thread=False)
            try:
                base.execute("PRAGMA journal_mode=WAL")
                base.execute("PRAGMA synchronous=OFF")  # a lost hint costs time, nothing else
                base.execute(_TABLE)
            except sqlite3.Error:
                base.close()
                raise
            self._base = base

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._base is not None:
            self._base.close()

    def now_ns(self) -> int:
        """Return the time; take it before a hash begins and give it to `keep`."""
        return self._clock_ns()

    def find(self, files: Iterable[Located]) -> dict[str, Hashed]:
        """Return what is known of these files in their present state, by their path in the folder."""
        if self._base is None or self._full:
            return {}
        wanted = {str(located.file): located for located in files}
        try:
            return {h.file.path: h for row in self._rows(list(wanted)) if (h := _hashed(row, wanted[row[0]])) is not None}
        except (sqlite3.Error, ValueError, TypeError, KeyError):
            return {}

    def keep(self, located: Located, hashed: Hashed, *, began_ns: int) -> None:
        """Remember a file, unless it was written shortly before the hash began; several threads may call this."""
        stamp = located.stamp
        if self._base is None or max(stamp.mtime_ns, stamp.ctime_ns) > began_ns - QUIET_NS:
            return
        file, tensors = hashed.file, [[t.name, t.dtype, t.shape, t.digest] for t in hashed.tensors]
        row = (str(located.file), stamp.size, stamp.mtime_ns, stamp.ctime_ns, str(stamp.inode), file.sha256, file.blake3)
        with self._lock, contextlib.suppress(sqlite3.Error):
            self._base.execute("INSERT OR REPLACE INTO hashed_1 VALUES (?,?,?,?,?,?,?,?)", (*row, json.dumps(tensors)))

    def _rows(self, files: list[str]) -> Iterator[tuple[str, int, int, int, str, str, str, str]]:
        assert self._base is not None
        for at in range(0, len(files), _BATCH):
            batch = files[at : at + _BATCH]
            marks = ",".join("?" * len(batch))
            yield from self._base.execute(f"SELECT * FROM hashed_1 WHERE file IN ({marks})", batch)  # noqa: S608  # only marks


def _hashed(row: tuple[str, int, int, int, str, str, str, str], located: Located) -> Hashed | None:
    """Return a row as what it says, or None where the file is no longer in that state."""
    _, size, mtime_ns, ctime_ns, inode, sha256, blake3, tensors = row
    stamp = located.stamp
    if (size, mtime_ns, ctime_ns, inode) != (stamp.size, stamp.mtime_ns, stamp.ctime_ns, str(stamp.inode)):
        return None
    return Hashed(
        file=FileDigest(path=located.path, size=size, sha256=sha256, blake3=blake3),
        tensors=tuple(
            TensorDigest(file=located.path, name=name, dtype=dtype, shape=tuple(shape), digest=digest)
            for name, dtype, shape, digest in json.loads(tensors)
        ),
    )
