"""Repositories of what is registered: artifacts, releases, aliases. All of it only grows.

A thing is asked for by its whole name, its digest, or the first eight digits of the digest or more. Edges are in
`store.edges`, findings in `store.evidence`.
"""

import math
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, insert, or_, select

from specops.core.release import Artifact, Release, TensorDigest
from specops.errors import InvalidRecord
from specops.store import mapping, schema
from specops.store.names import begins, is_text

_LISTED = 8  # candidates that an error names


class Sharing(NamedTuple):
    """Another artifact with tensors of the same content: how many of ours, and how many of our values they hold."""

    other: str
    tensors: int
    values: int
    share: float



class AliasEvent(NamedTuple):
    """An alias came to point to a release."""

    name: str
    release_id: str
    actor: str
    at: datetime


class Artifacts:
    """Hashed file sets, by digest."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, artifact: Artifact) -> str:
        """Register an artifact and return its digest; registering it again changes nothing."""
        row = mapping.artifact_to_row(artifact)
        if not self._find(row["digest"]):
            self._connection.execute(insert(schema.artifact), row)
            if artifact.tensors:
                self._connection.execute(
                    insert(schema.tensor), [mapping.tensor_to_row(row["digest"], t) for t in artifact.tensors]
                )
        return str(row["digest"])

    def get(self, digest: str) -> Artifact:
        """Return an artifact by its digest, or by its first digits, eight at least.

        Raises:
            InvalidRecord: there is none, or several begin like this.
            LineageBroken: its row was altered.
        """
        table = schema.artifact
        found = list(self._connection.execute(select(table).where(begins(table.c.digest, digest)).limit(_LISTED)))
        if not found:
            raise InvalidRecord(f"no artifact {digest[:16]}; register it first (specops lineage add)")
        if len(found) > 1:
            names = ", ".join(f"{row.digest[:16]} ({row.name})" for row in found)
            raise InvalidRecord(f"several artifacts begin with {digest}: {names}; give more digits")
        return mapping.checked_artifact(found[0])

    def find(self, text: str) -> list[Artifact]:
        """Return the artifacts of this name or whose digest begins like this (eight digits at least), by kind and name."""
        table = schema.artifact
        asked = select(table).where(or_(is_text(table.c.name, text), begins(table.c.digest, text)))
        rows = self._connection.execute(asked.order_by(table.c.kind, table.c.name, table.c.digest))
        return [mapping.checked_artifact(row) for row in rows]

    def of_kind(self, kind: str) -> list[Artifact]:
        """Return the artifacts of a kind by name."""
        table = schema.artifact
        rows = self._connection.execute(select(table).where(table.c.kind == kind).order_by(table.c.name, table.c.digest))
        return [mapping.artifact_from_row(row) for row in rows]

    def tensors_of(self, digest: str) -> tuple[TensorDigest, ...]:
        """Return the tensors of an artifact by file and name; none where they were not hashed."""
        table = schema.tensor
        rows = self._connection.execute(select(table).where(table.c.artifact == digest).order_by(table.c.file, table.c.name))
        return tuple(mapping.tensor_from_row(row) for row in rows)

    def sharing(self, digest: str) -> list[Sharing]:
        """Return the artifacts that hold tensors of the same content, most values first.

        `share` is in [0, 1]: the shared values over all values of whichever of the two has fewer.
        """
        ours, theirs = schema.tensor.alias("ours"), schema.tensor.alias("theirs")
        asked = (
            select(theirs.c.artifact, ours.c.file, ours.c.name, ours.c.shape)
            .join(theirs, (theirs.c.digest == ours.c.digest) & (theirs.c.artifact != ours.c.artifact))
            .where(ours.c.artifact == digest)
            .distinct()
        )
        values: dict[str, list[int]] = {}
        for row in self._connection.execute(asked):
            values.setdefault(row.artifact, []).append(math.prod(row.shape))
        whole = self._values(digest) if values else 0
        found = [
            Sharing(other, len(each), sum(each), min(1.0, sum(each) / max(1, min(whole, self._values(other)))))
            for other, each in values.items()
        ]
        return sorted(found, key=lambda one: (-one.values, one.other))

    def _values(self, digest: str) -> int:
        rows = self._connection.execute(select(schema.tensor.c.shape).where(schema.tensor.c.artifact == digest))
        return sum(math.prod(row.shape) for row in rows)

    def all(self) -> list[Artifact]:
        """Return all artifacts by kind and name."""
        table = schema.artifact
        rows = self._connection.execute(select(table).order_by(table.c.kind, table.c.name, table.c.digest))
        return [mapping.artifact_from_row(row) for row in rows]

    def _find(self, digest: str) -> list[Any]:
        return list(self._connection.execute(select(schema.artifact).where(schema.artifact.c.digest == digest)))


class Releases:
    """Pinned serving configurations, by id and by their one name."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, release: Release) -> str:
        """Register a release and return its id; registering it again changes nothing.

        Raises:
            InvalidRecord: another configuration has its name, or its configuration has another name.
        """
        row, table = mapping.release_to_row(release), schema.release
        clash = or_(table.c.digest == row["digest"], table.c.name == row["name"], table.c.id == row["id"])
        for known in self._connection.execute(select(table).where(clash)):
            if known.digest != row["digest"]:
                raise InvalidRecord(f"the name {release.name} belongs to {known.id}, this is {release.id}; choose another name")
            if known.name != row["name"]:
                raise InvalidRecord(f"this configuration is registered as {known.name} ({known.id}); use that or set an alias")
            return str(known.id)
        self._connection.execute(insert(table), row)
        return release.id

    def get(self, key: str) -> Release:
        """Return a release by id, name, or digest (eight digits at least).

        Raises:
            InvalidRecord: there is none, or several digests begin like this.
            LineageBroken: its row was altered.
        """
        found = self.find(key)
        if not found:
            raise InvalidRecord(f"no release {key}; see specops lineage show for those there are")
        if len(found) > 1:
            raise InvalidRecord(f"several releases begin with {key}: {', '.join(r.id for r in found)}; give more digits")
        return found[0]

    def find(self, key: str) -> list[Release]:
        """Return the releases of this id or name, or whose digest begins like this (eight digits at least)."""
        table = schema.release
        asked = select(table).where(or_(is_text(table.c.id, key), is_text(table.c.name, key), begins(table.c.digest, key)))
        return [mapping.checked_release(row) for row in self._connection.execute(asked.order_by(table.c.name))]

    def without_edges(self) -> list[Release]:
        """Return the releases that no edge starts from: registered before releases got `uses` edges."""
        table, edge = schema.release, schema.edge
        alone = ~select(edge.c.source).where(edge.c.source == table.c.digest).exists()
        return [mapping.release_from_row(row) for row in self._connection.execute(select(table).where(alone))]

    def all(self) -> list[Release]:
        """Return all releases by name."""
        rows = self._connection.execute(select(schema.release).order_by(schema.release.c.name))
        return [mapping.release_from_row(row) for row in rows]


class Aliases:
    """Names that move between releases; every move stays on record."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def set(self, name: str, release_id: str, actor: str, at: datetime) -> None:
        """Point an alias to a release.

        Raises:
            InvalidRecord: the release is not registered.
        """
        if not self._connection.execute(select(schema.release.c.id).where(schema.release.c.id == release_id)).first():
            raise InvalidRecord(f"alias {name} cannot point to {release_id}: no such release; register it first")
        row = {"name": name, "release_id": release_id, "actor": actor, "at": at}
        self._connection.execute(insert(schema.alias_event), row)

    def get(self, name: str) -> str | None:
        """Return the id that the alias points to now; None when it was never set."""
        history = self.history(name)
        return history[-1].release_id if history else None

    def history(self, name: str) -> list[AliasEvent]:
        """Return every move of the alias, oldest first."""
        table = schema.alias_event
        columns = (table.c.name, table.c.release_id, table.c.actor, table.c.at)
        rows = self._connection.execute(select(*columns).where(table.c.name == name).order_by(table.c.id))
        return [AliasEvent(*row) for row in rows]
