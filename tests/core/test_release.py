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
