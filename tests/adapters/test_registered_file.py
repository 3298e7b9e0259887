"""A registered file is read again only when it still is what was registered."""

import pytest

from specops.adapters.registered_file import MAX_BYTES, read_registered
from specops.core.canonical import sha256_hex
from specops.core.release import Artifact, ArtifactKind, FileDigest


@pytest.fixture
def artifact(tmp_path):
    """Return an artifact in a folder."""
    (tmp_path / "tokenizer.json").write_bytes(b"{}")
    return build(tmp_path)


def build(folder, path="tokenizer.json", size=2):
    """Return an artifact of one file."""
    file = FileDigest(path=path, size=size, sha256=sha256_hex(b"{}"))
    return Artifact(kind=ArtifactKind.TOKENIZER, name="k", files=(file,), location=str(folder))


def test_an_unchanged_file_is_read(artifact):
    """From where it was seen."""
    assert read_registered(artifact, "tokenizer.json") == b"{}"


def test_a_file_artifact_is_read_beside_its_location(tmp_path, artifact):
    """Where the location is the file itself."""
    assert read_registered(build(tmp_path / "tokenizer.json"), "tokenizer.json") == b"{}"


def test_what_is_not_what_was_registered_is_not_read(tmp_path, artifact):
    """Changed, gone, unknown, nowhere, huge, or outside the folder."""
    (tmp_path / "deep").mkdir()
    assert read_registered(artifact, "other.json") is None
    assert read_registered(build(""), "tokenizer.json") is None
    assert read_registered(build(tmp_path, size=MAX_BYTES + 1), "tokenizer.json") is None
    assert read_registered(build(tmp_path / "deep", "../tokenizer.json"), "../tokenizer.json") is None
    (tmp_path / "tokenizer.json").write_bytes(b"[]")
    assert read_registered(artifact, "tokenizer.json") is None
    (tmp_path / "tokenizer.json").unlink()
    assert read_registered(artifact, "tokenizer.json") is None
