"""A part of the lineage that can travel: one thing and all that it stands on, as plain frozen values.

`control.exchange` cuts it from a store and takes it into another; the exporters in `adapters` write it in other people's
formats. What the parts mean is for `core.release` and `core.pair`.
"""

from dataclasses import dataclass
from typing import Any

from specops.core.pair import Pair
from specops.core.release import Artifact, Edge, Release


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
    """What belongs to `subject`: a release id, or the digest of a pair or artifact."""

    subject: str
    artifacts: tuple[Artifact, ...] = ()
    edges: tuple[Edge, ...] = ()
    releases: tuple[Release, ...] = ()
    pairs: tuple[Pair, ...] = ()
    evidence: tuple[Evidence, ...] = ()

    def from_of(self, source: str) -> tuple[Edge, ...]:
        """Return the edges that begin at a digest."""
        return tuple(e for e in self.edges if e.source == source)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvenEntry:
    """An audit entry's exact bytes, its index, and the hashes that lead from it to the checkpoint's root."""

    index: int
    raw: bytes
    proof: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """What travels. `note` is the signed checkpoint that the entries are proven under, empty when there is none."""

    part: LineageSlice
    audit: tuple[ProvenEntry, ...] = ()
    note: str = ""
