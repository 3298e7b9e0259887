"""Whether an audit log still is what it was: recomputed from its bytes, compared with all that was kept of it.

`store.verify` streams the rows in and names what comes out. What this can show: any change made after a checkpoint that is kept
outside the writer's reach. What it cannot: that an entry was true when it was written. One pass, hashing each entry once, in
memory that does not grow with the log.

Source: RFC 6962 (tree).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from specops.core.audit import Checkpoint, record_of
from specops.core.merkle import EMPTY_ROOT, Frontier, Growth, leaf_hash
from specops.errors import ChainBroken, InvalidRecord

CLOCK_SLACK = timedelta(seconds=1)  # two processes read the clock before they queue for the database
MAX_WARNINGS = 100  # a log under a wrong clock must not fill the memory


class Link(NamedTuple):
    """An entry as stored: its number, its exact bytes, and what else the row says (None where only the bytes were kept).

    `leaf` and `root` are the entry's hash and the root after it; `tag`, `actor`, `subject`, `at` are the columns for queries.
    """

    position: int
    raw: bytes
    root: bytes | None = None
    leaf: bytes | None = None
    tag: str | None = None
    actor: str | None = None
    subject: str | None = None
    at: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """A log that verified: its frontier, and what a person should look at though no byte was altered.

    `clock_backs` counts the entries that are more than a second older than their predecessor; `warnings` names the first 100.
    """

    frontier: Frontier
    warnings: tuple[str, ...] = ()
    clock_backs: int = 0


def verify_chain(links: Iterable[Link], *, head: Frontier | None = None, checkpoints: Sequence[Checkpoint] = ()) -> Chain:
    """Recompute the log from its bytes and compare it with all that was kept of it.

    Args:
        links: the entries in order of their index.
        head: the frontier that the store keeps, if it is at hand.
        checkpoints: signed heads, signatures already checked, from any number of places, in any order.

    Raises:
        ChainBroken: names the first bad entry, or the shortest range that must hold it, and the place that disagrees.
    """
    heads = _by_size(checkpoints)
    growth, proven, before = Growth(), 0, ""
    warnings: list[str] = []
    clock_backs = 0
    _compare(heads.pop(0, []), EMPTY_ROOT, 0, 0)
    for link in links:
        at, root = _follow(growth, link)
        if at < before and _went_back(before, at):
            clock_backs += 1
            if clock_backs <= MAX_WARNINGS:
                warnings.append(f"clock went back at audit entry {link.position}: {at} stands after {before}")
        before = at
        if growth.size in heads:
            _compare(heads.pop(growth.size), root, growth.size, proven)
            proven = growth.size
    for size in sorted(heads):
        _compare_twins(heads[size], size)
        raise ChainBroken(
            f"audit entry {growth.size} is missing: a checkpoint covers {size} entries, the log has {growth.size}; "
            f"the checkpoint is{_in(heads[size][0]) or ' signed'}"
        )
    frontier = growth.frontier()
    if head is not None:
        _compare_head(frontier, head, proven)
    return Chain(frontier=frontier, warnings=tuple(warnings), clock_backs=clock_backs)


def _by_size(checkpoints: Sequence[Checkpoint]) -> dict[int, list[Checkpoint]]:
    """Index checkpoints by size: one of each root, so that ten places that agree are looked at once."""
    heads: dict[int, list[Checkpoint]] = {}
    for checkpoint in checkpoints:
        known = heads.setdefault(checkpoint.size, [])
        if all(other.root != checkpoint.root for other in known):
            known.append(checkpoint)
    return heads


def _compare(heads: Sequence[Checkpoint], root: bytes, size: int, proven: int) -> None:
    """Compare all checkpoints of one size with the recomputed root."""
    wrong = [head for head in heads if head.root != root]
    if not wrong:
        return
    if len(wrong) < len(heads):
        raise ChainBroken(
            f"two signed checkpoints at size {size} disagree: the one{_in(wrong[0])} is not of this log, which was forked "
            f"before entry {size}"
        )
    _compare_twins(heads, size)
    if size == 0:
        raise ChainBroken(f"the checkpoint at size 0{_in(wrong[0])} has the root of a log that is not empty")
    raise ChainBroken(_between(proven, size, f"the checkpoint at size {size}{_in(wrong[0])}"))


def _compare_twins(heads: Sequence[Checkpoint], size: int) -> None:
    """Two different checkpoints of one size are a fork, whatever the log says now."""
    if len(heads) > 1:
        raise ChainBroken(
            f"two signed checkpoints at size {size} disagree with each other{_in(heads[0])} and{_in(heads[1])}: "
            f"the log was forked before entry {size}"
        )


def _in(checkpoint: Checkpoint) -> str:
    return f" in {checkpoint.place}" if checkpoint.place else ""


def _follow(growth: Growth, link: Link) -> tuple[str, bytes]:
    """Check one entry in its place, grow by it, and return its time and the root after it."""
    want = growth.size
    if type(link.position) is not int or type(link.raw) is not bytes:  # a database may hold text in any column
        raise ChainBroken(f"audit entry {want} was altered: its number or its bytes are stored as {type(link.raw).__name__}")
    if link.position != want:
        what = "missing" if link.position > want else "there twice or out of order"
        raise ChainBroken(f"audit entry {want} is {what}: entry {link.position} stands in its place")
    try:
        entry = record_of(link.raw)
    except InvalidRecord as exc:
        raise ChainBroken(f"audit entry {want} was altered: {exc}") from exc
    if entry["index"] != want:
        raise ChainBroken(f"audit entry {want} was altered: its bytes say that it is entry {entry['index']}")
    leaf = leaf_hash(link.raw)
    growth.append(leaf)
    root = growth.root
    if link.root is not None and link.root != root:
        raise ChainBroken(f"audit entry {want} was altered: its bytes ({entry['tag']}) do not give the root stored with it")
    if link.leaf is not None and link.leaf != leaf:
        raise ChainBroken(f"audit entry {want} was altered: its bytes ({entry['tag']}) do not give the hash stored with it")
    if link.tag is not None and (link.tag, link.actor, link.subject, link.at) != (
        entry["tag"], entry["actor"], entry["subject"], entry["at"],
    ):  # fmt: skip
        names = ("tag", "actor", "subject", "at")
        bad = next(name for name in names if getattr(link, name) != entry[name])
        raise ChainBroken(
            f"audit entry {want} was altered: its column {bad} says {getattr(link, bad)!r:.80}, its bytes {entry[bad]!r:.80}"
        )
    return entry["at"], root


def _went_back(before: str, at: str) -> bool:
    """Say whether the clock went back by more than the slack; both times are checked text, which sorts like the times."""
    return datetime.fromisoformat(before) - datetime.fromisoformat(at) > CLOCK_SLACK


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
