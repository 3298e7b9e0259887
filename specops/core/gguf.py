"""The header of a GGUF file: metadata and tensors, read within bounds and refused unless the tensors fill the file.

Called by `adapters.weights` and the GGUF importer. Reading files is the callers' business; this module only asks for bytes, one
after the other. Long arrays (a vocabulary of 200 000 tokens) are not kept: their type, length and SHA-256 are, which tells two
vocabularies apart. What the metadata means is the importer's business; names in it are claims.

Source: the format description of ggml-org/ggml (docs/gguf.md), versions 2 and 3, little endian; block sizes from
`GGML_QUANT_SIZES` in ggml-org/llama.cpp (gguf-py/gguf/constants.py).
"""

import hashlib
import math
import struct
from dataclasses import dataclass, field
from typing import Any

from specops.core.safetensors import Read, Tensor, is_text, shown
from specops.errors import InvalidWeights

MAX_HEADER_BYTES = 64 << 20  # a vocabulary of 262 000 tokens with merges takes 20 MB
MAX_ITEMS = 2_000_000  # texts in all arrays together: bounds the time; a large vocabulary with merges has 800 000
MAX_TENSORS, MAX_KEYS = 250_000, 65_536
MAX_RANK = 4  # GGML_MAX_DIMS
MAX_NAME_BYTES = 65_535  # of a key, by the format description
MAX_TEXT_BYTES = 1 << 20  # of one text; the longest chat templates have 20 kB
MAX_ALIGNMENT = 1 << 20
KEPT = 64  # longest array whose items are kept
PIECE = 1 << 20

BLOCKS = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22), 7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34), 10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110), 12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210), 15: ("Q8_K", 256, 292), 16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98), 19: ("IQ1_S", 256, 50), 20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110), 22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136), 24: ("I8", 1, 1), 25: ("I16", 1, 2), 26: ("I32", 1, 4), 27: ("I64", 1, 8), 28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56), 30: ("BF16", 1, 2), 34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66), 39: ("MXFP4", 32, 17),
    40: ("NVFP4", 64, 36), 41: ("Q1_0", 128, 18),
}  # fmt: skip
"""ggml type: name, values in a block, bytes of a block."""

_SCALARS = {
    0: ("uint8", "<B"), 1: ("int8", "<b"), 2: ("uint16", "<H"), 3: ("int16", "<h"), 4: ("uint32", "<I"), 5: ("int32", "<i"),
    6: ("float32", "<f"), 7: ("bool", "<B"), 10: ("uint64", "<Q"), 11: ("int64", "<q"), 12: ("float64", "<d"),
}  # fmt: skip
_BOOL, _TEXT, _ARRAY = 7, 8, 9
_VERSIONS = (2, 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufHeader:
    """A sound header. `start` is where the tensors' bytes begin; every tensor begins at a multiple of `alignment` from there.

    `metadata` holds JSON-ready values, infinite numbers as text; an array of more than `KEPT` items is
    `{"array": type, "length": n, "sha256": hex of its bytes}`. Shapes are as in the file: the first number is the row's length.
    """

    version: int
    tensors: tuple[Tensor, ...]
    alignment: int
    start: int
    metadata: dict[str, Any] = field(default_factory=dict)


def parse_gguf(read: Read, *, size: int, where: str) -> GgufHeader:
    """Read and check the header of a GGUF file.

    Args:
        read: returns the next n bytes; never asked for more than 1 MiB at once or `MAX_HEADER_BYTES` in all.
        size: bytes of the whole file.
        where: what the errors call the file.

    Raises:
        InvalidWeights: not GGUF, another version or byte order, a count or length beyond the file or the limits, a name twice,
            an unknown type, or a tensor that is misaligned, out of range, of the wrong size, or overlaps another.
    """
    cursor = _Cursor(read, size, where)
    version = _version(cursor)
    tensors, keys = cursor.number("<Q"), cursor.number("<Q")
    if tensors > MAX_TENSORS or keys > MAX_KEYS:
        raise cursor.bad(f"it claims {tensors} tensors and {keys} keys, the limits are {MAX_TENSORS} and {MAX_KEYS}")
    metadata = _metadata(cursor, keys)
    alignment = metadata.get("general.alignment", 32)
    if type(alignment) is not int or not 1 <= alignment <= MAX_ALIGNMENT or alignment & (alignment - 1):
        raise cursor.bad(f"general.alignment is {shown(alignment)}, a power of 2 up to {MAX_ALIGNMENT} expected")
    found = [_tensor(cursor) for _ in range(tensors)]
    if len({t.name for t in found}) != len(found):
        raise cursor.bad("a tensor's name stands twice")
    start = _aligned(cursor.at, alignment)
    placed = sorted(
        (Tensor(name=t.name, dtype=t.dtype, shape=t.shape, begin=start + t.begin, end=start + t.end) for t in found),
        key=lambda t: (t.begin, t.end),
    )
    _check_cover(cursor, placed, start, alignment, size)
    return GgufHeader(version=version, tensors=tuple(placed), alignment=alignment, start=start, metadata=metadata)


class _Cursor:
    """Reads forward, never beyond the file or the limit."""

    def __init__(self, read: Read, size: int, where: str) -> None:
        self._read, self._size, self._where = read, size, where
        self.at = 0
        self.items = 0

    def bad(self, why: str) -> InvalidWeights:
        return InvalidWeights(
            f"{self._where} is not a sound GGUF file: {why} (byte {self.at}); download it again or convert it with llama.cpp"
        )

    def take(self, count: int, what: str) -> bytes:
        """Return the next bytes; `count` is at most 1 MiB."""
        self.check(count, what)
        raw = self._read(count)
        if len(raw) != count:
            raise self.bad(f"{what} is cut off after {len(raw)} of {count} bytes")
        self.at += count
        return raw

    def check(self, count: int, what: str) -> None:
        """Check that so many bytes can follow, before any loop over them."""
        if count > min(self._size, MAX_HEADER_BYTES) - self.at:
            raise self.bad(
                f"{what} claims {count} bytes; the file has {self._size}, a header at most {MAX_HEADER_BYTES}"
            )

    def number(self, form: str) -> int:
        return int(struct.unpack(form, self.take(struct.calcsize(form), "a number"))[0])

    def raw_text(self, limit: int, what: str) -> bytes:
        length = self.number("<Q")
        if length > limit:
            raise self.bad(f"{what} claims {length} bytes, the limit is {limit}")
        return self.take(length, what)

    def name(self, what: str) -> str:
        try:
            text = self.raw_text(MAX_NAME_BYTES, what).decode("utf-8")
        except UnicodeDecodeError as exc:
            raise self.bad(f"{what} is not UTF-8") from exc
        if not text or not is_text(text):
            raise self.bad(f"{what} is no text: {shown(text)}")
        return text


def _version(cursor: _Cursor) -> int:
    magic = cursor.take(4, "the magic number")
    if magic != b"GGUF":
        raise cursor.bad(f"it begins with {magic!r}, not b'GGUF'")
    raw = cursor.take(4, "the version")
    version = int.from_bytes(raw, "little")
    if version in _VERSIONS:
        return version
    if int.from_bytes(raw, "big") in _VERSIONS:
        raise cursor.bad("it is big endian, which is not read here")
    raise cursor.bad(f"version {version}; versions 2 and 3 are read here")


def _metadata(cursor: _Cursor, keys: int) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for _ in range(keys):
        key = cursor.name("a metadata key")
        if key in out:
            raise cursor.bad(f"the key {shown(key)} stands twice")
        out[key] = _value(cursor, cursor.number("<I"), key)
    return out


def _value(cursor: _Cursor, kind: int, key: str) -> Any:  # noqa: ANN401  # a JSON value
    if kind == _TEXT:
        # tokens may be any bytes, so a text that is not UTF-8 is shown escaped instead of refused
        return cursor.raw_text(MAX_TEXT_BYTES, f"the text of {shown(key)}").decode("utf-8", errors="backslashreplace")
    if kind == _ARRAY:
        return _array(cursor, key)
    if kind not in _SCALARS:
        raise cursor.bad(f"the key {shown(key)} has unknown type {kind}")
    form = _SCALARS[kind][1]
    return _plain(kind, struct.unpack(form, cursor.take(struct.calcsize(form), f"the value of {shown(key)}"))[0])


def _plain(kind: int, value: float) -> Any:  # noqa: ANN401  # a JSON value
    if kind == _BOOL:
        return bool(value)
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _array(cursor: _Cursor, key: str) -> Any:  # noqa: ANN401  # a JSON value
    """Return the items of a short array, else what it holds and the SHA-256 of its bytes. Arrays of arrays are refused."""
    kind, length = cursor.number("<I"), cursor.number("<Q")
    if kind == _TEXT:
        return _texts(cursor, key, length)
    if kind not in _SCALARS:
        raise cursor.bad(f"the array {shown(key)} has items of type {kind}; numbers or texts expected")
    name, form = _SCALARS[kind]
    width = struct.calcsize(form)
    what = f"the array {shown(key)}"
    cursor.check(length * width, what)
    if length <= KEPT:
        return [_plain(kind, one) for (one,) in struct.iter_unpack(form, cursor.take(length * width, what))]
    hasher, left = hashlib.sha256(), length * width
    while left:
        raw = cursor.take(min(left, PIECE), what)
        hasher.update(raw)
        left -= len(raw)
    return {"array": name, "length": length, "sha256": hasher.hexdigest()}


def _texts(cursor: _Cursor, key: str, length: int) -> Any:  # noqa: ANN401  # a JSON value
    what = f"a text of {shown(key)}"
    cursor.check(length * 8, f"the array {shown(key)}")  # each text has at least its length
    cursor.items += length
    if cursor.items > MAX_ITEMS:
        raise cursor.bad(f"its arrays hold more than {MAX_ITEMS} texts")
    if length <= KEPT:
        raws = [cursor.raw_text(MAX_TEXT_BYTES, what) for _ in range(length)]
        return [raw.decode("utf-8", errors="backslashreplace") for raw in raws]
    hasher = hashlib.sha256()
    for _ in range(length):
        raw = cursor.raw_text(MAX_TEXT_BYTES, what)
        hasher.update(len(raw).to_bytes(8, "little") + raw)
    return {"array": "string", "length": length, "sha256": hasher.hexdigest()}


def _tensor(cursor: _Cursor) -> Tensor:
    """Read one tensor's entry; its offsets still count from the start of the data."""
    name = cursor.name("a tensor's name")
    rank = cursor.number("<I")
    if rank > MAX_RANK:
        raise cursor.bad(f"tensor {shown(name)} has {rank} dimensions, at most {MAX_RANK} expected")
    shape = tuple(cursor.number("<Q") for _ in range(rank))
    kind, offset = cursor.number("<I"), cursor.number("<Q")
    if kind not in BLOCKS:
        raise cursor.bad(f"tensor {shown(name)} has unknown ggml type {kind}")
    dtype, values, block_bytes = BLOCKS[kind]
    row = shape[0] if shape else 1
    if row % values:
        raise cursor.bad(f"tensor {shown(name)} has rows of {row} values, {dtype} needs a multiple of {values}")
    return Tensor(name=name, dtype=dtype, shape=shape, begin=offset, end=offset + math.prod(shape) // values * block_bytes)


def _aligned(at: int, alignment: int) -> int:
    return -(-at // alignment) * alignment


def _check_cover(cursor: _Cursor, tensors: list[Tensor], start: int, alignment: int, size: int) -> None:
    """Check that each tensor begins where the padded one before it ends, and that the file ends with the last."""
    at, end = start, start if tensors else cursor.at
    for tensor in tensors:
        if tensor.begin != at:
            what = "overlaps the tensor before it" if tensor.begin < at else "leaves a hole before it"
            raise cursor.bad(
                f"tensor {shown(tensor.name)} at {tensor.begin - start} {what} (expected to begin at {at - start}, "
                f"a multiple of {alignment})"
            )
        end = tensor.end
        at = _aligned(end - start, alignment) + start
    if not end <= size <= max(at, end):  # the last tensor may be padded or not
        raise cursor.bad(f"tensors end at byte {end}, the file has {size} bytes")
