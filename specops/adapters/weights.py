"""Weights on disk: from files to an `Artifact`, and back to the question whether they still are what was registered.

Called by `lineage add`, preflight and the quickstart. Nothing is loaded and nothing is executed: checkpoints that need pickle
are refused, safetensors headers are checked before any offset is believed. What the digests mean is `core.release`' business.

Source of the layout: safetensors format description (huggingface/safetensors README, "Format").
"""

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specops.core.release import Artifact, ArtifactKind, FileDigest
from specops.errors import InvalidWeights, LineageBroken

Progress = Callable[[int, int], None]
"""Called with (bytes done, bytes in all)."""

CHUNK_BYTES = 1 << 20  # SHA-256 with SHA-NI gains nothing from larger reads
MAX_HEADER_BYTES = 100_000_000  # the safetensors library's own limit
_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "F4": 4,
    "F6_E2M3": 6, "F6_E3M2": 6, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "I64": 64,
    "U64": 64, "F64": 64, "C64": 64,
}  # fmt: skip
_PICKLE_SUFFIXES = frozenset({".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib"})
_PICKLE_STARTS = tuple(b"\x80" + bytes([protocol]) for protocol in range(2, 6))
_INDEX = ".safetensors.index.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """One tensor of a safetensors file; `begin` and `end` are byte offsets in the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def hash_artifact(
    kind: ArtifactKind,
    name: str,
    folder: Path,
    *,
    files: Sequence[str] | None = None,
    facts: dict[str, Any] | None = None,
    tensors: bool = False,
    progress: Progress | None = None,
) -> Artifact:
    """Hash a folder, or some files of it, into an artifact.

    Args:
        kind: what the files are.
        name: handle for people; no part of the identity.
        folder: where they are. Hidden files and folders are left out.
        files: POSIX paths relative to `folder`; None takes every file.
        facts: what else belongs to the identity (seed, licence, recipe).
        tensors: also record each tensor's SHA-256 as `facts["tensor_sha256"]`: tells "same weights, other file".
        progress: called after each chunk of at most 1 MiB.

    Raises:
        InvalidWeights: nothing there, a path that leaves the folder, a pickle, a broken safetensors file.
    """
    paths = _listed(folder) if files is None else sorted(set(files))
    if not paths:
        raise InvalidWeights(f"{folder} has no files to register; point to the folder that holds them")
    located = [(path, _inside(folder, path)) for path in paths]
    specs = {path: _check_format(file) for path, file in located}
    _check_indexes([file for path, file in located if path.endswith(_INDEX)], {p: spec for p, spec in specs.items() if spec})
    total, done, digests = sum(file.stat().st_size for _, file in located), 0, []
    for path, file in located:
        digests.append(_file_digest(path, file, lambda n, done=done: progress(done + n, total) if progress else None))  # type: ignore[misc]
        done += digests[-1].size
    found = (
        {} if not tensors else {"tensor_sha256": {n: d for p, f in located if specs[p] for n, d in tensor_digests(f).items()}}
    )
    return Artifact(kind=kind, name=name, files=tuple(digests), facts=(facts or {}) | found, location=str(folder))


def verify_artifact(artifact: Artifact, folder: Path, *, progress: Progress | None = None) -> None:
    """Check that a folder still holds what was registered, reading every byte.

    Raises:
        LineageBroken: names the first file that is missing, changed, or a safetensors file that nobody registered.
    """
    total, done = sum(f.size for f in artifact.files), 0
    for want in artifact.files:
        file = folder / want.path
        if not file.is_file():
            raise LineageBroken(f"{want.path} of {artifact.name} is missing in {folder}; restore it or register what is there")
        got = _file_digest(want.path, file, _shifted(progress, done, total))
        if got != want:
            raise LineageBroken(
                f"{want.path} of {artifact.name} is not what was registered: sha256 {got.sha256[:16]} ({got.size} bytes), "
                f"expected {want.sha256[:16]} ({want.size} bytes); restore it or register a new artifact"
            )
        done += want.size
    known = {f.path for f in artifact.files}
    if any(p.endswith(".safetensors") for p in known):
        for path in _listed(folder):
            if path.endswith((".safetensors", _INDEX)) and path not in known:
                raise LineageBroken(f"{path} in {folder} is no part of {artifact.name}; remove it or register a new artifact")


def _listed(folder: Path) -> list[str]:
    """Return every file below a folder, hidden ones left out, as sorted POSIX paths."""
    if not folder.is_dir():
        raise InvalidWeights(f"{folder} is not a folder; expected one that holds the files to register")
    out = []
    for here, folders, names in os.walk(folder):
        folders[:] = [n for n in folders if not n.startswith(".")]
        linked = [n for n in folders if (Path(here) / n).is_symlink()]
        out += [(Path(here) / n).relative_to(folder).as_posix() for n in (*names, *linked) if not n.startswith(".")]
    return sorted(out)


def _inside(folder: Path, path: str) -> Path:
    """Return the real file of a relative path, which must not leave the folder."""
    file, base = (folder / path).resolve(), folder.resolve()
    if not file.is_relative_to(base):
        raise InvalidWeights(f"{path} points out of {folder} to {file}; copy the files (cp -rL) and register the copy")
    if not file.is_file():
        raise InvalidWeights(f"{path} is not a file in {folder}; a linked folder has to be copied (cp -rL)")
    return file


def _file_digest(path: str, file: Path, progress: Callable[[int], None]) -> FileDigest:
    """Hash one file in chunks."""
    hasher, size, buffer = hashlib.sha256(), 0, bytearray(CHUNK_BYTES)
    view = memoryview(buffer)
    with file.open("rb", buffering=0) as stream:
        while count := stream.readinto(buffer):
            hasher.update(view[:count])
            size += count
            progress(size)
    return FileDigest(path=path, size=size, sha256=hasher.hexdigest())


def _shifted(progress: Progress | None, done: int, total: int) -> Callable[[int], None]:
    """Turn one file's byte count into the whole run's."""
    return (lambda count: progress(done + count, total)) if progress else (lambda _: None)


def _check_format(file: Path) -> tuple[Tensor, ...] | None:
    """Refuse pickles; return the tensors of a safetensors file, None for any other file."""
    if file.suffix == ".safetensors":
        return read_header(file)
    with file.open("rb") as stream:
        start = stream.read(2)
    if file.suffix in _PICKLE_SUFFIXES or start in _PICKLE_STARTS:
        raise InvalidWeights(
            f"{file} is a pickle checkpoint, which runs code when it is loaded; convert it to safetensors "
            "(safetensors.torch.save_file) and register that"
        )
    return None


def read_header(file: Path) -> tuple[Tensor, ...]:
    """Read and check a safetensors header; tensors in the order of their bytes.

    Raises:
        InvalidWeights: length out of bounds, not JSON, a tensor out of range, of the wrong size, overlapping, or bytes that
            belong to none.
    """
    size = file.stat().st_size
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if size < 8 or not 2 <= length <= min(MAX_HEADER_BYTES, size - 8):  # noqa: PLR2004
            raise InvalidWeights(
                f"{file} is no safetensors file: its header claims {length} of {size} bytes; get or convert it again"
            )
        raw = stream.read(length)
    try:
        header = json.loads(raw, object_pairs_hook=_unique)
        header.pop("__metadata__", None)
        tensors = sorted((_tensor(n, spec, 8 + length) for n, spec in header.items()), key=lambda t: (t.begin, t.end))
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as exc:
        raise InvalidWeights(f"{file} has a corrupt safetensors header: {exc}; download or convert it again") from exc
    _check_cover(file, tensors, 8 + length, size)
    return tuple(tensors)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build a mapping from JSON pairs; a key twice is an error, since readers disagree on which one counts."""
    out = dict(pairs)
    if len(out) != len(pairs):
        raise ValueError("a key stands there twice")
    return out


def _tensor(name: str, spec: dict[str, Any], start: int) -> Tensor:
    """Check one header entry."""
    dtype, shape, (begin, end) = spec["dtype"], tuple(spec["shape"]), spec["data_offsets"]
    if not all(type(n) is int and n >= 0 for n in (*shape, begin, end)):
        raise ValueError(f"tensor {name!r} has shape {shape} and offsets {begin}, {end}; whole numbers >= 0 expected")
    if dtype not in _BITS or (end - begin) * 8 != math.prod(shape) * _BITS[dtype]:
        raise ValueError(f"tensor {name!r} of type {dtype!r} and shape {shape} does not fill {end - begin} bytes")
    return Tensor(name=name, dtype=dtype, shape=shape, begin=start + begin, end=start + end)


def _check_cover(file: Path, tensors: Iterable[Tensor], start: int, size: int) -> None:
    """Check that the tensors fill the data exactly: no overlap, no gap, nothing beyond the end."""
    at = start
    for tensor in tensors:
        if tensor.begin != at:
            what = "overlaps the one before it" if tensor.begin < at else "leaves unused bytes before it"
            raise InvalidWeights(
                f"{file}: tensor {tensor.name!r} {what} (byte {tensor.begin}, expected {at}); convert it again"
            )
        at = tensor.end
    if at != size:
        raise InvalidWeights(
            f"{file}: the tensors end at byte {at}, the file has {size} bytes; it was cut or padded, get it again"
        )


def _check_indexes(indexes: Iterable[Path], specs: dict[str, tuple[Tensor, ...]]) -> None:
    """Check that each index of shards names each tensor in the shard that has it."""
    for index in indexes:
        try:
            weight_map = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
            claimed = {(str(shard), str(tensor)) for tensor, shard in weight_map.items()}
        except (AttributeError, KeyError, TypeError, ValueError) as exc:
            raise InvalidWeights(f"{index} is not an index of shards: {exc!r}; download it again") from exc
        actual = {(path, tensor.name) for path, spec in specs.items() for tensor in spec}
        if absent := sorted(claimed - actual):
            raise InvalidWeights(
                f"{index.name} places {absent[0][1]!r} in {absent[0][0]}, which does not have it; download both again"
            )


def tensor_digests(file: Path) -> dict[str, str]:
    """Return each tensor's SHA-256 over its type, shape and bytes; equal tensors in other files have equal digests.

    Raises:
        InvalidWeights: the header is not sound.
    """
    out = {}
    tensors = read_header(file)
    with file.open("rb") as stream:
        for tensor in tensors:
            hasher = hashlib.sha256(f"{tensor.dtype}{list(tensor.shape)}".encode())
            stream.seek(tensor.begin)
            for at in range(tensor.begin, tensor.end, CHUNK_BYTES):
                hasher.update(stream.read(min(CHUNK_BYTES, tensor.end - at)))
            out[tensor.name] = hasher.hexdigest()
    return out
