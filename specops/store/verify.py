"""Checks the whole audit log against everything kept of it: its own head, and every signed checkpoint, inside and outside.

Called by `specops audit verify`, `specops doctor` and the report. What the hashes mean is `core.audit.verify_chain`'s business.
"""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from specops.core.audit import Checkpoint, NoteOpener, verify_chain
from specops.core.merkle import Frontier
from specops.errors import ChainBroken, InvalidRecord
from specops.store.checkpoints import read_notes
from specops.store.unit import Unit


class Readable(Protocol):
    """What `verify` needs of a store."""

    def read(self) -> AbstractContextManager[Unit]:
        """Run a transaction that only reads."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What a successful verification covered: `proven` of the `size` entries lie under a signed checkpoint; `root` as hex."""

    size: int
    proven: int
    checkpoints: int
    root: str


def verify(store: Readable, path: Path, key: NoteOpener) -> Verified:
    """Recompute the audit log and compare it with its head and with every signed checkpoint.

    Args:
        store: the store to check.
        path: the checkpoints file, best a copy from elsewhere.
        key: the public key.

    Raises:
        ChainBroken: names the first bad entry, or the note that is cut, unsigned, missing or forked.
    """
    with store.read() as unit:  # the order of the three reads: a checkpoint written meanwhile must not look like tampering
        inside = unit.audit.notes()
    outside = read_notes(path)
    if lost := [note for note in inside if note not in outside]:
        raise ChainBroken(f"{path} lacks a checkpoint that the database has: {lost[0].splitlines()[:2]}; restore the file")
    heads = [_opened(note, key) for note in outside]
    with store.read() as unit:
        frontier = verify_chain(unit.audit.links(), head=_head(unit), checkpoints=heads)
    proven = max((head.size for head in heads), default=0)
    return Verified(size=frontier.size, proven=proven, checkpoints=len(heads), root=frontier.root.hex())


def _opened(note: str, key: NoteOpener) -> Checkpoint:
    try:
        return Checkpoint.from_text(key.open(note))
    except InvalidRecord as exc:
        raise ChainBroken(f"a signed note is not a checkpoint: {exc}") from exc


def _head(unit: Unit) -> Frontier:
    try:
        return unit.audit.head()
    except InvalidRecord as exc:
        raise ChainBroken(f"the head of the audit log was altered: {exc}") from exc
