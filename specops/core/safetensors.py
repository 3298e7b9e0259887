"""The header of a safetensors file: read within bounds, and refused unless its tensors fill the file exactly.

The one reader of that header: `adapters.weights` hashes what it says, `engines.weights` checks before anything is loaded.
Whoever loads a file trusts these offsets, so none is believed before it is checked. Reading files is the callers' business;
this module only asks for bytes.

Source: the format description of huggingface/safetensors (README, "Format"): 8 bytes of header length, little endian, a JSON
header, then the tensors without holes.
"""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from specops.errors import InvalidWeights

MAX_HEADER_BYTES = 100_000_000  # the limit of the safetensors library itself
MAX_ITEMS = 4_000_000  # JSON values in a header: some 250 000 tensors; the largest checkpoints have 100 000 in all their shards
MAX_RANK = 32  # numpy's limit before 2.0; no model comes near
MAX_NUMBER = 2**63  # offsets and dimensions are 64 bit in every reader
BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "F4": 4,
    "F6_E2M3": 6, "F6_E3M2": 6, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "I64": 64,
    "U64": 64, "F64": 64, "C64": 64,
}  # fmt: skip
"""Bits of one value of each type."""

Read = Callable[[int], bytes]
"""Return the next n bytes, fewer at the end: the `read` of a file opened for reading bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """One tensor of a file; `begin` and `end` are byte offsets in the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """A sound header: tensors in the order of their bytes, the file's own metadata, and where the tensors' bytes begin."""

    tensors: tuple[Tensor, ...]
    start: int
    metadata: dict[str, str] = field(default_factory=dict)


def parse_safetensors(read: Read, *, size: int, where: str) -> Header:
    """Read and check the header of a safetensors file.

    Args:
        read: called for 8 bytes, then once for the header; never for more than `MAX_HEADER_BYTES`.
        size: bytes of the whole file.
        where: what the errors call the file.

    Raises:
        InvalidWeights: a length beyond the file or the limit, broken JSON, a name twice, a tensor of the wrong size, out of
            range, overlapping another, or bytes that belong to none.
    """
    bad = _Refusal(where)
    prefix = read(8)
    if len(prefix) < 8:  # noqa: PLR2004  # the bytes of the length
        raise bad(f"{size} bytes, too short for a header length")
    length = int.from_bytes(prefix, "little")
    if not 2 <= length <= min(MAX_HEADER_BYTES, size - 8):  # noqa: PLR2004  # "{}"
        raise bad(f"header length says {length} bytes, file has {size - 8} after it and the limit is {MAX_HEADER_BYTES}")
    raw = read(length)
    if len(raw) != length:
        raise bad(f"the header ends after {len(raw)} of {length} bytes")
    header = _object(bad, raw)
    metadata = _metadata(bad, header.pop("__metadata__", {}))
    start = 8 + length
    tensors = sorted((_tensor(bad, name, entry, start) for name, entry in header.items()), key=lambda t: (t.begin, t.end))
    _check_cover(bad, tensors, start, size)
    return Header(tensors=tuple(tensors), start=start, metadata=metadata)


def is_text(name: str) -> bool:
    """Tell whether a name can be stored and shown everywhere: no control characters, zero bytes or lone surrogates."""
    return name.isprintable()


def shown(value: object, limit: int = 80) -> str:
    """Return a value for an error message, cut: a hostile file shall not write the log."""
    text = repr(value) if not isinstance(value, list | dict) else f"{type(value).__name__} of {len(value)}"
    return text if len(text) <= limit else f"{text[:limit]}..."


class _Refusal:
    """Makes the errors of one file."""

    def __init__(self, where: str) -> None:
        self._where = where

    def __call__(self, why: str) -> InvalidWeights:
        return InvalidWeights(f"{self._where} is not a sound safetensors file: {why}; download or export it again")


def _object(bad: _Refusal, raw: bytes) -> dict[str, Any]:
    """Parse the header's JSON; memory is bounded before anything is built from it."""
    items = sum(raw.count(mark) for mark in (b",", b":", b"[", b"{"))
    if items > MAX_ITEMS:
        raise bad(f"the header has about {items} values, the limit is {MAX_ITEMS}")

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        out = dict(pairs)
        if len(out) != len(pairs):  # readers disagree on which of the two counts
            raise bad("a name stands twice in the header")
        return out

    try:
        header = json.loads(raw.decode("utf-8"), object_pairs_hook=unique)
    except (ValueError, RecursionError) as exc:
        raise bad(f"header is not JSON ({exc})") from exc
    if not isinstance(header, dict):
        raise bad(f"header must be an object, got {type(header).__name__}")
    return header


def _metadata(bad: _Refusal, value: object) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
        raise bad("__metadata__ must be an object of texts")
    return value


def _tensor(bad: _Refusal, name: str, entry: object, start: int) -> Tensor:
    if not is_text(name):
        raise bad(f"a tensor's name is no text: {shown(name)}")
    if not isinstance(entry, dict):
        raise bad(f"entry {shown(name)} must be an object")
    dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in BITS:
        raise bad(f"tensor {shown(name)} has unknown dtype {shown(dtype)}")
    if not _is_naturals(shape) or not _is_naturals(offsets) or len(offsets) != 2:  # noqa: PLR2004  # begin and end
        raise bad(
            f"tensor {shown(name)} has shape {_numbers(shape)} and offsets {_numbers(offsets)}; "
            f"at most {MAX_RANK} whole numbers below 2**63 and two offsets expected"
        )
    begin, end = offsets
    bits = math.prod(shape) * BITS[dtype]
    if (end - begin) * 8 != bits:
        raise bad(f"tensor {shown(name)} {dtype}{shape} needs {bits // 8} bytes, offsets give {end - begin}")
    return Tensor(name=name, dtype=dtype, shape=tuple(shape), begin=start + begin, end=start + end)


def _is_naturals(value: object) -> TypeGuard[list[int]]:
    few = isinstance(value, list) and len(value) <= MAX_RANK
    return few and all(type(n) is int and 0 <= n < MAX_NUMBER for n in value)  # type: ignore[attr-defined]  # a list


def _numbers(value: object) -> str:
    """Show a short list whole, anything else cut."""
    short = isinstance(value, list) and len(value) <= 8 and all(isinstance(n, int | float) for n in value)  # noqa: PLR2004
    return ", ".join(shown(n, 24) for n in value).join("[]") if short else shown(value)  # type: ignore[attr-defined]  # a list


def _check_cover(bad: _Refusal, tensors: list[Tensor], start: int, size: int) -> None:
    """Check that the tensors fill the data exactly: no overlap, no hole, nothing beyond the end."""
    at = start
    for tensor in tensors:
        if tensor.begin != at:
            what = "overlaps the tensor before it" if tensor.begin < at else "leaves a hole before it"
            raise bad(
                f"tensor {shown(tensor.name)} at {tensor.begin - start}..{tensor.end - start} {what} "
                f"(expected to begin at {at - start})"
            )
        at = tensor.end
    if at != size:
        raise bad(f"tensors end at byte {at - start}, data has {size - start} bytes")
