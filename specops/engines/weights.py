"""Weights on disk, read without torch: is the header sound, what is the digest, is it a format that may be opened at all.

Whoever loads a file trusts its header, so `core.safetensors` checks it first; pickles run code when opened and are refused.
Called by preflight and by the engine at start.
"""

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from specops.core.canonical import digest_of
from specops.core.release import FileDigest
from specops.core.safetensors import parse_safetensors
from specops.errors import InvalidWeights

PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
CONTENT = (".json", ".safetensors", ".model", ".txt", ".jinja")
_CHUNK = 1 << 20


def read_header(path: Path) -> dict[str, dict[str, Any]]:
    """Return the checked header of a safetensors file: tensor name to dtype, shape and offsets.

    Raises:
        InvalidWeights: no such file, a length beyond the file, broken JSON, an offset out of range, an overlap or a hole.
    """
    try:
        with path.open("rb") as file:
            header = parse_safetensors(file.read, size=os.fstat(file.fileno()).st_size, where=str(path))
    except OSError as exc:
        raise InvalidWeights(f"cannot read weights {path}: {exc.strerror or exc}; check the path") from exc
    return {
        t.name: {"dtype": t.dtype, "shape": list(t.shape), "data_offsets": [t.begin - header.start, t.end - header.start]}
        for t in header.tensors
    }


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
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as exc:
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
