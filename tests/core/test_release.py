"""Identity is content: names do not count, everything that can change text or speed does."""

from dataclasses import replace

import pytest

from specops.core.release import Artifact, ArtifactKind, FileDigest, Release
from specops.errors import InvalidRecord

ONE = FileDigest(path="a.safetensors", size=1, sha256="11")
TWO = FileDigest(path="b.safetensors", size=2, sha256="22")
ARTIFACT = Artifact(kind=ArtifactKind.DRAFT, name="d", files=(ONE, TWO))
RELEASE = Release(name="fast", target="t", tokenizer="k", method="draft_model", draft="d", num_speculative_tokens=4)


def test_two_shards_cannot_be_swapped():
    """The path is bound to its digest, so the same bytes under exchanged names are another artifact."""
    swapped = (replace(ONE, sha256="22", size=2), replace(TWO, sha256="11", size=1))

    assert replace(ARTIFACT, files=swapped).digest != ARTIFACT.digest


def test_where_an_artifact_lies_and_its_name_are_no_identity():
    """A copy elsewhere is the same artifact; another kind or fact is not."""
    assert replace(ARTIFACT, location="/elsewhere", name="x").digest == ARTIFACT.digest
    assert replace(ARTIFACT, kind=ArtifactKind.TARGET).digest != ARTIFACT.digest
    assert replace(ARTIFACT, facts={"licence": "PSF"}).digest != ARTIFACT.digest


@pytest.mark.parametrize("files", [(), (TWO, ONE), (ONE, ONE)])
def test_files_come_sorted_and_once(files):
    """An identity needs one order."""
    with pytest.raises(InvalidRecord, match="in order"):
        replace(ARTIFACT, files=files)


def test_a_release_is_its_content():
    """Renaming keeps the id; another k, draft or engine argument is another release."""
    assert replace(RELEASE, name="other").id == RELEASE.id
    assert RELEASE.id == f"rel-{RELEASE.digest[:12]}"
    for changes in ({"num_speculative_tokens": 5}, {"draft": "e"}, {"engine": {"dtype": "bfloat16"}}, {"tokenizer": "l"}):
        assert replace(RELEASE, **changes).digest != RELEASE.digest


def test_a_record_restores_the_release():
    """Store and restore are inverse."""
    assert Release.from_record(RELEASE.to_record()) == RELEASE


@pytest.mark.parametrize(
    "changes", [{"method": None}, {"method": None, "draft": None}, {"num_speculative_tokens": 0}, {"draft": None}]
)
def test_a_release_that_does_not_fit_together_is_refused(changes):
    """A draft without a method, a method without k, a draft model without a draft."""
    with pytest.raises(InvalidRecord):
        replace(RELEASE, **changes)


def test_plain_decoding_needs_nothing():
    """The fallback is a release like any other."""
    assert Release(name="plain", target="t", tokenizer="k").num_speculative_tokens == 0


BAD_NAMES = ["", "   ", "new\nline", "nul\x00", "esc\x1b[31m", "\ud800", "a" * 201, "a" * 100_000]


@pytest.mark.parametrize("name", BAD_NAMES, ids=range(len(BAD_NAMES)))
def test_a_name_that_cannot_be_typed_or_printed_is_refused(name):
    """Of a release and of an artifact; the message stays short and on one line."""
    for what in (RELEASE, ARTIFACT):
        with pytest.raises(InvalidRecord, match="expected 1 to 200 printable ones") as caught:
            replace(what, name=name)
        assert len(str(caught.value)) < 400
        assert str(caught.value).isprintable()


@pytest.mark.parametrize("name", ["a", "a" * 200, "n\u00e4me \U0001f680 [red]x[/red]"])
def test_any_printable_name_will_do(name):
    """Whatever the language."""
    assert replace(RELEASE, name=name).id == RELEASE.id


@pytest.mark.parametrize("k", [-3, 0, 129, 10**30, -(10**5000)], ids=range(5))
def test_k_is_what_an_engine_can_propose(k):
    """An engine samples at most 128 proposals in a round."""
    with pytest.raises(InvalidRecord, match="1 <= num_speculative_tokens <= 128") as caught:
        replace(RELEASE, num_speculative_tokens=k)

    assert len(str(caught.value)) < 200
    assert all(replace(RELEASE, num_speculative_tokens=k).num_speculative_tokens == k for k in (1, 128))
