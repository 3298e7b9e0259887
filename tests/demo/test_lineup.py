"""What the story registers describes the shipped files, and nothing came from itself."""

import pytest

from specops.adapters.weights import hash_artifact
from specops.core.lineage import ancestors, check_acyclic
from specops.core.release import ArtifactKind
from specops.demo.lineup import MODEL_FILES, build_lineup
from specops.demo.pair import FOLDER, load_pair

pytestmark = pytest.mark.skipif(not (FOLDER / "target/model.safetensors").exists(), reason="the weights are not trained yet")


@pytest.fixture(scope="module")
def lineup():
    """Return the shipped pair's lineup."""
    return build_lineup(load_pair())


def test_the_edges_are_acyclic_and_among_what_is_registered(lineup):
    """Every end of an edge is an artifact of the lineup."""
    check_acyclic(lineup.edges)
    digests = {a.digest for a in lineup.artifacts}
    assert {d for e in lineup.edges for d in (e.source, e.target)} <= digests


def test_the_draft_descends_from_target_and_recipe(lineup):
    """The whole chain of a draft is in the graph."""
    kinds = {a.digest: a.kind for a in lineup.artifacts}
    reached = {kinds[d] for d in ancestors(lineup.edges, lineup.speculative.draft)}
    assert {ArtifactKind.TARGET, ArtifactKind.RECIPE, ArtifactKind.TOKENIZER} <= reached


def test_the_releases_differ_in_speculation_only(lineup):
    """Same target, tokenizer and engine: what differs is the draft and how it is used."""
    plain, fast = lineup.plain, lineup.speculative
    assert (plain.target, plain.tokenizer, plain.engine) == (fast.target, fast.tokenizer, fast.engine)
    assert (plain.method, fast.method, fast.num_speculative_tokens) == (None, "draft_model", 4)
    assert fast.draft_tokenizer == fast.tokenizer


def test_digests_are_of_the_files(lineup):
    """Hashing the target's files again gives the digest that was registered."""
    (target,) = [a for a in lineup.artifacts if a.kind is ArtifactKind.TARGET]
    again = hash_artifact(ArtifactKind.TARGET, "again", load_pair().target, files=list(MODEL_FILES), facts=target.facts)
    assert again.digest == target.digest == lineup.plain.target
