"""The Merkle tree under the audit log: hashing, the frontier that grows it, and its two proofs.

Everything works on leaf hashes; who stores them and who signs a root is decided elsewhere (`store.audit`, `adapters.signing`).
Source: RFC 6962 section 2.1 for the tree, RFC 9162 sections 2.1.3 and 2.1.4 for the proofs and their checks.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from specops.errors import InvalidRecord

EMPTY_ROOT = hashlib.sha256(b"").digest()
_HASH_BYTES = 32


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


def root_of(leaves: Sequence[bytes]) -> bytes:
    """Return the root over leaf hashes."""
    frontier = Frontier()
    for leaf in leaves:
        frontier = frontier.append(leaf)
    return frontier.root


def _split(size: int) -> int:
    """Return the largest power of two below `size` (size >= 2)."""
    return 1 << ((size - 1).bit_length() - 1)


def inclusion_proof(leaves: Sequence[bytes], index: int) -> tuple[bytes, ...]:
    """Return the sibling hashes from leaf `index` (from 0) up to the root, lowest first.

    Raises:
        InvalidRecord: there is no such leaf.
    """
    if not 0 <= index < len(leaves):
        raise InvalidRecord(f"no leaf {index} in a tree of {len(leaves)}; ask for one in [0, {len(leaves)})")
    if len(leaves) == 1:
        return ()
    k = _split(len(leaves))
    if index < k:
        return (*inclusion_proof(leaves[:k], index), root_of(leaves[k:]))
    return (*inclusion_proof(leaves[k:], index - k), root_of(leaves[:k]))


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


def consistency_proof(leaves: Sequence[bytes], old_size: int) -> tuple[bytes, ...]:
    """Return the hashes which show that the first `old_size` leaves are a prefix of all of them.

    Raises:
        InvalidRecord: `old_size` is not in [0, number of leaves].
    """
    if not 0 <= old_size <= len(leaves):
        raise InvalidRecord(f"old size {old_size} is not in [0, {len(leaves)}]")
    return _subproof(leaves, old_size, whole=True) if 0 < old_size < len(leaves) else ()


def _subproof(leaves: Sequence[bytes], old_size: int, *, whole: bool) -> tuple[bytes, ...]:
    """SUBPROOF of RFC 6962; `whole` says that the verifier knows this subtree's root already."""
    if old_size == len(leaves):
        return () if whole else (root_of(leaves),)
    k = _split(len(leaves))
    if old_size <= k:
        return (*_subproof(leaves[:k], old_size, whole=whole), root_of(leaves[k:]))
    return (*_subproof(leaves[k:], old_size - k, whole=False), root_of(leaves[:k]))


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
