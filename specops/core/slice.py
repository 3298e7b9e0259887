"""A part of the lineage that can travel: one thing and all that it stands on, as plain frozen values.

`control.exchange` cuts it from a store and takes it into another; the exporters in `adapters` write it in other people's
formats. What the parts mean is for `core.release` and `core.pair`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from specops.core.canonical import digest_of
from specops.core.lineage import ancestors
from specops.core.release import Artifact, Edge, Release
from specops.errors import InvalidRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """A finding about a release or rollout; `at` is ISO text, `scope` the digest of hardware or environment, if it has one."""

    subject: str
    kind: str
    payload: dict[str, Any]
    at: str
    scope: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageSlice:
    """What belongs to `subject` (a release id, or the digest of a pair or artifact). `pairs` are records by digest."""

    subject: str
    artifacts: tuple[Artifact, ...] = ()
    edges: tuple[Edge, ...] = ()
    releases: tuple[Release, ...] = ()
    pairs: tuple[tuple[str, dict[str, Any]], ...] = ()
    evidence: tuple[Evidence, ...] = ()

    def __post_init__(self) -> None:
        """Check that each pair's record has the digest that it goes by."""
        for digest, record in self.pairs:
            if (got := digest_of(record)) != digest:
                raise InvalidRecord(f"pair {digest[:16]} is not what its digest says: its record gives {got[:16]}")

    def from_of(self, source: str) -> tuple[Edge, ...]:
        """Return the edges that begin at a digest."""
        return tuple(e for e in self.edges if e.source == source)


def cut(edges: Iterable[Edge], roots: Iterable[str]) -> tuple[frozenset[str], tuple[Edge, ...]]:
    """Return the digests that the roots stand on, roots included, and the edges among them."""
    known = tuple(edges)
    kept: set[str] = set()
    for root in roots:
        if root not in kept:
            kept |= {root, *ancestors(known, root)}
    return frozenset(kept), tuple(e for e in known if e.source in kept and e.target in kept)
