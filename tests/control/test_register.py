"""Registering is all or nothing, and doing it twice is doing it once."""

from dataclasses import replace

import pytest

from specops.control.register import enroll, register, registered_names
from specops.core.candidate import Candidate, Model
from specops.core.imports import Imported
from specops.core.pair import Side
from specops.core.release import Artifact, ArtifactKind, Edge, EdgeKind, FileDigest, TensorDigest
from specops.core.tokenizer_file import parse_tokenizer
from specops.errors import IncompatibleRelease, InvalidRecord
from tests.tokenizer_files import bpe


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
        assert EDGE in unit.edges.all()
        assert len(unit.audit.all()) == 5


def test_registering_twice_adds_nothing(store, run):
    """The second run returns the same ids and writes no audit entry."""
    assert run() == run()
    with store.read() as unit:
        assert len(unit.audit.all()) == 5


def test_a_cycle_registers_nothing(store, run):
    """A draft cannot be the parent of its parent; nothing of the call is kept."""
    back = Edge(source=TARGET.digest, kind=EdgeKind.DISTILLED_FROM, target=DRAFT.digest)
    with pytest.raises(InvalidRecord):
        run(edges=(EDGE, back))
    with store.read() as unit:
        assert (unit.artifacts.all(), unit.releases.all(), unit.audit.all()) == ([], [], [])


CONFIG = {"vocab_size": 8, "hidden_size": 16, "max_position_embeddings": 128}


def _model(artifact):
    side = Side(digest=artifact.digest, config=CONFIG, tokenizer=parse_tokenizer(bpe(), "tokenizer.json"))
    return Model(imported=Imported(artifacts=(artifact,)), side=side)


@pytest.fixture
def candidate():
    """Return a function that makes a speculative candidate of the pair."""

    def make(**changes):
        plain = {"name": "cand", "target": _model(TARGET), "draft": _model(DRAFT), "method": "draft_model"}
        return Candidate(**({"num_speculative_tokens": 4} | plain | changes))

    return make


def test_an_enrolled_candidate_is_a_pair_and_a_release_with_their_edges(store, clock, candidate):
    """Who depends on the draft is found by its edges, and each thing has its entry."""
    done = enroll(store, candidate(), actor="ann", now=clock())

    with store.read() as unit:
        assert unit.pairs.get(done.release.pair) == done.pair
        assert {e.source for e in unit.edges.into([DRAFT.digest])} == {done.pair.digest, done.release.digest}
        assert len(unit.audit.all()) == 4


def test_enrolling_twice_adds_nothing(store, clock, candidate):
    """The same bytes are the same release."""
    first = enroll(store, candidate(), actor="ann", now=clock())

    assert enroll(store, candidate(), actor="ann", now=clock()) == first
    with store.read() as unit:
        assert len(unit.audit.all()) == 4


def test_a_lossy_release_is_registered_only_when_allowed_by_name(store, clock, candidate):
    """And what was allowed is on record, in the release and in its entry."""
    lossy = candidate(speculative_config={"rejection_sample_method": "fly"})
    with pytest.raises(IncompatibleRelease, match="is not exact: rejection_sample_method: fly"):
        enroll(store, lossy, actor="ann", now=clock())

    done = enroll(store, lossy, allow_lossy=["fly"], actor="ann", now=clock())

    with store.read() as unit:
        assert unit.releases.get("cand").lossy == done.release.lossy == ("rejection_sample_method: fly",)


def test_the_teacher_is_taken_from_the_lineage(store, clock, candidate):
    """A draft that was distilled from another model is stale from its first release on."""
    other = _artifact(ArtifactKind.TARGET, "other")
    edge = Edge(source=DRAFT.digest, kind=EdgeKind.DISTILLED_FROM, target=other.digest)
    register(store, artifacts=(DRAFT, other), edges=(edge,), releases=(), actor="ann", now=clock())

    assert enroll(store, candidate(), actor="ann", now=clock()).pair.is_stale
    assert not enroll(store, candidate(name="b", teacher=TARGET.digest), actor="ann", now=clock()).pair.is_stale


def test_a_release_must_be_made_of_the_pair_it_names(store, clock, candidate):
    """A proof is no proof for another draft."""
    done = enroll(store, candidate(), actor="ann", now=clock())
    other = replace(done.release, name="other", draft="d" * 64)

    with pytest.raises(IncompatibleRelease, match="its draft is dddddddddddddddd, pair"):
        register(store, artifacts=(), edges=(), releases=(other,), actor="ann", now=clock())


def test_equal_tensors_draw_an_edge_of_their_own(store, clock):
    """Found from the digests, and said so in the log."""
    pair = [
        replace(a, tensors=(TensorDigest(file="f", name="w", dtype="F32", shape=(8, 8), digest="b3:" + "1" * 64),))
        for a in (TARGET, DRAFT)
    ]

    register(store, artifacts=pair, edges=(), releases=(), actor="ann", now=clock())

    with store.read() as unit:
        assert [e.kind for e in unit.edges.all()] == [EdgeKind.SHARES_TENSORS_WITH]
        assert len(unit.audit.all()) == 3


@pytest.mark.parametrize("end", ["target", "deadbeef", "", "A" * 64, "a" * 65])
def test_an_edge_ends_at_a_whole_digest(store, run, end):
    """A name or abbreviation would lead nowhere; nothing is registered."""
    with pytest.raises(InvalidRecord, match="expected 64 hex digits"):
        run(edges=(Edge(source=DRAFT.digest, kind=EdgeKind.DISTILLED_FROM, target=end),))
    with store.read() as unit:
        assert unit.artifacts.all() == []


def test_a_second_name_for_a_release_is_refused(store, clock, candidate):
    """It says which name the configuration has; the same name again is no error."""
    first = enroll(store, candidate(name="a"), actor="ann", now=clock())
    with pytest.raises(InvalidRecord, match=rf"already registered as a \({first.release.id}\)"):
        enroll(store, candidate(name="b"), actor="ann", now=clock())

    assert enroll(store, candidate(name="a"), actor="ann", now=clock()) == first
    assert registered_names(store, [first.release.digest, "0" * 64]) == {first.release.digest: "a"}
