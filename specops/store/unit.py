"""The unit of work: every repository on one transaction. `Store.begin` makes it, commits it, or rolls it back."""

from pathlib import Path

from sqlalchemy import Connection

from specops.store.audit import AuditLog
from specops.store.edges import Edges
from specops.store.evidence import EvidenceLog, Policies
from specops.store.history import History
from specops.store.lineage import Aliases, Artifacts, Releases
from specops.store.names import Names
from specops.store.pairs import Pairs
from specops.store.rollouts import Leases, Outbox, Rollouts, Verdicts, Windows, next_value
from specops.store.samples import Samples
from specops.store.segments import Outcomes


class Unit:
    """All that one transaction can read and write. Use it only inside its `with` block."""

    def __init__(self, connection: Connection, segments: Path) -> None:
        self._connection = connection
        self.artifacts = Artifacts(connection)
        self.releases = Releases(connection)
        self.edges = Edges(connection)
        self.names = Names(connection)
        self.pairs = Pairs(connection)
        self.aliases = Aliases(connection)
        self.policies = Policies(connection)
        self.evidence = EvidenceLog(connection)
        self.rollouts = Rollouts(connection)
        self.windows = Windows(connection)
        self.verdicts = Verdicts(connection)
        self.outcomes = Outcomes(connection, segments)
        self.audit = AuditLog(connection)
        self.history = History(connection, segments)
        self.outbox = Outbox(connection)
        self.leases = Leases(connection)
        self.samples = Samples(connection)

    def next_revision(self, *, beyond: int = 0) -> int:
        """Return the next route revision; it only grows, and is above `beyond`."""
        return next_value(self._connection, "route_revision", beyond=beyond)
