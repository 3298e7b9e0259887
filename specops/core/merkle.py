"""The Merkle tree under the audit log: hashing, the frontier that grows it, and its two proofs.

Everything works on leaf hashes; who stores them and who signs a root is decided elsewhere (`store.audit`, `adapters.signing`).
Source: RFC 6962 section 2.1 for the tree, RFC 9162 sections 2.1.3 and 2.1.4 for the proofs and their checks.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Self

from specops.errors import InvalidRecord

EMPTY_ROOT = hashlib.sha256(b"").digest()
_HASH_BYTES = 32
Range = tuple[int, int]
"""Leaves from a number up to, and without, another."""


def leaf_hash(data: bytes) -> bytes:
    """Return the hash of an entry: SHA-256(0x00 || data), 32 bytes."""
    return hashlib.sha256(b"\x00" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of an inner node: SHA-256(0x01 || left || right), 32 bytes."""
    return hashlib.sha256(b"\x01" + left + right).digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Frontier:
    """All that is needed to append: the roots of the perfect subtrees, largest first, one per 1-bit of `size`."""

    size: int = 0
    peaks: tuple[bytes, ...] = ()

    def __post_init__(self) -> None:
        """Check that there is one whole hash per 1-bit of the size."""
        if self.size < 0 or len(self.peaks) != self.size.bit_count() or any(len(p) != _HASH_BYTES for p in self.peaks):
            raise InvalidRecord(
                f"frontier of size {self.size} needs {self.size.bit_count()} hashes of 32 bytes, got {len(self.peaks)}"
            )

    def append(self, leaf: bytes) -> Self:
        """Return the frontier after one more leaf hash; O(log size) like a binary counter's carry."""
        peaks, carry, size = list(self.peaks), leaf, self.size
        while size & 1:
            carry, size = node_hash(peaks.pop(), carry), size >> 1
        return type(self)(size=self.size + 1, peaks=(*peaks, carry))

    @property
    def root(self) -> bytes:
        """The tree's root, 32 bytes; SHA-256 of nothing for the empty tree."""
        if not self.peaks:
            return EMPTY_ROOT
        value = self.peaks[-1]
        for peak in reversed(self.peaks[:-1]):
            value = node_hash(peak, value)
        return value

    def to_bytes(self) -> bytes:
        """Return the peaks, joined; `from_bytes` is the inverse."""
        return b"".join(self.peaks)

    @classmethod
    def from_bytes(cls, size: int, raw: bytes) -> Self:
        """Build a frontier from its size and joined peaks.

        Raises:
            InvalidRecord: the bytes are not one hash per 1-bit of the size.
        """
        return cls(size=size, peaks=tuple(raw[i : i + _HASH_BYTES] for i in range(0, len(raw), _HASH_BYTES)))


@dataclass(slots=True)
class Growth:
    """A frontier that grows in place: what `Frontier.append` does, without a new object for each of a million entries."""

    size: int = 0
    peaks: list[bytes] = field(default_factory=list)

    def append(self, leaf: bytes) -> None:
        """Add one leaf hash."""
        peaks, carry, size = self.peaks, leaf, self.size
        while size & 1:
            carry, size = hashlib.sha256(b"\x01" + peaks.pop() + carry).digest(), size >> 1
        peaks.append(carry)
        self.size += 1

    @property
    def root(self) -> bytes:
        """The tree's root, 32 bytes."""
        if not self.peaks:
            return EMPTY_ROOT
        smaller = reversed(self.peaks)
        value = next(smaller)
        for peak in smaller:
            value = hashlib.sha256(b"\x01" + peak + value).digest()
        return value

    def frontier(self) -> Frontier:
        """Return the present state as a value."""
        return Frontier(size=self.size, peaks=tuple(self.peaks))


def root_of(leaves: Iterable[bytes]) -> bytes:
    """Return the root over leaf hashes."""
    growth = Growth()
    for leaf in leaves:
        growth.append(leaf)
    return growth.root


def roots_of(leaves: Iterable[bytes], ranges: Sequence[Range]) -> tuple[bytes, ...]:
    """Return the root over each range of leaves, in the order of `ranges`, in one pass and with O(log n) memory.

    Args:
        leaves: all leaf hashes from number 0 on; read no further than the last range.
        ranges: (first, end) with first < end, no two of which overlap.

    Raises:
        InvalidRecord: the leaves end before a range does.
    """
    found: dict[Range, bytes] = {}
    rest, numbered = iter(leaves), 0
    for first, end in sorted(ranges):
        growth = Growth()
        for leaf in islice(rest, first - numbered, end - numbered):
            growth.append(leaf)
        if growth.size != end - first:
            raise InvalidRecord(f"the leaves end before number {end - 1}; the log is shorter than the proof needs")
        found[first, end], numbered = growth.root, end
    return tuple(found[one] for one in ranges)


def _split(size: int) -> int:
    """Return the largest power of two below `size` (size >= 2)."""
    return 1 << ((size - 1).bit_length() - 1)


def inclusion_ranges(size: int, index: int) -> tuple[Range, ...]:
    """Return the ranges of leaves whose roots are the inclusion proof of leaf `index` (from 0), lowest first.

    Raises:
        InvalidRecord: there is no such leaf.
    """
    if not 0 <= index < size:
        raise InvalidRecord(f"no leaf {index} in a tree of {size}; ask for one in [0, {size})")
    first, end, ranges = 0, size, []
    while end - first > 1:
        middle = first + _split(end - first)
        if index < middle:
            ranges.append((middle, end))
            end = middle
        else:
            ranges.append((first, middle))
            first = middle
    return tuple(reversed(ranges))


def inclusion_proof(leaves: Sequence[bytes], index: int) -> tuple[bytes, ...]:
    """Return the sibling hashes from leaf `index` (from 0) up to the root, lowest first.

    Raises:
        InvalidRecord: there is no such leaf.
    """
    return roots_of(leaves, inclusion_ranges(len(leaves), index))


def verify_inclusion(leaf: bytes, index: int, size: int, proof: Sequence[bytes], root: bytes) -> bool:
    """Say whether `proof` shows that `leaf` is number `index` (from 0) of the `size` leaves under `root`."""
    if not 0 <= index < size:
        return False
    at, last, value = index, size - 1, leaf
    for sibling in proof:
        if last == 0:
            return False
        if at & 1 or at == last:
            value = node_hash(sibling, value)
            at, last = _climb(at, last)
        else:
            value = node_hash(value, sibling)
        at, last = at >> 1, last >> 1
    return last == 0 and value == root


def _climb(at: int, last: int) -> tuple[int, int]:
    """Skip the levels on which the rightmost node has no sibling."""
    while at and not at & 1:
        at, last = at >> 1, last >> 1
    return at, last


def consistency_ranges(size: int, old_size: int) -> tuple[Range, ...]:
    """Return the ranges whose roots show that the first `old_size` of `size` leaves are a prefix of all of them.

    SUBPROOF of RFC 6962 without recursion: `whole` says that the verifier knows the subtree's root already.

    Raises:
        InvalidRecord: `old_size` is not in [0, size].
    """
    if not 0 <= old_size <= size:
        raise InvalidRecord(f"old size {old_size} is not in [0, {size}]")
    if old_size in (0, size):
        return ()
    first, end, whole = 0, size, True
    ranges: list[Range] = []
    while old_size != end:
        middle = first + _split(end - first)
        if old_size <= middle:
            ranges.append((middle, end))
            end = middle
        else:
            ranges.append((first, middle))
            first, whole = middle, False
    if not whole:
        ranges.append((first, end))
    return tuple(reversed(ranges))


def consistency_proof(leaves: Sequence[bytes], old_size: int) -> tuple[bytes, ...]:
    """Return the hashes which show that the first `old_size` leaves are a prefix of all of them.

    Raises:
        InvalidRecord: `old_size` is not in [0, number of leaves].
    """
    return roots_of(leaves, consistency_ranges(len(leaves), old_size))


def verify_consistency(old_size: int, new_size: int, old_root: bytes, new_root: bytes, proof: Sequence[bytes]) -> bool:
    """Say whether `proof` shows that the tree under `old_root` is a prefix of the one under `new_root`."""
    if not 0 <= old_size <= new_size:
        return False
    if old_size in (0, new_size):
        return not proof and old_root == (new_root if old_size == new_size else EMPTY_ROOT)
    path = (old_root, *proof) if old_size.bit_count() == 1 else tuple(proof)
    if not path:
        return False
    at, last = old_size - 1, new_size - 1
    while at & 1:
        at, last = at >> 1, last >> 1
    old = new = path[0]
    for sibling in path[1:]:
        if last == 0:
            return False
        if at & 1 or at == last:
            old, new = node_hash(sibling, old), node_hash(sibling, new)
            at, last = _climb(at, last)
        else:
            new = node_hash(new, sibling)
        at, last = at >> 1, last >> 1
    return last == 0 and old == old_root and new == new_root
