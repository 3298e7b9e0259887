"""Weights on disk: from files to an `Artifact`, and back to the question whether they still are what was registered.

Called by `specops lineage add`, the importers and the quickstart. Every file is refused or hashed before anything is
registered; nothing is loaded and nothing is executed. What the digests mean is `core.release`' business; which files there are,
is `file_tree`'s, what they are, `formats`', reading them, `hashing`'s, what need not be read again, `rescan`'s, and whether
they still are the same, `recheck`'s.
"""

import os
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from specops.adapters.file_tree import Located, locate
from specops.adapters.formats import INDEX, WITH_TENSORS, check_indexes, spans_of
from specops.adapters.hashing import CHUNK_BYTES, Hashed, Progress, hash_file
from specops.adapters.recheck import compare_artifact, verify_artifact
from specops.adapters.rescan import HashCache
from specops.core.release import Artifact, ArtifactKind
from specops.core.safetensors import Tensor
from specops.errors import InvalidWeights

__all__ = ["CHUNK_BYTES", "Progress", "compare_artifact", "hash_artifact", "read_header", "same_tensors", "verify_artifact"]

MAX_WORKERS = 8  # files at once; each may need two threads and 8 MiB


def hash_artifact(
    kind: ArtifactKind,
    name: str,
    folder: Path,
    *,
    files: Sequence[str] | None = None,
    facts: dict[str, Any] | None = None,
    tensors: bool = False,
    progress: Progress | None = None,
    cache: HashCache | None = None,
) -> Artifact:
    """Hash a folder, or some files of it, into an artifact.

    Args:
        kind: what the files are.
        name: handle for people; no part of the identity.
        folder: where they are. Hidden files and folders are left out.
        files: POSIX paths relative to `folder`; None takes every file.
        facts: what else belongs to the identity (seed, licence, recipe).
        tensors: also digest each tensor of safetensors and GGUF files: tells "same weights, other file".
        progress: called after each piece of at most 1 MiB, and once for all files that need no reading.
        cache: what was hashed before; None reads every byte.

    Raises:
        InvalidWeights: nothing there, a path that leaves the folder, a pickle, a broken header or index, or a file that changed
            while it was hashed; the message names the file.
    """
    found = locate(folder, files)
    _check_case(found)
    known = _usable(cache.find(found), tensors) if cache else {}
    spans = {f.path: spans_of(f) for f in found if f.path not in known}
    names = {path: [t.name for t in hashed.tensors] for path, hashed in known.items()}
    names |= {path: [t.name for t in each] for path, each in spans.items()}
    check_indexes(found, {path: each for path, each in names.items() if path.endswith(".safetensors")})
    hashed = _hash_all(found, known, spans, tensors=tensors, progress=progress, cache=cache)
    return Artifact(
        kind=kind,
        name=name,
        files=tuple(h.file for h in hashed),
        facts=dict(facts or {}),
        tensors=tuple(t for h in hashed for t in h.tensors) if tensors else (),
        location=str(folder),
    )


def same_tensors(one: Artifact, other: Artifact) -> bool:
    """Tell whether two artifacts hold the same tensors under the same names, whatever files they lie in.

    False where tensors were not hashed: nothing is known then.
    """
    ours, theirs = (sorted((t.name, t.digest) for t in each.tensors) for each in (one, other))
    return bool(ours) and ours == theirs


def read_header(file: Path) -> tuple[Tensor, ...]:
    """Return the tensors of a safetensors or GGUF file in the order of their bytes.

    Raises:
        InvalidWeights: no such file, or a header that is not sound.
    """
    return spans_of(locate(file.parent, [file.name])[0])


def _check_case(found: Iterable[Located]) -> None:
    """Refuse weights whose names differ only in case: a copy on another system would hold one of them."""
    seen: dict[str, str] = {}
    for path in (f.path for f in found if f.path.endswith((*WITH_TENSORS, INDEX))):
        if (twin := seen.setdefault(path.casefold(), path)) != path:
            raise InvalidWeights(f"{twin} and {path} differ only in case; rename one, other systems would keep one of them")


def _usable(known: dict[str, Hashed], tensors: bool) -> dict[str, Hashed]:
    return {p: h for p, h in known.items() if not tensors or all(t.digest for t in h.tensors)}


def _hash_all(
    found: Sequence[Located],
    known: dict[str, Hashed],
    spans: dict[str, tuple[Tensor, ...]],
    *,
    tensors: bool,
    progress: Progress | None,
    cache: HashCache | None,
) -> list[Hashed]:
    """Hash what is not known yet, several files at once where there are processors for it, in the order of the paths."""
    total = sum(f.stamp.size for f in found)
    count = _Count(total, progress)
    if known:
        count(sum(f.stamp.size for f in found if f.path in known))

    def one(located: Located) -> Hashed:
        if located.path in known:
            return known[located.path]
        began_ns = cache.now_ns() if cache else 0
        hashed = hash_file(located, spans[located.path], tensors=tensors, progress=count)
        if cache:
            cache.keep(located, hashed, began_ns=began_ns)
        return hashed

    workers = max(1, min(MAX_WORKERS, len(spans), _processors()))  # a lane that waits for the other leaves its processor
    if workers == 1:
        return [one(located) for located in found]
    pool = ThreadPoolExecutor(workers, thread_name_prefix="hash")
    try:
        return list(pool.map(one, found))
    finally:
        pool.shutdown(cancel_futures=True)  # after an error or an interrupt the rest is not begun


class _Count:
    """Adds the bytes of several threads and reports them one call after the other."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self._total, self._progress, self._done, self._lock = total, progress, 0, threading.Lock()

    def __call__(self, count: int) -> None:
        if self._progress is not None:
            with self._lock:
                self._done += count
                self._progress(self._done, self._total)


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
