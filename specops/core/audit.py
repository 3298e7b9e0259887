"""What an audit entry and a checkpoint are, byte for byte, and what may be asked of whoever signs and keeps them.

`store.audit` appends entries, `core.chain` checks a log of them, `store.checkpoints` has heads signed; storing and signing are
left to them.

Sources: RFC 8785 (bytes), C2SP tlog-checkpoint (note text).
"""

import base64
import binascii
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol, Self

from specops.core.canonical import canonical, read_canonical
from specops.errors import ChainBroken, InvalidRecord

TAG = re.compile(r"[a-z][a-z0-9_]*(:[a-z][a-z0-9_]*){2}")
FIELDS = frozenset({"index", "tag", "actor", "subject", "payload", "at"})
MAX_DIGITS = 19  # of a size: databases count in 63 bits
_ROOT_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One thing that happened: who (`actor`, a person or job) did what (`tag`) to what (`subject`), and the details.

    `index` counts from 0. `tag` is `source:subject:action` in lower case, as in `rollout:step:advanced`. The payload holds
    digests and counts, never request text; integers stay below 2**53.
    """

    index: int
    tag: str
    actor: str
    subject: str
    payload: dict[str, Any]
    at: datetime

    def __post_init__(self) -> None:
        """Check the tag's grammar, the names and the zone."""
        if not TAG.fullmatch(self.tag):
            raise InvalidRecord(
                f"audit tag {self.tag!r} is not source:subject:action in lower case, as in rollout:step:advanced"
            )
        if self.index < 0 or not self.actor or not self.subject:
            raise InvalidRecord(f"audit entry {self.index} {self.tag} needs index >= 0, an actor and a subject")
        if self.at.tzinfo is None:
            raise InvalidRecord(f"audit entry {self.tag} has a time without zone: {self.at.isoformat()}; use UTC")

    def to_bytes(self) -> bytes:
        """Return the exact bytes that are hashed and stored: RFC 8785 JSON, time in UTC with microseconds.

        Raises:
            InvalidRecord: the payload has a value that canonical JSON cannot hold (NaN, an integer of 2**53 or more).
        """
        record = {
            "index": self.index,
            "tag": self.tag,
            "actor": self.actor,
            "subject": self.subject,
            "payload": self.payload,
            "at": self.at.astimezone(UTC).isoformat(timespec="microseconds"),
        }
        try:
            return canonical(record)
        except (ValueError, RecursionError) as exc:
            raise InvalidRecord(f"payload of audit entry {self.tag} is not canonical JSON: {exc}; pass it as a string") from exc

    @classmethod
    def from_bytes(cls, raw: bytes) -> Self:
        """Read an entry from its bytes.

        Raises:
            InvalidRecord: these are not the canonical bytes of an entry.
        """
        record = record_of(raw)
        return cls(**(record | {"at": datetime.fromisoformat(record["at"])}))


def record_of(raw: bytes) -> dict[str, Any]:
    """Return the six fields of an entry from its bytes, all checks done, `at` as its text: what `from_bytes` is made of.

    Raises:
        InvalidRecord: these are not the canonical bytes of an entry.
    """
    try:
        record = read_canonical(raw)
    except ValueError as exc:
        raise InvalidRecord(f"not an audit entry: {exc}") from exc
    if type(record) is not dict or record.keys() != FIELDS:
        raise InvalidRecord(f"not an audit entry: expected the fields {', '.join(sorted(FIELDS))}")
    index, tag, at = record["index"], record["tag"], record["at"]
    if type(index) is not int or index < 0 or type(record["payload"]) is not dict:
        raise InvalidRecord("not an audit entry: its index is no number from 0, or its payload no object")
    if type(tag) is not str or not TAG.fullmatch(tag):
        raise InvalidRecord(f"not an audit entry: its tag {tag!r:.80} is not source:subject:action")
    if not (record["actor"] and type(record["actor"]) is str and record["subject"] and type(record["subject"]) is str):
        raise InvalidRecord("not an audit entry: it needs an actor and a subject")
    if not _is_time(at):
        raise InvalidRecord(f"not an audit entry: its time {at!r:.80} is not UTC with microseconds")
    return record


def _is_time(text: object) -> bool:
    """Say whether this is the one text of a time in UTC."""
    if type(text) is not str or not text.endswith("+00:00"):
        return False
    try:
        return datetime.fromisoformat(text).isoformat(timespec="microseconds") == text
    except ValueError:
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A statement about the log at one size: its name (`origin`) and its root, 32 bytes.

    `place` says where this copy was read, for messages only.
    """

    origin: str
    size: int
    root: bytes
    place: str = field(default="", compare=False)

    def to_text(self) -> str:
        """Return the note text of C2SP tlog-checkpoint: three lines, each ended by a newline."""
        return f"{self.origin}\n{self.size}\n{base64.b64encode(self.root).decode()}\n"

    @classmethod
    def from_text(cls, text: str, *, place: str = "") -> Self:
        """Read a checkpoint from its note text; extension lines after the third are allowed and ignored.

        Raises:
            InvalidRecord: the text is not a checkpoint.
        """
        lines = text.split("\n")
        try:
            origin, size, root = lines[0], int(lines[1]), base64.b64decode(lines[2], validate=True)
        except (IndexError, ValueError, binascii.Error) as exc:
            raise InvalidRecord(f"not a checkpoint note: {text!r}") from exc
        if not origin or str(size) != lines[1] or size < 0 or len(lines[1]) > MAX_DIGITS or len(root) != _ROOT_BYTES:
            raise InvalidRecord(f"not a checkpoint note: {text!r}")
        return cls(origin=origin, size=size, root=root, place=place)


def split_notes(text: str, place: str) -> list[str]:
    """Return the signed notes of a text that holds one after the other, each followed by an empty line.

    Raises:
        ChainBroken: the text ends within a note; `place` is named.
    """
    parts = text.split("\n\n")
    if parts.pop() or len(parts) % 2:
        raise ChainBroken(f"{place} ends within a note: it was cut or edited; restore it from a copy")
    return [f"{body}\n\n{signatures}\n" for body, signatures in zip(parts[::2], parts[1::2], strict=True)]


def size_in(note: str) -> int:
    """Return the size that a note speaks of, signature unchecked; -1 when it speaks of none."""
    line = note.split("\n", 2)[1] if note.count("\n") > 1 else ""
    return int(line) if line.isdecimal() and line.isascii() and len(line) < MAX_DIGITS else -1


class Signer(Protocol):
    """Signs a note text and returns the whole signed note; `name` is the log's origin."""

    @property
    def name(self) -> str:
        """Name of the key."""
        ...

    def sign(self, text: str) -> str:
        """Return text, an empty line and the signature line."""
        ...


class CheckpointPlace(Protocol):
    """Keeps signed notes outside the database, oldest first; nothing is ever changed there or removed.

    Each method raises Unavailable when the place cannot be reached, ChainBroken when what it holds was cut.
    """

    @property
    def name(self) -> str:
        """What messages and the audit log call it."""
        ...

    def newest(self) -> int:
        """Return the size of the newest checkpoint kept, -1 when there is none."""
        ...

    def append(self, note: str) -> None:
        """Keep one more note."""
        ...

    def read(self) -> list[str]:
        """Return all notes."""
        ...


class NoteOpener(Protocol):
    """Checks the signature of a signed note and returns its text; raises ChainBroken otherwise."""

    def open(self, note: str) -> str:
        """Return the signed text."""
        ...
