"""Whether a folder still holds what was registered, and if not, what happened to each file.

Called by `specops lineage check`; `adapters.weights` passes both functions on. A difference is explained as far as the digests
reach: renamed, swapped with another shard, only the header written anew. What follows from it is the caller's business.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from specops.adapters.file_tree import Located, locate
from specops.adapters.formats import INDEX, WITH_TENSORS, spans_of
from specops.adapters.hashing import Progress, fast_digest, hash_file
from specops.adapters.rescan import HashCache
from specops.core.release import Artifact, FileDigest
from specops.errors import InvalidWeights, LineageBroken

_SHOWN = 3  # differences that an error names


class Change(StrEnum):
    """How a file differs from what was registered."""

    MISSING = "missing"
    MOVED = "moved"
    SWAPPED = "swapped"
    HEADER = "header"
    CHANGED = "changed"
    ADDED = "added"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One file that is not what was registered, and a line that says how."""

    path: str
    change: Change
    message: str


def verify_artifact(
    artifact: Artifact, folder: Path, *, full: bool = True, progress: Progress | None = None, cache: HashCache | None = None
) -> None:
    """Check that a folder still holds what was registered; arguments as in `compare_artifact`.

    Raises:
        LineageBroken: names the first files that differ.
        InvalidWeights: a file cannot be read, or changed meanwhile.
    """
    found = compare_artifact(artifact, folder, full=full, progress=progress, cache=cache)
    if found:
        more = f" (and {len(found) - _SHOWN} more)" if len(found) > _SHOWN else ""
        raise LineageBroken("; ".join(d.message for d in found[:_SHOWN]) + more)


def compare_artifact(
    artifact: Artifact, folder: Path, *, full: bool = True, progress: Progress | None = None, cache: HashCache | None = None
) -> tuple[Difference, ...]:
    """Return how a folder differs from what was registered, by path.

    Args:
        artifact: what was registered.
        folder: where it should lie now.
        full: read every byte and compare SHA-256. Else a file whose size fits is compared by BLAKE3 where that was
            registered, and taken from the cache where it is unchanged since.
        progress: called after each piece of at most 1 MiB.
        cache: what was hashed before; believed only without `full`.

    Raises:
        InvalidWeights: a file cannot be read, or changed meanwhile.
    """
    here = {f.path: f for f in _there(artifact, folder)}
    known = {} if full or cache is None else cache.find(here.values())
    total, done = sum(f.stamp.size for f in here.values()), 0
    wrong: dict[str, FileDigest] = {}
    for want in artifact.files:
        if (located := here.get(want.path)) is None:
            continue
        got = known[want.path].file if want.path in known else _digest(located, want, full, _shifted(progress, done, total))
        done += located.stamp.size
        if (got.size, got.sha256) != (want.size, want.sha256):
            wrong[want.path] = got
    return tuple(sorted(_differences(artifact, folder, here, wrong), key=lambda d: (d.change is Change.ADDED, d.path)))


def _there(artifact: Artifact, folder: Path) -> tuple[Located, ...]:
    """Return the registered files that exist, and weights beside them that nobody registered."""
    paths = [f.path for f in artifact.files if (folder / f.path).is_file()]
    if any(f.path.endswith(WITH_TENSORS) for f in artifact.files) and folder.is_dir():
        paths += [
            path.relative_to(folder).as_posix()
            for path in folder.rglob("*")
            if path.name.endswith((*WITH_TENSORS, INDEX))
            and not any(part.startswith(".") for part in path.relative_to(folder).parts)
            and path.is_file()
        ]
    return locate(folder, paths) if paths else ()


def _digest(located: Located, want: FileDigest, full: bool, progress: Callable[[int], None]) -> FileDigest:
    """Hash a file as far as needed to tell whether it is the registered one."""
    if not full and want.blake3 and located.stamp.size == want.size:
        if fast_digest(located, progress=progress) == want.blake3:
            return want
        return hash_file(located, progress=None).file
    return hash_file(located, progress=progress).file


def _shifted(progress: Progress | None, done: int, total: int) -> Callable[[int], None]:
    """Turn the pieces of one file into the bytes of the whole run."""
    at = done

    def tell(count: int) -> None:
        nonlocal at
        at += count
        if progress:
            progress(at, total)

    return tell


def _differences(
    artifact: Artifact, folder: Path, here: dict[str, Located], wrong: dict[str, FileDigest]
) -> Iterable[Difference]:
    """Explain what differs: whether a file was renamed, swapped with another, or only its header was written anew."""
    registered = {f.path: f for f in artifact.files}
    strangers = {p: located for p, located in here.items() if p not in registered}
    gone = [f for p, f in registered.items() if p not in here]
    sizes = {f.size for f in gone}
    moved = {hash_file(f).file.sha256: p for p, f in strangers.items() if f.stamp.size in sizes}
    for want in gone:
        if (now := moved.get(want.sha256)) is not None:
            strangers.pop(now, None)
            message = f"{want.path} of {artifact.name} was renamed to {now} in {folder}; give it its name again"
            yield Difference(path=want.path, change=Change.MOVED, message=message)
        else:
            message = f"{want.path} of {artifact.name} is missing in {folder}; restore it or register what is there"
            yield Difference(path=want.path, change=Change.MISSING, message=message)
    for path, got in wrong.items():
        yield _explain(artifact, registered, here[path], got)
    for path in strangers:
        message = f"{path} in {folder} is no part of {artifact.name}; remove it or register a new artifact"
        yield Difference(path=path, change=Change.ADDED, message=message)


def _explain(artifact: Artifact, registered: dict[str, FileDigest], located: Located, got: FileDigest) -> Difference:
    path, want = located.path, registered[located.path]
    twin = next((p for p, f in registered.items() if f.sha256 == got.sha256), None)
    tail = f"sha256 {got.sha256[:16]} ({got.size} bytes), expected {want.sha256[:16]} ({want.size} bytes)"
    if twin is not None:
        change, how = Change.SWAPPED, f"holds what was registered as {twin}"
    elif _tensors_stayed(artifact, located):
        change, how = Change.HEADER, "is not what was registered, only its header changed (all tensors are the same)"
    else:
        change, how = Change.CHANGED, "is not what was registered"
    message = f"{path} of {artifact.name} {how}: {tail}; restore it or register a new artifact"
    return Difference(path=path, change=change, message=message)


def _tensors_stayed(artifact: Artifact, located: Located) -> bool:
    wanted = sorted((t.name, t.digest) for t in artifact.tensors if t.file == located.path)
    if not wanted:
        return False
    try:
        got = hash_file(located, spans_of(located)).tensors
    except InvalidWeights:
        return False  # a broken header explains nothing; that it changed is said anyway
    return sorted((t.name, t.digest) for t in got) == wanted
