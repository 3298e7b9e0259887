"""Registering is all or nothing, and doing it twice is doing it once."""

import pytest

from specops.control.register import register
from specops.core.release import Artifact, ArtifactKind, Edge, EdgeKind, FileDigest
from specops.errors import InvalidRecord


def _artifact(kind, name):
    return Artifact(kind=kind, name=name, files=(FileDigest(path="f", size=1, sha256=name[0] * 64),))


TARGET, DRAFT = _artifact(ArtifactKind.TARGET, "target"), _artifact(ArtifactKind.DRAFT, "draft")
EDGE = Edge(source=DRAFT.digest, kind=EdgeKind.DISTILLED_FROM, target=TARGET.digest)


@pytest.fixture
def run(store, clock, releases):
    """Return a function that registers the pair."""

    def go(edges=(EDGE,)):
        return register(store, artifacts=(TARGET, DRAFT), edges=edges, releases=releases, actor="ann", now=clock())

    return go


def test_everything_is_stored_and_audited(store, run, releases):
    """Artifacts, edge and releases are there, each thing with its entry."""
    assert run() == tuple(r.id for r in releases)
    with store.read() as unit:
        assert {a.digest for a in unit.artifacts.all()} == {TARGET.digest, DRAFT.digest}
        assert unit.edges.all() == [EDGE]
        assert len(unit.audit.all()) == 4


def test_registering_twice_adds_nothing(store, run):
    """The second run returns the same ids and writes no audit entry."""
    assert run() == run()
    with store.read() as unit:
        assert len(unit.audit.all()) == 4
        assert len(unit.edges.all()) == 1


def test_a_cycle_registers_nothing(store, run):
    """A draft cannot be the parent of its parent; nothing of the call is kept."""
    back = Edge(source=TARGET.digest, kind=EdgeKind.DISTILLED_FROM, target=DRAFT.digest)
    with pytest.raises(InvalidRecord):
        run(edges=(EDGE, back))
    with store.read() as unit:
        assert (unit.artifacts.all(), unit.releases.all(), unit.audit.all()) == ([], [], [])
