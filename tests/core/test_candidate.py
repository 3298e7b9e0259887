"""A candidate becomes a pair, a release and its edges, or says what contradicts itself."""

import pytest

from specops.core.candidate import Candidate, Model, build
from specops.core.imports import Imported
from specops.core.pair import Side
from specops.core.release import Artifact, ArtifactKind, Edge, EdgeKind, FileDigest
from specops.core.tokenizer_file import parse_tokenizer
from specops.errors import IncompatibleRelease
from tests.tokenizer_files import bpe

CONFIG = {"vocab_size": 8, "hidden_size": 16, "max_position_embeddings": 128}


def artifact(kind, sign):
    """Return an artifact of one file."""
    return Artifact(kind=kind, name=kind, files=(FileDigest(path="f", size=1, sha256=sign * 64),))


def model(kind, sign, *others, **changes):
    """Return a folder's artifacts and content."""
    weights = artifact(kind, sign)
    edges = tuple(Edge(source=weights.digest, kind=EdgeKind.USES, target=o.digest) for o in others)
    side = Side(**({"digest": weights.digest, "config": CONFIG, "tokenizer": parse_tokenizer(bpe(), "t")} | changes))
    return Model(imported=Imported(artifacts=(weights, *others), edges=edges), side=side)


TOKENIZER = artifact(ArtifactKind.TOKENIZER, "c")
DEFAULTS = artifact(ArtifactKind.GENERATION_CONFIG, "e")
TARGET = model(ArtifactKind.TARGET, "a", TOKENIZER, DEFAULTS, chat_template="9" * 64)
DRAFT = model(ArtifactKind.DRAFT, "b", TOKENIZER)
SPECULATIVE = {"name": "r", "target": TARGET, "draft": DRAFT, "method": "draft_model", "num_speculative_tokens": 4}


def candidate(**changes):
    """Return a candidate that fits, but for the changes."""
    return Candidate(**(SPECULATIVE | changes))


def test_a_candidate_becomes_everything_to_register():
    """Shared artifacts once, every edge, and the release made of all of it."""
    built = build(candidate())

    assert len(built.artifacts) == 4
    assert built.release.pair == built.pair.digest
    assert built.release.speculative_config == {"method": "draft_model", "num_speculative_tokens": 4}
    assert (built.release.chat_template, built.release.generation_config) == ("9" * 64, DEFAULTS.digest)
    assert Edge(source=built.release.digest, kind=EdgeKind.USES, target=TOKENIZER.digest) in built.edges


def test_plain_decoding_has_no_pair():
    """The fallback is a release like others."""
    built = build(candidate(draft=None, method=None, num_speculative_tokens=0))

    assert (built.pair, built.release.method, built.release.speculative_config) == (None, None, {})


def test_changed_generation_defaults_alone_are_another_release():
    """The pair stays proved; the release names other defaults."""
    other = model(ArtifactKind.TARGET, "a", TOKENIZER, artifact(ArtifactKind.GENERATION_CONFIG, "f"), chat_template="9" * 64)

    before, after = build(candidate()), build(candidate(target=other))

    assert before.pair == after.pair
    assert before.release.digest != after.release.digest
    assert before.release.generation_config != after.release.generation_config


def test_changed_tokenizer_settings_alone_are_another_release():
    """tokenizer_config.json frames prompts, though the tokenizer's content is the same."""
    other = model(ArtifactKind.TARGET, "a", artifact(ArtifactKind.TOKENIZER, "d"), DEFAULTS, chat_template="9" * 64)

    assert build(candidate(target=other)).release.engine != build(candidate()).release.engine


def test_an_address_is_no_part_of_a_release():
    """Two replicas on two ports serve the same one."""
    one, two = (
        build(candidate(engine={"name": "vllm", "arguments": {"port": port, "dtype": "bfloat16"}})) for port in (1, 2)
    )

    assert one.release.digest == two.release.digest
    assert one.release.engine["arguments"] == {"dtype": "bfloat16"}


def test_lossy_settings_are_declared_on_the_release():
    """Whether they are allowed is decided at registration."""
    built = build(candidate(speculative_config={"rejection_sample_method": "fly", "method": "draft_model", "model": "x"}))

    assert built.release.lossy == ("rejection_sample_method: fly",)
    assert "model" not in built.release.speculative_config


def test_a_folder_without_files_for_the_tokenizer_names_none():
    """A tokenizer read from elsewhere has no artifact."""
    bare = model(ArtifactKind.TARGET, "a")
    built = build(candidate(target=bare, draft=None, method="ngram"))

    assert "tokenizer_files" not in built.release.engine
    assert built.edges == ()


@pytest.mark.parametrize(("changes", "why"), [
    ({"method": None, "num_speculative_tokens": 0}, "has a draft but no method"),
    ({"method": None, "draft": None}, "speculative configuration but no method"),
    ({"target": model(ArtifactKind.TARGET, "a", tokenizer=None)}, "the target has no tokenizer.json"),
    ({"speculative_config": {"method": "eagle"}}, "method is draft_model, its speculative configuration says 'eagle'"),
    ({"speculative_config": {"num_speculative_tokens": 5}}, "tokens is 4, its speculative configuration says 5"),
])  # fmt: skip
def test_a_contradiction_is_refused(changes, why):
    """Before anything is registered."""
    with pytest.raises(IncompatibleRelease, match=why):
        build(candidate(**changes))
