"""Weights on disk, read without torch: is the header sound, what is the digest, is it a format that may be opened at all.

A safetensors file is 8 bytes of header length (little endian), a JSON header, then the tensors without holes. Whoever loads a
file trusts that header, so it is checked first; pickles run code when opened and are refused. Called by preflight and by the
engine at start. Source: the safetensors format description (huggingface/safetensors README, "Format").
"""

import hashlib
import json
import math
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeGuard

from specops.core.canonical import digest_of
from specops.core.release import FileDigest
from specops.errors import InvalidWeights

MAX_HEADER_BYTES = 100_000_000  # the limit of the safetensors library itself
BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "F64": 64, "I64": 64, "U64": 64, "C64": 64,
}  # fmt: skip
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
CONTENT = (".json", ".safetensors", ".model", ".txt", ".jinja")
_CHUNK = 1 << 20


def read_header(path: Path) -> dict[str, dict[str, Any]]:
    """Return the checked header of a safetensors file: tensor name to dtype, shape and offsets.

    Raises:
        InvalidWeights: no such file, a length beyond the file, broken JSON, an offset out of range, an overlap or a hole.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            raw = _header_bytes(path, file.read(8), size, file)
    except OSError as exc:
        raise InvalidWeights(f"cannot read weights {path}: {exc.strerror or exc}; check the path") from exc
    header = _parse(path, raw)
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict):
        raise _bad(path, f"__metadata__ must be an object, got {type(metadata).__name__}")
    _check_layout(path, header, data_bytes=size - 8 - len(raw))
    return header


def _bad(path: Path, why: str) -> InvalidWeights:
    return InvalidWeights(f"{path.name} is not a sound safetensors file: {why}; download or export it again ({path.parent})")


def _header_bytes(path: Path, prefix: bytes, size: int, file: Any) -> bytes:  # noqa: ANN401  # an open binary file
    if len(prefix) < 8:  # noqa: PLR2004
        raise _bad(path, f"{size} bytes, too short for a header length")
    (length,) = struct.unpack("<Q", prefix)
    if not 2 <= length <= min(MAX_HEADER_BYTES, size - 8):  # noqa: PLR2004
        raise _bad(path, f"header length says {length} bytes, file has {size - 8} after it and the limit is {MAX_HEADER_BYTES}")
    raw: bytes = file.read(length)
    return raw


def _parse(path: Path, raw: bytes) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        if len(names) != len(set(names)):
            raise _bad(path, "a name stands twice in the header")
        return dict(pairs)

    try:
        header = json.loads(raw.decode("utf-8"), object_pairs_hook=unique)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as exc:
        raise _bad(path, f"header is not JSON ({exc})") from exc
    if not isinstance(header, dict):
        raise _bad(path, f"header must be an object, got {type(header).__name__}")
    return header


def _check_layout(path: Path, header: dict[str, Any], *, data_bytes: int) -> None:
    spans = sorted(_span(path, name, entry) for name, entry in header.items())
    end = 0
    for begin, stop, name in spans:
        if begin != end:
            what = "overlaps the tensor before it" if begin < end else "leaves a hole before it"
            raise _bad(path, f"tensor {name} at {begin}..{stop} {what} (expected to begin at {end})")
        end = stop
    if end != data_bytes:
        raise _bad(path, f"tensors end at byte {end}, data has {data_bytes} bytes")


def _span(path: Path, name: str, entry: object) -> tuple[int, int, str]:
    if not isinstance(entry, dict):
        raise _bad(path, f"entry {name} must be an object")
    dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if dtype not in BITS:
        raise _bad(path, f"tensor {name} has unknown dtype {dtype!r}")
    if not _is_naturals(shape) or not _is_naturals(offsets) or len(offsets) != 2:  # noqa: PLR2004
        raise _bad(path, f"tensor {name} has shape {shape!r} and offsets {offsets!r}")
    begin, stop = offsets
    needed_bits = math.prod(shape) * BITS[dtype]
    if (stop - begin) * 8 != needed_bits:
        raise _bad(path, f"tensor {name} {dtype}{shape} needs {needed_bits // 8} bytes, offsets give {stop - begin}")
    return begin, stop, name


def _is_naturals(value: Any) -> TypeGuard[list[int]]:  # noqa: ANN401
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)


def weight_files(folder: Path) -> tuple[Path, ...]:
    """Return the safetensors files of a checkpoint: `model.safetensors`, or the shards that its index names.

    Raises:
        InvalidWeights: no folder, no safetensors (a pickle is refused), or a shard that is missing.
    """
    if not folder.is_dir():
        raise InvalidWeights(f"no checkpoint folder {folder}; check the path")
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        return _shards(index)
    found = tuple(sorted(folder.glob("*.safetensors")))
    if found:
        return found
    pickles = sorted(path.name for path in folder.iterdir() if path.suffix in PICKLES)
    if pickles:
        raise InvalidWeights(
            f"{folder} has only pickle weights ({', '.join(pickles[:3])}); opening a pickle can run any code, "
            "so it is refused; convert it to safetensors in a place you trust"
        )
    raise InvalidWeights(f"{folder} has no weights; expected model.safetensors")


def _shards(index: Path) -> tuple[Path, ...]:
    try:
        names = sorted(set(json.loads(index.read_text("utf-8"))["weight_map"].values()))
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise InvalidWeights(f"{index} is not an index of shards: {exc!r}; export the checkpoint again") from exc
    paths = tuple(index.parent / str(name) for name in names)
    missing = [path.name for path in paths if path.parent != index.parent or not path.is_file()]
    if missing or not paths:
        raise InvalidWeights(
            f"{index.parent} lacks {len(missing)} of {len(paths)} shards ({', '.join(missing[:3])}); copy them"
        )
    return paths


def file_digest(path: Path) -> FileDigest:
    """Return name, size and SHA-256 of one file, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return FileDigest(path=path.name, size=path.stat().st_size, sha256=digest.hexdigest())


def weights_digest(folder: Path, *, known: Iterable[FileDigest] = ()) -> str:
    """Return the identity of a checkpoint's weights: the file's SHA-256, or for shards the digest over names and SHA-256s.

    Args:
        folder: the checkpoint.
        known: digests already computed, so that no file is read twice.
    """
    at_hand = {file.path: file for file in known}
    files = [at_hand.get(path.name) or file_digest(path) for path in weight_files(folder)]
    if len(files) == 1:
        return files[0].sha256
    return digest_of([{"path": file.path, "size": file.size, "sha256": file.sha256} for file in files])


def content_files(folder: Path) -> tuple[FileDigest, ...]:
    """Return digests of every file of a checkpoint folder that can change what it says, sorted by name."""
    return tuple(file_digest(path) for path in sorted(folder.iterdir()) if path.is_file() and path.suffix in CONTENT)
