"""What the lineage questions need of the store beyond `control.ports`: finding by prefix, walks, names, history."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, Protocol

from specops.control import ports
from specops.core.audit import AuditEntry
from specops.core.outcome import Outcome
from specops.core.release import Artifact, Edge, Release, TensorDigest

# ruff: noqa: D102  # each method is one word of the store's vocabulary; store/lineage.py and store/edges.py explain them


class Named(Protocol):
    """What a digest is."""

    @property
    def digest(self) -> str: ...
    @property
    def family(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def name(self) -> str: ...


class Sharing(Protocol):
    """Another artifact with equal tensors."""

    @property
    def other(self) -> str: ...
    @property
    def tensors(self) -> int: ...
    @property
    def values(self) -> int: ...
    @property
    def share(self) -> float: ...


class Artifacts(ports.Artifacts, Protocol):
    """Registered file sets, found by more than their digest."""

    def find(self, text: str, /) -> list[Artifact]: ...
    def of_kind(self, kind: str, /) -> list[Artifact]: ...
    def tensors_of(self, digest: str, /) -> tuple[TensorDigest, ...]: ...
    def sharing(self, digest: str, /) -> Sequence[Sharing]: ...


class Releases(ports.Releases, Protocol):
    """Registered serving configurations, found by more than their name."""

    def find(self, key: str, /) -> list[Release]: ...
    def without_edges(self) -> list[Release]: ...


class Edges(ports.Edges, Protocol):
    """The graph, walked in the database."""

    def out_of(self, nodes: Iterable[str], /) -> list[Edge]: ...
    def into(self, nodes: Iterable[str], /) -> list[Edge]: ...
    def dependants(self, start: Iterable[str], /) -> list[str]: ...
    def ingredients(self, start: Iterable[str], /) -> list[str]: ...


class Names(Protocol):
    """What digests are."""

    def of(self, digests: Iterable[str], /) -> Mapping[str, Named]: ...
    def depending_on(self, start: Sequence[str], /) -> Sequence[Named]: ...
    def pairs(self, key: str, /) -> list[tuple[str, dict[str, Any]]]: ...


class Move(Protocol):
    """A move of an alias."""

    @property
    def release_id(self) -> str: ...
    @property
    def actor(self) -> str: ...
    @property
    def at(self) -> datetime: ...


class Aliases(ports.Aliases, Protocol):
    """Aliases with their past."""

    def history(self, name: str, /) -> Sequence[Move]: ...


class Evidence(ports.Evidence, Protocol):
    """Evidence about many things at once."""

    def listed(self, subjects: Iterable[str], /) -> list[tuple[str, str, datetime, str | None]]: ...
    def of_kind(self, kind: str, /) -> list[dict[str, Any]]: ...


class History(Protocol):
    """Audit entries and outcomes of the past."""

    def entries(self, *sources: str, until: datetime | None = None) -> list[AuditEntry]: ...
    def request(
        self, request_id: str, rollout_id: str | None = None, /
    ) -> list[tuple[str, Outcome, dict[str, Any] | None]]: ...


class Audit(ports.Audit, Protocol):
    """The audit log by subject."""

    def of(self, subject: str, /) -> list[AuditEntry]: ...


class Unit(ports.Unit, Protocol):
    """One transaction, seen by the lineage questions."""

    @property
    def artifacts(self) -> Artifacts: ...
    @property
    def releases(self) -> Releases: ...
    @property
    def edges(self) -> Edges: ...
    @property
    def names(self) -> Names: ...
    @property
    def aliases(self) -> Aliases: ...
    @property
    def evidence(self) -> Evidence: ...
    @property
    def history(self) -> History: ...
    @property
    def audit(self) -> Audit: ...


class Store(Protocol):
    """Opens transactions."""

    def read(self) -> AbstractContextManager[Unit]: ...
    def begin(self) -> AbstractContextManager[Unit]: ...
