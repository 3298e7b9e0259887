"""Checks the whole audit log against everything kept of it: its own head, and every signed checkpoint, inside and outside.

Called by `specops audit verify`, `specops doctor` and the report. What the hashes mean is `core.chain.verify_chain`'s business.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from specops.core.audit import Checkpoint, CheckpointPlace, NoteOpener, size_in
from specops.core.chain import Chain, verify_chain
from specops.errors import ChainBroken, InvalidInput, InvalidRecord, Unavailable
from specops.store import triggers
from specops.store.checkpoints import read_notes
from specops.store.unit import Unit

_RESTORED_SHOWN = 100  # newest entries about restored guards that become warnings


class Readable(Protocol):
    """What `verify` needs of a store."""

    def read(self) -> AbstractContextManager[Unit]:
        """Run a transaction that only reads."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What a successful verification covered: `proven` of the `size` entries lie under a signed checkpoint; `root` as hex.

    `checkpoints` counts the different ones, `places` names where copies of them were compared. `warnings` are for a person: a
    clock that went back, a place that could not be read or lacks a checkpoint, guards that were gone, a log without checkpoint.
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
    heads = [_opened(note, key, str(path)) for note in outside]
    lost = [_opened(note, key, "the database") for note in inside if note not in outside]
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
    with store.read() as unit:
        chain = _chain(unit, (*heads, *lost))
        if lost:  # told last: that the file is of another log, or edited, is the greater news
            others = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
            raise ChainBroken(
                f"{path} lacks the checkpoint over {lost[0].size} entries{others} that the database has; restore the file "
                "from a copy, or write them again with: specops audit checkpoint"
            )
        warnings += [*_weak(unit, chain, heads, str(path)), *_guards(unit)]
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


def _chain(unit: Unit, heads: Sequence[Checkpoint]) -> Chain:
    """Verify the entries, then the head: when both were altered, the entry is named."""
    try:
        head, broken = unit.audit.head(), None
    except ChainBroken as exc:
        head, broken = None, exc
    with closing(unit.audit.links()) as links:
        chain = verify_chain(links, head=head, checkpoints=heads)
    if broken:
        raise ChainBroken(
            f"the head of the audit log was altered: {broken.__cause__}; the entries are sound, so restore a backup of the head"
        ) from broken
    return chain


def _weak(unit: Unit, chain: Chain, heads: Sequence[Checkpoint], file: str) -> list[str]:
    """Say where a sound log proves less than it should."""
    out = []
    size = chain.frontier.size
    if size and not any(head.size for head in heads):
        out.append(f"nothing is proven: no signed checkpoint covers any of the {size} entries; run: specops audit checkpoint")
    gone = sorted({head.size for head in heads if head.place == file} - {size_in(note) for note in unit.audit.notes()})
    if gone:
        out.append(
            f"the database lacks {len(gone)} checkpoints that {file} has, the first over {gone[0]} entries: somebody removed "
            "them, or a process was killed while it signed"
        )
    return out


def _guards(unit: Unit) -> list[str]:
    """Name the guards that are gone, or once were: while they are, whoever reaches the database can change the log."""
    out = []
    if names := unit.audit.unguarded():
        out.append(f"triggers {', '.join(names)} are gone now; the next start puts them back")
    for entry in unit.audit.read(tag=triggers.RESTORED, last=_RESTORED_SHOWN):
        names = tuple(map(str, entry.payload.get("triggers", ())))
        out.append(
            f"entry {entry.index}: triggers {', '.join(names)} were gone and put back at {entry.at:%Y-%m-%d %H:%M:%S} UTC; "
            "somebody could change the log before it"
        )
    return out
