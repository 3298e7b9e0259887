"""Repositories of what is registered: artifacts, releases, edges, aliases, policies, evidence. All of it only grows."""

from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, insert, or_, select

from specops.core.lineage import check_acyclic
from specops.core.release import Artifact, Edge, Release
from specops.errors import InvalidRecord
from specops.store import mapping, schema


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
        """Return an artifact.

        Raises:
            InvalidRecord: there is none with this digest.
        """
        found = self._find(digest)
        if not found:
            raise InvalidRecord(f"no artifact {digest[:16]}; register it first (specops lineage add)")
        return mapping.artifact_from_row(found[0])

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

    def get(self, id_or_name: str) -> Release:
        """Return a release by id or name.

        Raises:
            InvalidRecord: there is none.
        """
        table = schema.release
        rows = self._connection.execute(select(table).where(or_(table.c.id == id_or_name, table.c.name == id_or_name)))
        found = rows.first()
        if found is None:
            raise InvalidRecord(f"no release {id_or_name}; see specops lineage show for those there are")
        return mapping.release_from_row(found)

    def all(self) -> list[Release]:
        """Return all releases by name."""
        rows = self._connection.execute(select(schema.release).order_by(schema.release.c.name))
        return [mapping.release_from_row(row) for row in rows]


class Edges:
    """What came from what; always acyclic."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, edge: Edge) -> None:
        """Add an edge; adding it again changes nothing.

        Raises:
            InvalidRecord: it would close a cycle.
        """
        known = self.all()
        if edge not in known:
            check_acyclic([*known, edge])
            self._connection.execute(insert(schema.edge), mapping.edge_to_row(edge))

    def all(self) -> list[Edge]:
        """Return all edges in a stable order."""
        table = schema.edge
        rows = self._connection.execute(select(table).order_by(table.c.source, table.c.kind, table.c.target))
        return [mapping.edge_from_row(row) for row in rows]


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


class Policies:
    """The text of each policy that ever judged, by digest."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, digest: str, name: str, text: str) -> None:
        """Keep a policy's text; adding it again changes nothing."""
        if not self._find(digest):
            self._connection.execute(insert(schema.policy), {"digest": digest, "name": name, "text": text})

    def get(self, digest: str) -> str:
        """Return the text of a policy.

        Raises:
            InvalidRecord: there is none with this digest.
        """
        found = self._find(digest)
        if not found:
            raise InvalidRecord(f"no policy {digest[:16]} in the store; it is kept when a rollout starts under it")
        return str(found[0].text)

    def _find(self, digest: str) -> list[Any]:
        return list(self._connection.execute(select(schema.policy).where(schema.policy.c.digest == digest)))


class EvidenceLog:
    """What was found out about a release or a rollout: preflight, offline evaluation, endpoints, data suites."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, release_id: str, kind: str, payload: dict[str, Any], at: datetime) -> None:
        """Keep a finding about a release (or, by its id, a rollout)."""
        row = {"subject": release_id, "kind": kind, "payload": payload, "at": at}
        self._connection.execute(insert(schema.evidence), row)

    def of(self, release_id: str) -> list[dict[str, Any]]:
        """Return the findings, oldest first, each with subject, kind, payload and at (ISO text)."""
        table = schema.evidence
        columns = (table.c.subject, table.c.kind, table.c.payload, table.c.at)
        rows = self._connection.execute(select(*columns).where(table.c.subject == release_id).order_by(table.c.id))
        return [{**row._mapping, "at": row.at.isoformat()} for row in rows]  # noqa: SLF001  # SQLAlchemy's public name
