"""One read of a file gives SHA-256, BLAKE3, and BLAKE3 of each tensor in it.

Called by `adapters.weights`. Two lanes share each piece: SHA-256 in one thread; reading, BLAKE3 and the tensors in the other.
SHA-256 takes about as long as all the rest, and both libraries release the interpreter lock, so the whole costs the wall time
of SHA-256 alone where two processors are free. Pieces go through a few reused buffers, not through mmap: a file that somebody
shortens under a mapping kills the process, and mapped pages count as memory.

Measured by `tests/benchmarks/hashing.py`.
"""

import hashlib
import itertools
import os
import stat
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from specops.adapters.file_tree import Located, Stamp
from specops.core.release import FileDigest, TensorDigest
from specops.core.safetensors import Tensor
from specops.errors import InvalidWeights

if TYPE_CHECKING:
    from blake3 import blake3 as Blake3  # noqa: N812  # its class is written small

Progress = Callable[[int, int], None]
"""Called with (bytes done, bytes in all)."""

CHUNK_BYTES = 1 << 19  # all buffers together stay in the processor's cache until both lanes have read them: 8 of 1 MiB cost 25%
BUFFERS = 2  # one lane may be this many pieces ahead


@dataclass(frozen=True, slots=True, kw_only=True)
class Hashed:
    """A file and its tensors in the order of their bytes; a tensor's digest is empty where it was not asked for."""

    file: FileDigest
    tensors: tuple[TensorDigest, ...] = ()


def open_regular(located: Located) -> BinaryIO:
    """Open a file that was located before; a pipe put in its place must not block, a link not be followed.

    Raises:
        InvalidWeights: it cannot be opened, or is another file now.
    """
    try:
        number = os.open(located.file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as exc:
        raise InvalidWeights(f"cannot read {located.path}: {exc.strerror}; check the rights and the path") from exc
    status = os.fstat(number)
    if not stat.S_ISREG(status.st_mode) or Stamp.of(status) != located.stamp:
        os.close(number)
        raise _changed(located, status.st_size)
    return os.fdopen(number, "rb", buffering=0)


def hash_file(
    located: Located, spans: Sequence[Tensor] = (), *, tensors: bool = True, progress: Callable[[int], None] | None = None
) -> Hashed:
    """Hash a file.

    Args:
        located: the file, with the stamp it had when `spans` were read.
        spans: its tensors, sorted, without overlap.
        tensors: also hash each tensor.
        progress: called with the bytes of each piece.

    Raises:
        InvalidWeights: it cannot be read, or was written to since it was located.
    """
    from blake3 import blake3  # noqa: PLC0415

    sha, b3 = hashlib.sha256(), blake3()
    each = _Tensors(spans if tensors else ())
    with open_regular(located) as stream:
        try:
            size = _feed(stream, located.stamp.size, sha.update, b3.update, each, progress or (lambda _: None))
            after = os.fstat(stream.fileno())
        except OSError as exc:
            raise InvalidWeights(f"cannot read {located.path}: {exc.strerror}; check the disk") from exc
    if size != located.stamp.size or Stamp.of(after) != located.stamp:
        raise _changed(located, max(size, after.st_size))
    digests = each.finish() if tensors else ("",) * len(spans)
    return Hashed(
        file=FileDigest(path=located.path, size=size, sha256=sha.hexdigest(), blake3=b3.hexdigest()),
        tensors=tuple(
            TensorDigest(file=located.path, name=t.name, dtype=t.dtype, shape=t.shape, digest=digest)
            for t, digest in zip(spans, digests, strict=True)
        ),
    )


def fast_digest(located: Located, *, progress: Callable[[int], None] | None = None) -> str:
    """Return a file's BLAKE3 alone, as hex: for a re-check, at twice the speed.

    Raises:
        InvalidWeights: it cannot be read, or was written to since it was located.
    """
    from blake3 import blake3  # noqa: PLC0415

    b3, buffer, size = blake3(), bytearray(CHUNK_BYTES), 0
    view = memoryview(buffer)
    with open_regular(located) as stream:
        while size <= located.stamp.size and (count := _read(stream, view, located)):
            b3.update(view[:count])
            size += count
            if progress:
                progress(count)
        after = os.fstat(stream.fileno())
    if size != located.stamp.size or Stamp.of(after) != located.stamp:
        raise _changed(located, max(size, after.st_size))
    return b3.hexdigest()


def _read(stream: BinaryIO, view: memoryview, located: Located) -> int:
    try:
        return int(stream.readinto(view))  # type: ignore[attr-defined]  # a raw file has it
    except OSError as exc:
        raise InvalidWeights(f"cannot read {located.path}: {exc.strerror}; check the disk") from exc


class _Tensors:
    """BLAKE3 over type, shape and bytes of each tensor, fed with the whole file piece by piece."""

    def __init__(self, spans: Sequence[Tensor]) -> None:
        self._spans, self._digests, self._at = spans, list[str](), 0
        self._hasher: Blake3 | None = None

    def feed(self, view: memoryview) -> None:
        """Take the next piece of the file."""
        at, stop = self._at, self._at + len(view)
        while len(self._digests) < len(self._spans):
            tensor = self._spans[len(self._digests)]
            if tensor.begin >= stop:
                break
            hasher = self._open(tensor)
            hasher.update(view[max(tensor.begin, at) - at : min(tensor.end, stop) - at])
            if tensor.end > stop:
                break
            self._close(hasher)
        self._at = stop

    def finish(self) -> list[str]:
        """Return the digests; tensors without bytes at the end of the file get theirs now."""
        for tensor in self._spans[len(self._digests) :]:
            self._close(self._open(tensor))
        return self._digests

    def _open(self, tensor: Tensor) -> "Blake3":
        from blake3 import blake3  # noqa: PLC0415

        if self._hasher is None:
            self._hasher = blake3(f"{tensor.dtype}{list(tensor.shape)}".encode())
        return self._hasher

    def _close(self, hasher: "Blake3") -> None:
        self._digests.append(f"b3:{hasher.hexdigest()}")
        self._hasher = None


def _feed(
    stream: BinaryIO,
    expected: int,
    slow: Callable[[memoryview], object],
    fast: Callable[[memoryview], object],
    each: _Tensors,
    progress: Callable[[int], None],
) -> int:
    """Give every piece to both lanes; return how many bytes there were, a few more than expected when the file grows."""
    size = 0
    if expected <= CHUNK_BYTES:
        while size <= expected and (piece := stream.read(CHUNK_BYTES)):
            for take in (slow, fast, each.feed):
                take(memoryview(piece))
            size += len(piece)
            progress(len(piece))
        return size
    views = [memoryview(bytearray(CHUNK_BYTES)) for _ in range(BUFFERS)]
    pending: list[Future[object] | None] = [None] * BUFFERS
    with ThreadPoolExecutor(1, thread_name_prefix="sha256") as lane:
        for slot in itertools.cycle(range(BUFFERS)):
            if (before := pending[slot]) is not None:
                before.result()  # the other lane still reads this buffer
            count = stream.readinto(views[slot])  # type: ignore[attr-defined]  # a raw file has it
            if not count:
                break
            view = views[slot][:count]
            pending[slot] = lane.submit(slow, view)
            fast(view)
            each.feed(view)
            size += count
            progress(count)
            if size > expected:  # it grows, perhaps for ever
                break
    return size


def _changed(located: Located, now: int) -> InvalidWeights:
    return InvalidWeights(
        f"{located.path} was written to while it was hashed ({located.stamp.size} bytes, now {now}); wait until it is complete"
    )
