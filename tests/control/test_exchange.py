"""Lineage that leaves one store and is taken in by another."""

import pytest

from specops.adapters.lineage_bundle import read_bundle, write_bundle
from specops.adapters.signing import load_or_create
from specops.control.exchange import collect, take_in
from specops.control.register import register
from specops.core.release import Edge, EdgeKind
from specops.errors import InvalidRecord
from tests.adapters.test_exports import AT, DRAFT, MACHINE, PAIR, PART, RELEASE, TARGET


@pytest.fixture
def signer(tmp_path):
    """Return the exporter's key."""
    return load_or_create(tmp_path / "keys")


@pytest.fixture
def source(open_fresh, signer, tmp_path):
    """Return a store with a registered pair, a release, a finding, and a signed log."""
    store = open_fresh()
    with store.begin() as unit:
        unit.pairs.add(PAIR)
    register(store, artifacts=PART.artifacts, edges=PART.edges, releases=PART.releases, actor="ann", now=AT)
    with store.begin() as unit:
        unit.evidence.add(RELEASE.id, "offline", {"ratio": 1.4}, AT, scope=MACHINE.digest)
    store.checkpoint(signer, tmp_path / "checkpoints.txt")
    return store


def test_a_release_travels_with_all_that_it_stands_on(source, open_fresh, signer, tmp_path):
    """Cut, written, read, taken in: the other store answers the same, and its log says where it came from."""
    other = open_fresh()
    with source.read() as unit:
        write_bundle(tmp_path / "b.tar", collect(unit, "spec"), signer)
    bundle, key = read_bundle(tmp_path / "b.tar", signer.public_key)

    with other.begin() as unit:
        taken = take_in(unit, bundle, origin=key.to_line(), actor="bob", now=AT)

    assert (taken.artifacts, taken.releases, taken.pairs, taken.evidence) == (len(bundle.part.artifacts), 1, 1, 1)
    with other.read() as unit:
        assert unit.releases.get("spec") == RELEASE
        assert collect(unit, "spec").part == bundle.part
        entry = unit.audit.of(RELEASE.id)[-1]
    assert (entry.tag, entry.payload["origin"]) == ("lineage:bundle:imported", key.to_line())
    assert {TARGET.digest, DRAFT.digest} <= {a.digest for a in bundle.part.artifacts}
    assert bundle.audit


def test_taking_in_twice_changes_nothing(source, open_fresh):
    """Nothing new, no entry."""
    other = open_fresh()
    with source.read() as unit:
        bundle = collect(unit, RELEASE.id)
    with other.begin() as unit:
        take_in(unit, bundle, origin="k", actor="bob", now=AT)
        size = unit.audit.head().size

        again = take_in(unit, bundle, origin="k", actor="bob", now=AT)

        assert set(vars_of(again)) == {0}
        assert unit.audit.head().size == size


def vars_of(taken):
    """Return the counts."""
    return [getattr(taken, name) for name in ("artifacts", "edges", "pairs", "releases", "evidence")]


def test_a_bundle_that_would_close_a_cycle_is_taken_in_not_at_all(source, open_fresh):
    """The target cannot come from its own draft, whatever another site says."""
    other = open_fresh()
    with other.begin() as unit:
        unit.artifacts.add(TARGET)
        unit.artifacts.add(DRAFT)
        unit.edges.add(Edge(source=TARGET.digest, kind=EdgeKind.FINE_TUNED_FROM, target=DRAFT.digest))
    with source.read() as unit:
        bundle = collect(unit, RELEASE.id)

    with pytest.raises(InvalidRecord, match="cycle"), other.begin() as unit:
        take_in(unit, bundle, origin="k", actor="bob", now=AT)

    with other.read() as unit:
        assert unit.releases.all() == []


def test_an_unsigned_log_sends_no_entries(open_fresh):
    """Nothing can be proven without a checkpoint; an artifact alone can travel too."""
    store = open_fresh()
    with store.begin() as unit:
        unit.artifacts.add(TARGET)

        bundle = collect(unit, TARGET.digest)

    assert bundle.audit == ()
    assert bundle.note == ""
    assert bundle.part.subject == TARGET.digest
    with store.read() as unit, pytest.raises(InvalidRecord, match="nothing is registered"):
        collect(unit, "absent")
