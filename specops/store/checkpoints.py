"""Signed heads of the audit log, kept twice: in the database and in a file outside it.

A copy of that file on another host, or committed to git, is what makes tampering visible; `store.verify` does the checking. The
format: signed notes (C2SP), each followed by an empty line, oldest first, only ever appended to.
"""

import os
from pathlib import Path

from specops.core.audit import Checkpoint, Signer
from specops.errors import ChainBroken, InvalidRecord
from specops.store.unit import Unit


def write(unit: Unit, signer: Signer, path: Path) -> Checkpoint:
    """Sign the head and append the note to `path` and to the database; a head that is there already is not signed again.

    Raises:
        ChainBroken: the log contradicts a note that was signed before, or the file ends within a note.
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


def read_notes(path: Path) -> list[str]:
    """Return the signed notes of a checkpoints file; none when there is no file.

    Raises:
        ChainBroken: the file ends within a note.
    """
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    parts = text.split("\n\n")
    if parts.pop() or len(parts) % 2:
        raise ChainBroken(f"{path} ends within a note: it was cut or edited; restore it from a copy")
    return [f"{body}\n\n{signatures}\n" for body, signatures in zip(parts[::2], parts[1::2], strict=True)]


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
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab", buffering=0) as file:
        file.write(text.encode())
        os.fsync(file.fileno())
