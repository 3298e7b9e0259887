"""Which files a folder holds: regular files, below the folder, with names that every system can hold.

Called by `adapters.weights`. Nothing is read here but names and metadata. Whatever is no plain file in the folder itself (a
link that leads out, a pipe, a socket, a device) is refused, never skipped: what is hashed must be what stays.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from specops.errors import InvalidWeights

_SPECIAL = {stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket", stat.S_IFBLK: "a device", stat.S_IFCHR: "a device"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """What the system says about a file's state; equal stamps mean that nobody wrote in between, clock ticks aside."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int

    @classmethod
    def of(cls, status: os.stat_result) -> "Stamp":
        """Take the stamp from a stat result."""
        return cls(size=status.st_size, mtime_ns=status.st_mtime_ns, ctime_ns=status.st_ctime_ns, inode=status.st_ino)


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """A file to hash: its POSIX path in the folder, where it really lies, and its stamp."""

    path: str
    file: Path
    stamp: Stamp


def locate(folder: Path, files: Sequence[str] | None = None) -> tuple[Located, ...]:
    """Find the files of a folder, sorted by path.

    Args:
        folder: hidden files and folders in it are left out.
        files: POSIX paths relative to it; None takes every file.

    Raises:
        InvalidWeights: no folder, no files, one that is no plain file, leads out of the folder, or has a strange name.
    """
    try:
        if not folder.is_dir():
            raise InvalidWeights(f"{folder} is not a folder; expected one that holds the files to register")
        base = folder.resolve()
        paths = sorted(_walk(base) if files is None else {(path, True) for path in files})
        found = tuple(_located(folder, base, path, is_link) for path, is_link in paths)
    except OSError as exc:
        raise InvalidWeights(f"cannot list {folder}: {exc}; check the rights and the path") from exc
    if not found:
        raise InvalidWeights(f"{folder} has no files to register; point to the folder that holds them")
    return found


def _walk(base: Path) -> Iterator[tuple[str, bool]]:
    """Yield every path below a folder that is no folder, and whether it is a link; links to folders are to be refused."""
    pending = [""]
    while pending:
        prefix = pending.pop()
        with os.scandir(base / prefix) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    pending.append(f"{prefix}{entry.name}/")
                else:
                    yield prefix + entry.name, entry.is_symlink()


def _located(folder: Path, base: Path, path: str, is_link: bool) -> Located:
    if not path.isprintable():
        raise InvalidWeights(f"{path!r} in {folder} is no printable Unicode name; rename it")
    if PurePosixPath(path).is_absolute() or ".." in path.split("/"):
        raise InvalidWeights(f"{path} points out of {folder}; give paths below the folder, without '..'")
    if str(PurePosixPath(path)) != path:  # './a' and 'a' are one file: two names would be two identities
        raise InvalidWeights(f"{path!r} is no plain path in {folder}; write it as {str(PurePosixPath(path))!r}")
    file = base / path
    if is_link and not (file := Path(os.path.realpath(file))).is_relative_to(base):  # one look per folder above: slow
        raise InvalidWeights(f"{path} points out of {folder} to {file}; copy the files (cp -rL) and register the copy")
    try:
        status = file.stat()
    except FileNotFoundError as exc:
        raise InvalidWeights(f"{path} is not a file in {folder}; check the name, or where its link leads") from exc
    if not stat.S_ISREG(status.st_mode):
        what = _SPECIAL.get(stat.S_IFMT(status.st_mode), "not a file")
        raise InvalidWeights(f"{path} in {folder} is {what}; a linked folder has to be copied (cp -rL), anything else removed")
    return Located(path=path, file=file, stamp=Stamp.of(status))
