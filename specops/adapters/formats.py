"""What a file is, before it is hashed: safetensors and GGUF headers read, pickles refused, indexes of shards compared.

Called by `adapters.weights`. Nothing is loaded and nothing is executed. What a sound header is, `core.safetensors` and
`core.gguf` say.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, BinaryIO

from specops.adapters.file_tree import Located
from specops.adapters.hashing import open_regular
from specops.core.gguf import parse_gguf
from specops.core.safetensors import Read, Tensor, parse_safetensors, shown
from specops.errors import InvalidWeights

INDEX = ".safetensors.index.json"
WITH_TENSORS = (".safetensors", ".gguf")
MAX_INDEX_BYTES = 64 << 20  # the largest checkpoints have 100 000 tensors, 10 MB of index
_PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib")
_PICKLE_STARTS = tuple(b"\x80" + bytes([protocol]) for protocol in range(2, 6))
_ZIP, _ZIP_NAME_LENGTH, _ZIP_NAME = b"PK\x03\x04", slice(26, 28), 30  # a local file header, PKWARE APPNOTE 4.3.7
_HEAD_BYTES = 512


def spans_of(located: Located) -> tuple[Tensor, ...]:
    """Return the tensors of a safetensors or GGUF file in the order of their bytes, none for any other file.

    Raises:
        InvalidWeights: a pickle, or a header that is not sound.
    """
    with open_regular(located) as raw:
        if located.path.endswith(".safetensors"):
            return parse_safetensors(_exactly(raw), size=located.stamp.size, where=str(located.file)).tensors
        if located.path.endswith(".gguf"):
            return parse_gguf(_Pieces(raw).read, size=located.stamp.size, where=str(located.file)).tensors
        head = raw.read(_HEAD_BYTES) or b""
    if located.path.endswith(_PICKLE_SUFFIXES) or head.startswith(_PICKLE_STARTS) or _is_torch_zip(head):
        raise InvalidWeights(
            f"{located.file} is a pickle checkpoint, which runs code when it is loaded; convert it to safetensors "
            "(safetensors.torch.save_file) and register that"
        )
    return ()


def _is_torch_zip(head: bytes) -> bool:
    """Tell whether this is the zip that torch.save writes, a pickle within: its first member is data.pkl."""
    length = int.from_bytes(head[_ZIP_NAME_LENGTH], "little")
    return head.startswith(_ZIP) and head[_ZIP_NAME : _ZIP_NAME + length].endswith(b"data.pkl")


def check_indexes(files: Iterable[Located], names: Mapping[str, Sequence[str]]) -> None:
    """Check that each index of shards and its shards name the same tensors, both ways.

    Args:
        files: the files at hand; those that are indexes are read.
        names: the tensors' names of each safetensors file at hand, by its path.

    Raises:
        InvalidWeights: no index, a shard that is missing, a tensor that is not where the index says, or one it does not name.
    """
    for index in files:
        if index.path.endswith(INDEX):
            _check_index(index, names)


def _check_index(index: Located, names: Mapping[str, Sequence[str]]) -> None:
    folder = PurePosixPath(index.path).parent
    claimed = {(str(folder / shard), tensor) for tensor, shard in _weight_map(index).items()}
    shards = {shard for shard, _ in claimed}
    if missing := sorted(shards - set(names)):
        raise InvalidWeights(f"{index.path} names the shard {shown(missing[0])}, which is missing; copy it here")
    actual = {(shard, name) for shard in shards for name in names[shard]}
    if absent := sorted(claimed - actual):
        raise InvalidWeights(
            f"{index.path} places {shown(absent[0][1])} in {absent[0][0]}, which does not have it; download both again"
        )
    if unnamed := sorted(actual - claimed):
        raise InvalidWeights(
            f"{unnamed[0][0]} has {shown(unnamed[0][1])}, which {index.path} does not name: a loader would leave it out; "
            "download both again"
        )


def _weight_map(index: Located) -> dict[str, str]:
    """Read an index: tensor to shard."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(out := dict(pairs)) != len(pairs):
            raise ValueError("a name stands twice")
        return out

    if index.stamp.size > MAX_INDEX_BYTES:
        raise InvalidWeights(f"{index.path} has {index.stamp.size} bytes, at most {MAX_INDEX_BYTES} expected; get it again")
    try:
        with open_regular(index) as raw:
            content = json.loads(_exactly(raw)(index.stamp.size).decode("utf-8"), object_pairs_hook=unique)
        weight_map = content["weight_map"]
        is_sound = bool(weight_map) and all(isinstance(shard, str) and "/" not in shard for shard in weight_map.values())
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as exc:
        raise InvalidWeights(f"{index.path} is not an index of shards: {exc!r}; download it again") from exc
    if not is_sound:
        raise InvalidWeights(f"{index.path} is not an index of shards: weight_map must name a file beside it for each tensor")
    return dict(weight_map)


def _exactly(raw: BinaryIO) -> Read:
    """Return a `read` that goes on until it has all: an unbuffered file may give less than was asked for."""

    def read(count: int) -> bytes:
        parts = []
        while count and (part := raw.read(count)):
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    return read


class _Pieces:
    """A buffer before an unbuffered file: a GGUF header is read in hundreds of thousands of small steps."""

    def __init__(self, raw: BinaryIO) -> None:
        self._read, self._buffer, self._at = _exactly(raw), b"", 0

    def read(self, count: int) -> bytes:
        """Return the next bytes, fewer at the end."""
        if self._at + count > len(self._buffer):
            self._buffer = self._buffer[self._at :] + self._read(max(count, 1 << 18))
            self._at = 0
        self._at += count
        return self._buffer[self._at - count : self._at]
