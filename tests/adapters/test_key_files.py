"""Secrets in files: made once, private, whole."""

import stat

import pytest

from specops.adapters.key_files import load_or_create_secret
from specops.errors import InvalidInput, RuleViolation, Unavailable


def test_the_secret_is_made_once_and_is_private(tmp_path):
    """First use makes 32 bytes with mode 0600; later uses read the same."""
    secret = load_or_create_secret(tmp_path / "keys")
    path = tmp_path / "keys" / "samples.key"
    assert len(secret) == 32
    assert load_or_create_secret(tmp_path / "keys") == secret
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [p.name for p in path.parent.iterdir()] == ["samples.key"]


def test_a_secret_that_others_can_read_is_not_used(tmp_path):
    """The way out is in the message."""
    load_or_create_secret(tmp_path)
    (tmp_path / "samples.key").chmod(0o644)
    with pytest.raises(RuleViolation, match="chmod 600"):
        load_or_create_secret(tmp_path)


@pytest.mark.parametrize("content", [b"", b"abcd", b"zz" * 32, b"\xff"])
def test_a_file_that_is_no_secret_is_named(tmp_path, content):
    """Cut or foreign: it is not replaced, for that would lose every kept sample."""
    (tmp_path / "samples.key").write_bytes(content)
    (tmp_path / "samples.key").chmod(0o600)
    with pytest.raises(InvalidInput, match=r"samples\.key"):
        load_or_create_secret(tmp_path)


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    """A file where the folder should be."""
    (tmp_path / "x").write_text("")
    with pytest.raises(Unavailable, match="writable"):
        load_or_create_secret(tmp_path / "x")
