"""Repositories of what judged and what was found: policies by digest, evidence about releases and rollouts. Both only grow."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, insert, select

from specops.errors import InvalidRecord
from specops.store import schema
from specops.store.edges import batches


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

    def add(
        self, release_id: str, kind: str, payload: dict[str, Any], at: datetime, scope: str | None = None
    ) -> None:
        """Keep a finding about a release (or, by its id, a rollout); `scope` is the digest of the machine it holds for."""
        row = {"subject": release_id, "kind": kind, "payload": payload, "at": at, "scope": scope}
        self._connection.execute(insert(schema.evidence), row)

    def of(self, release_id: str) -> list[dict[str, Any]]:
        """Return the findings, oldest first, each with subject, kind, payload, at (ISO text), and scope where it has one."""
        return self.about([release_id])

    def about(self, subjects: Iterable[str]) -> list[dict[str, Any]]:
        """Return the findings about any of the subjects, oldest first."""
        return self._rows(schema.evidence.c.subject.in_(batch) for batch in batches(list(dict.fromkeys(subjects))))

    def listed(self, subjects: Iterable[str]) -> list[tuple[str, str, datetime, str | None]]:
        """Return subject, kind, time and scope of the findings about any of the subjects, oldest first; reads no payload."""
        table = schema.evidence
        columns = (table.c.id, table.c.subject, table.c.kind, table.c.at, table.c.scope)
        rows = [
            row
            for batch in batches(list(dict.fromkeys(subjects)))
            for row in self._connection.execute(select(*columns).where(table.c.subject.in_(batch)))
        ]
        return [(row.subject, row.kind, row.at, row.scope) for row in sorted(rows, key=lambda row: row.id)]

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        """Return the findings of a kind, oldest first."""
        return self._rows([schema.evidence.c.kind == kind])

    def _rows(self, conditions: Iterable[ColumnElement[bool]]) -> list[dict[str, Any]]:
        table = schema.evidence
        columns = (table.c.id, table.c.subject, table.c.kind, table.c.payload, table.c.at, table.c.scope)
        rows = sorted((row for condition in conditions for row in self._connection.execute(select(*columns).where(condition))),
                      key=lambda row: row.id)  # fmt: skip
        return [_finding(row) for row in rows]


def _finding(row: Any) -> dict[str, Any]:  # noqa: ANN401  # a row
    scope = {} if row.scope is None else {"scope": row.scope}
    return {"subject": row.subject, "kind": row.kind, "payload": row.payload, "at": row.at.isoformat()} | scope
