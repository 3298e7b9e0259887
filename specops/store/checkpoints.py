"""Signed heads of the audit log, kept in the database and outside it.

The file is the first place outside: it gets a note before the database does. Other places get theirs afterwards from `mirror`,
and one that fails holds up nothing. A copy that the operator cannot change is what makes tampering visible; `store.verify` does
the checking. The format of a file: signed notes (C2SP), each followed by an empty line, oldest first, only ever appended to.
"""

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from specops.core.audit import Checkpoint, CheckpointPlace, NoteOpener, Signer, size_in, split_notes
from specops.errors import ChainBroken, InvalidRecord, SpecopsError, Unavailable
from specops.store.unit import Unit

_ERROR_CHARACTERS = 200  # of a place's complaint, in the log


class Transactions(Protocol):
    """What `mirror` needs of a store."""

    def begin(self) -> AbstractContextManager[Unit]:
        """Run a transaction that may write."""
        ...

    def read(self) -> AbstractContextManager[Unit]:
        """Run a transaction that only reads."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePlace:
    """Keeps notes in a file, best on another disk."""

    path: Path

    @property
    def name(self) -> str:
        """What messages call it."""
        return str(self.path)

    def newest(self) -> int:
        """Return the size of the newest note, -1 when there is none."""
        return max(map(size_in, self.read()), default=-1)

    def append(self, note: str) -> None:
        """Append a note and make it last.

        Raises:
            Unavailable: the file cannot be written.
        """
        _append(self.path, f"{note}\n")

    def read(self) -> list[str]:
        """Return all notes.

        Raises:
            ChainBroken: the file ends within a note.
            Unavailable: it cannot be read.
        """
        return read_notes(self.path)


def write(unit: Unit, signer: Signer, path: Path) -> Checkpoint:
    """Sign the head and append the note to `path` and to the database; a head that is there already is not signed again.

    Raises:
        ChainBroken: the log contradicts a note that was signed before, or the file ends within a note.
        Unavailable: the file cannot be read or written.
    """
    head, inside, outside = unit.audit.head(), unit.audit.notes(), read_notes(path)
    for notes in (inside, outside):
        _check_continues(unit, notes)
    checkpoint = Checkpoint(origin=signer.name, size=head.size, root=head.root)
    text = checkpoint.to_text()
    known = [note for note in inside if note.startswith(text)]
    note = known[0] if known else signer.sign(text)
    if note not in outside:
        _append(path, f"{note}\n")  # first, so that the database never has a note that the file lacks
    unit.audit.keep_note(head.size, note)
    return checkpoint


def refill(store: Transactions, path: Path, key: NoteOpener, *, actor: str, now: datetime) -> tuple[str, ...]:
    """Write to `path` what it lacks of the database's notes, say so in the audit log, and return a line about it.

    Somebody removed them, or the setting names a new file. Either way a person should know, so it is never done in silence.

    Raises:
        ChainBroken: one of those notes was edited, the log contradicts it, or the file ends within a note.
        Unavailable: the file cannot be read or written.
    """
    with store.read() as unit:
        if not _lacking(unit, path):
            return ()
    with store.begin() as unit:
        if not (missing := _lacking(unit, path)):
            return ()  # another process was faster
        for note in missing:
            key.open(note)  # what was edited in the database must not get into a file that is never changed
            _check_continues(unit, [note])
        payload = {"notes": len(missing), "first": size_in(missing[0])}
        unit.audit.append(tag="audit:place:refilled", actor=actor, subject=str(path), payload=payload, at=now)
        _append(path, "".join(f"{note}\n" for note in missing))
    return (f"{len(missing)} checkpoints were missing in {path} and written again, the first over {payload['first']} entries",)


def _lacking(unit: Unit, path: Path) -> list[str]:
    """Return the notes of the database that the file lacks; the file is read later, so a note written meanwhile is no gap."""
    inside, outside = unit.audit.notes(), set(read_notes(path))
    return [note for note in inside if note not in outside]


def mirror(store: Transactions, places: Sequence[CheckpointPlace], *, actor: str, now: datetime) -> tuple[str, ...]:
    """Bring every place up to the notes that the database has; return a line for each place that failed.

    The first failure of a place and its recovery are audit entries; a place that stays away for a week is not a thousand.
    """
    complaints = []
    with store.read() as unit:
        notes = unit.audit.notes()
    for place in places:
        error = _bring_up(place, notes)
        if error:
            complaints.append(f"checkpoints did not reach {place.name}: {error}")
        with store.read() as unit:
            before = next(unit.audit.read(subject=place.name, tag="audit:place", last=1), None)
        failing = before is not None and before.tag == "audit:place:failed"
        if bool(error) is failing:
            continue
        with store.begin() as unit:
            if error:
                payload = {"error": error[:_ERROR_CHARACTERS]}
                unit.audit.append(tag="audit:place:failed", actor=actor, subject=place.name, payload=payload, at=now)
            else:
                unit.audit.append(tag="audit:place:recovered", actor=actor, subject=place.name, payload={}, at=now)
    return tuple(complaints)


def _bring_up(place: CheckpointPlace, notes: Sequence[str]) -> str:
    """Append what a place lacks; return what went wrong, empty when nothing did."""
    try:
        newest = place.newest()
        for note in notes:
            if size_in(note) > newest:
                place.append(note)
    except (SpecopsError, OSError) as exc:
        return " ".join(str(exc).split()) or type(exc).__name__
    return ""


def read_notes(path: Path) -> list[str]:
    """Return the signed notes of a checkpoints file; none when there is no file.

    Raises:
        ChainBroken: the file ends within a note.
        Unavailable: it cannot be read.
    """
    if not path.exists():
        return []
    try:
        return split_notes(path.read_text(encoding="utf-8"), str(path))
    except UnicodeDecodeError as exc:
        raise ChainBroken(f"{path} is no text: it was edited; restore it from a copy") from exc
    except OSError as exc:
        raise Unavailable(f"cannot read the checkpoints in {path}: {exc}") from exc


def _check_continues(unit: Unit, notes: list[str]) -> None:
    """Refuse to sign a log that is no continuation of the last signed one: two signed heads that disagree end all trust."""
    if not notes:
        return
    last = max(map(_unopened, notes), key=lambda c: c.size)
    if unit.audit.root_at(last.size) != last.root:
        raise ChainBroken(
            f"the log is not the one signed at size {last.size}, so it is not signed again; run specops audit verify"
        )


def _unopened(note: str) -> Checkpoint:
    """Read a note without checking its signature: enough to refuse, never enough to trust."""
    try:
        return Checkpoint.from_text(note.rpartition("\n\n")[0] + "\n")
    except InvalidRecord as exc:
        raise ChainBroken(f"a kept note is not a checkpoint: {exc}; restore the checkpoints file") from exc


def _append(path: Path, text: str) -> None:
    """Append in one write and make it last."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab", buffering=0) as file:
            file.write(text.encode())
            os.fsync(file.fileno())
    except OSError as exc:
        raise Unavailable(f"cannot write the checkpoint to {path}: {exc}; make room or set checkpoint_path") from exc
