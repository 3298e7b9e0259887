"""What an audit entry is, byte for byte, and whether a log of them still is what it was.

`store.audit` appends entries and keeps the frontier, `store.checkpoints` has heads signed, `store.verify` calls `verify_chain`:
storing and signing are left to them. What this can show: any change made after a checkpoint that is kept outside the writer's
reach. What it cannot: that an entry was true when it was written.

Sources: RFC 6962 (tree), RFC 8785 (bytes), C2SP tlog-checkpoint (note text).
"""

import base64
import binascii
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Protocol, Self

from specops.core.canonical import canonical
from specops.core.merkle import Frontier, leaf_hash
from specops.errors import ChainBroken, InvalidRecord

_TAG = re.compile(r"[a-z][a-z0-9_]*(:[a-z][a-z0-9_]*){2}")
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
        if not _TAG.fullmatch(self.tag):
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
        try:
            return canonical(asdict(self) | {"at": self.at.astimezone(UTC).isoformat(timespec="microseconds")})
        except ValueError as exc:
            raise InvalidRecord(f"payload of audit entry {self.tag} is not canonical JSON: {exc}; pass it as a string") from exc

    @classmethod
    def from_bytes(cls, raw: bytes) -> Self:
        """Read an entry from its bytes.

        Raises:
            InvalidRecord: these are not the canonical bytes of an entry.
        """
        try:
            record = json.loads(raw)
            entry = cls(**(record | {"at": datetime.fromisoformat(record["at"])}))
        except (KeyError, TypeError, ValueError) as exc:
            raise InvalidRecord(f"not an audit entry: {exc!r}") from exc
        if entry.to_bytes() != raw:
            raise InvalidRecord(f"audit entry {entry.index} is not in canonical form")
        return entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A statement about the log at one size: its name (`origin`) and its root, 32 bytes."""

    origin: str
    size: int
    root: bytes

    def to_text(self) -> str:
        """Return the note text of C2SP tlog-checkpoint: three lines, each ended by a newline."""
        return f"{self.origin}\n{self.size}\n{base64.b64encode(self.root).decode()}\n"

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read a checkpoint from its note text; extension lines after the third are allowed and ignored.

        Raises:
            InvalidRecord: the text is not a checkpoint.
        """
        lines = text.split("\n")
        try:
            origin, size, root = lines[0], int(lines[1]), base64.b64decode(lines[2], validate=True)
        except (IndexError, ValueError, binascii.Error) as exc:
            raise InvalidRecord(f"not a checkpoint note: {text!r}") from exc
        if not origin or str(size) != lines[1] or size < 0 or len(root) != _ROOT_BYTES:
            raise InvalidRecord(f"not a checkpoint note: {text!r}")
        return cls(origin=origin, size=size, root=root)


class Signer(Protocol):
    """Signs a note text and returns the whole signed note; `name` is the log's origin."""

    @property
    def name(self) -> str:
        """Name of the key."""
        ...

    def sign(self, text: str) -> str:
        """Return text, an empty line and the signature line."""
        ...


class NoteOpener(Protocol):
    """Checks the signature of a signed note and returns its text; raises ChainBroken otherwise."""

    def open(self, note: str) -> str:
        """Return the signed text."""
        ...


@dataclass(frozen=True, slots=True)
class Link:
    """An entry as stored: its number, its exact bytes, and the root after it (None where only the bytes were kept)."""

    index: int
    raw: bytes
    root: bytes | None = None


def verify_chain(links: Iterable[Link], *, head: Frontier | None = None, checkpoints: Sequence[Checkpoint] = ()) -> Frontier:
    """Recompute the log from its bytes and compare it with all that was kept of it.

    Args:
        links: the entries in order of their index.
        head: the frontier that the store keeps, if it is at hand.
        checkpoints: signed heads, signatures already checked, in any order.

    Returns:
        The recomputed frontier.

    Raises:
        ChainBroken: names the first bad entry, or the shortest range that must hold it.
    """
    heads = _by_size(checkpoints)
    frontier, proven = Frontier(), 0
    for link in links:
        frontier = _follow(frontier, link)
        if frontier.size in heads:
            if heads[frontier.size].root != frontier.root:
                raise ChainBroken(_between(proven, frontier.size, f"the checkpoint at size {frontier.size}"))
            proven = frontier.size
    for size in sorted(heads):
        if size > frontier.size:
            raise ChainBroken(
                f"audit entry {frontier.size} is missing: a checkpoint covers {size} entries, the log has {frontier.size}"
            )
    if head is not None:
        _compare_head(frontier, head, proven)
    return frontier


def _by_size(checkpoints: Sequence[Checkpoint]) -> dict[int, Checkpoint]:
    """Index checkpoints by size; two different ones of one size are a fork."""
    heads: dict[int, Checkpoint] = {}
    for checkpoint in checkpoints:
        known = heads.setdefault(checkpoint.size, checkpoint)
        if known.root != checkpoint.root:
            raise ChainBroken(
                f"two signed checkpoints at size {checkpoint.size} disagree: the log was forked before entry {checkpoint.size}"
            )
    empty = heads.pop(0, None)
    if empty is not None and empty.root != Frontier().root:
        raise ChainBroken("the checkpoint at size 0 has the root of a log that is not empty")
    return heads


def _follow(frontier: Frontier, link: Link) -> Frontier:
    """Check one entry in its place and return the frontier after it."""
    want = frontier.size
    if link.index != want:
        what = "missing" if link.index > want else "there twice or out of order"
        raise ChainBroken(f"audit entry {want} is {what}: entry {link.index} stands in its place")
    try:
        entry = AuditEntry.from_bytes(link.raw)
    except InvalidRecord as exc:
        raise ChainBroken(f"audit entry {want} was altered: {exc}") from exc
    if entry.index != want:
        raise ChainBroken(f"audit entry {want} was altered: its bytes say that it is entry {entry.index}")
    grown = frontier.append(leaf_hash(link.raw))
    if link.root is not None and link.root != grown.root:
        raise ChainBroken(f"audit entry {want} was altered: its bytes ({entry.tag}) do not give the root stored with it")
    return grown


def _compare_head(frontier: Frontier, head: Frontier, proven: int) -> None:
    """Compare with the head that the store keeps."""
    if frontier.size != head.size:
        what = "missing" if frontier.size < head.size else "one that the log's head does not know"
        raise ChainBroken(
            f"audit entry {min(frontier.size, head.size)} is {what}: {frontier.size} entries, head says {head.size}"
        )
    if frontier != head:
        raise ChainBroken(_between(proven, frontier.size, "the log's head"))


def _between(proven: int, size: int, against: str) -> str:
    """Say where the first bad entry must be."""
    where = f"audit entry {proven} was" if size - proven == 1 else f"one of the audit entries {proven}..{size - 1} was"
    return f"{where} altered: the recomputed root differs from {against}"
