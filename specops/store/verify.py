"""Checks the whole audit log against everything kept of it: its own head, and every signed checkpoint, inside and outside.

Called by `specops audit verify`, `specops doctor` and the report. What the hashes mean is `core.chain.verify_chain`'s business.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from specops.core.audit import Checkpoint, CheckpointPlace, NoteOpener
from specops.core.chain import verify_chain
from specops.core.merkle import Frontier
from specops.errors import ChainBroken, InvalidInput, InvalidRecord, Unavailable
from specops.store.checkpoints import read_notes
from specops.store.unit import Unit


class Readable(Protocol):
    """What `verify` needs of a store."""

    def read(self) -> AbstractContextManager[Unit]:
        """Run a transaction that only reads."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What a successful verification covered: `proven` of the `size` entries lie under a signed checkpoint; `root` as hex.

    `checkpoints` counts the different ones, `places` names where copies of them were compared. `warnings` are for a person: a
    clock that went back, a place that could not be read or lacks a checkpoint.
    """

    size: int
    proven: int
    checkpoints: int
    root: str
    places: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def verify(store: Readable, path: Path, key: NoteOpener, places: Sequence[CheckpointPlace] = ()) -> Verified:
    """Recompute the audit log and compare it with its head and with every signed checkpoint.

    Args:
        store: the store to check.
        path: the checkpoints file, best a copy from elsewhere.
        key: the public key, or a ring of the present and earlier ones.
        places: where else checkpoints are kept; one that cannot be reached is a warning.

    Raises:
        ChainBroken: names the first bad entry, or the place whose note is cut, unsigned, missing or forked.
    """
    with store.read() as unit:  # the order of the three reads: a checkpoint written meanwhile must not look like tampering
        inside = unit.audit.notes()
    outside = read_notes(path)
    if lost := [note for note in inside if note not in outside]:
        raise ChainBroken(f"{path} lacks a checkpoint that the database has: {lost[0].splitlines()[:2]}; restore the file")
    heads = [_opened(note, key, str(path)) for note in outside]
    compared, warnings = [str(path)], []
    for place in places:
        try:
            elsewhere = [_opened(note, key, place.name) for note in place.read()]
        except (Unavailable, InvalidInput) as exc:  # MLflow not installed, or it refuses: no reason to doubt the log
            warnings.append(f"{place.name} was not compared: {exc}")
            continue
        if missing := {head.size for head in heads} - {head.size for head in elsewhere}:
            warnings.append(f"{place.name} lacks {len(missing)} of {len(heads)} checkpoints, the first at size {min(missing)}")
        compared.append(place.name)
        heads += elsewhere
    with store.read() as unit, closing(unit.audit.links()) as links:
        chain = verify_chain(links, head=_head(unit), checkpoints=heads)
    if chain.clock_backs > len(chain.warnings):
        warnings.append(f"the clock went back {chain.clock_backs} times in all; the first {len(chain.warnings)} follow")
    return Verified(
        size=chain.frontier.size,
        proven=max((head.size for head in heads), default=0),
        checkpoints=len({head.size for head in heads}),
        root=chain.frontier.root.hex(),
        places=tuple(compared),
        warnings=(*warnings, *chain.warnings),
    )


def _opened(note: str, key: NoteOpener, place: str) -> Checkpoint:
    try:
        return Checkpoint.from_text(key.open(note), place=place)
    except InvalidRecord as exc:
        raise ChainBroken(f"a signed note in {place} is not a checkpoint: {exc}") from exc
    except ChainBroken as exc:
        raise ChainBroken(f"{exc} ({place})") from exc


def _head(unit: Unit) -> Frontier:
    try:
        return unit.audit.head()
    except InvalidRecord as exc:
        raise ChainBroken(f"the head of the audit log was altered: {exc}") from exc
