"""The signing key and its notes."""

import base64
import stat

import pytest

from specops.adapters.signing import KeyRing, PublicKey, Signer, load_or_create, next_key, rotate
from specops.errors import ChainBroken, InvalidInput, RuleViolation, Unavailable

# Key pair and note of the tests of golang.org/x/mod/sumdb/note.
GO_SECRET = "PRIVATE+KEY+PeterNeumann+c74f20a3+AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz"
GO_PUBLIC = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
GO_NOTE = (
    "If you think cryptography is the answer to your problem,\nthen you don't know what your problem is.\n\n"
    "— PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n"
)


@pytest.fixture
def signer(tmp_path):
    """Return a fresh key."""
    return load_or_create(tmp_path / "keys")


def test_a_key_is_made_once_readable_by_its_owner_only(tmp_path, signer):
    """First use makes it with mode 0600 and its public half beside it; later uses read the same."""
    file = tmp_path / "keys" / "audit.key"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert load_or_create(tmp_path / "keys") == signer
    assert PublicKey.load(tmp_path / "keys" / "audit.key.pub") == signer.public_key
    assert sorted(p.name for p in file.parent.iterdir()) == ["audit.key", "audit.key.pub"]
    assert base64.b64encode(signer.seed).decode() not in repr(signer)


def test_a_key_that_others_can_read_is_not_used(tmp_path, signer):
    """The way out is in the message."""
    file = tmp_path / "keys" / "audit.key"
    file.chmod(0o640)
    with pytest.raises(RuleViolation, match=f"chmod 600 {file}"):
        load_or_create(tmp_path / "keys")


def test_a_note_made_by_go_opens_and_is_made_alike(tmp_path):
    """The key lines and the note of Go's own tests: same bytes from us."""
    file = tmp_path / "audit.key"
    file.write_text(GO_SECRET)
    file.chmod(0o600)
    key = PublicKey.from_line(GO_PUBLIC)
    text = key.open(GO_NOTE)

    assert text.endswith("your problem is.\n")
    assert load_or_create(tmp_path).sign(text) == GO_NOTE
    assert (tmp_path / "audit.key.pub").read_text().strip() == GO_PUBLIC


def test_signatures_of_unknown_keys_are_ignored(signer):
    """A witness may add its line; one that is garbled belongs to nobody."""
    note = signer.sign("text\n") + "\u2014 witness AAAAAAAA\n\u2014 witness !!\nrubbish\n"
    assert signer.public_key.open(note) == "text\n"


@pytest.mark.parametrize(("edit", "message"), [
    (lambda note: note.replace("text", "next"), "does not fit"),
    (lambda note: note.replace("\n\n", "\n"), "not a signed note"),
    (lambda note: note.replace("\u2014 specops", "\u2014 other"), "is not signed by"),
    (lambda note: note[:-5] + "\n", "is not signed by|does not fit"),
    (lambda note: "", "not a signed note"),
])  # fmt: skip
def test_an_edited_note_does_not_open(signer, edit, message):
    """Text, gap, name, signature: each edit is refused."""
    with pytest.raises(ChainBroken, match=message):
        signer.public_key.open(edit(signer.sign("text\n")))


def test_a_note_of_another_key_of_the_same_name_does_not_open(tmp_path, signer):
    """The key id tells two keys of one name apart."""
    other = load_or_create(tmp_path / "other")
    with pytest.raises(ChainBroken, match="was the signing key replaced"):
        signer.public_key.open(other.sign("text\n"))


def test_a_text_without_final_newline_is_not_signed(signer):
    """The format needs one."""
    with pytest.raises(InvalidInput, match="newline"):
        signer.sign("text")


@pytest.mark.parametrize(
    "line", ["", "a+b", "name+00000000+AAAA", GO_PUBLIC.replace("c74f20a3", "c74f20a4"), "a b+00+AAAA", "n+zz+AA=="]
)
def test_a_line_that_is_no_public_key_is_refused(line):
    """Cut or edited key lines are named as such."""
    with pytest.raises(InvalidInput):
        PublicKey.from_line(line)


def test_files_that_are_no_key_are_refused(tmp_path):
    """Missing, foreign or unwritable: one line each."""
    with pytest.raises(InvalidInput, match="no signing key"):
        Signer.load(tmp_path / "none")
    with pytest.raises(InvalidInput, match="cannot read"):
        PublicKey.load(tmp_path / "none")
    (tmp_path / "audit.key").write_text("hello")
    (tmp_path / "audit.key").chmod(0o600)
    with pytest.raises(InvalidInput, match="is not a signing key"):
        load_or_create(tmp_path)
    with pytest.raises(InvalidInput, match="no space"):
        load_or_create(tmp_path / "k", name="a b")
    with pytest.raises(Unavailable, match="writable"):
        load_or_create(tmp_path / "audit.key")


def test_after_a_rotation_notes_of_both_keys_open(tmp_path, signer):
    """The old public half stays, the old private half goes; the next key is made once."""
    folder = tmp_path / "keys"
    old = signer.sign("old\n")
    assert next_key(folder) == next_key(folder)
    line = rotate(folder).to_line()
    new = load_or_create(folder)

    ring = KeyRing.load(folder)
    assert (ring.open(old), ring.open(new.sign("new\n"))) == ("old\n", "new\n")
    assert new.name == signer.name
    assert new.seed != signer.seed
    assert (folder / "audit.key.pub").read_text().strip() == line
    assert stat.S_IMODE((folder / "audit.key").stat().st_mode) == 0o600
    assert not (folder / "audit.key.next").exists()
    with pytest.raises(ChainBroken, match=r"not signed by specops/audit\+"):
        PublicKey.load(folder / "audit.key.pub").open(old)


def test_a_rotation_killed_halfway_is_repaired_at_the_next_use(tmp_path, signer):
    """The public half follows the private one."""
    folder = tmp_path / "keys"
    (folder / "audit.key.pub").write_text(GO_PUBLIC)
    load_or_create(folder)
    assert PublicKey.load(folder / "audit.key.pub") == signer.public_key


def test_a_note_with_a_false_line_of_a_known_key_does_not_open(tmp_path, signer):
    """A good signature does not cover for a bad one beside it."""
    folder = tmp_path / "keys"
    note, wrong = signer.sign("text\n"), signer.sign("other\n").splitlines()[-1]
    next_key(folder)
    rotate(folder)
    with pytest.raises(ChainBroken, match="does not fit"):
        KeyRing.load(folder).open(f"{note}{wrong}\n")


def test_a_folder_that_cannot_be_written_keeps_its_key(tmp_path, signer):
    """No next key, or no folder for it: the present one stays."""
    with pytest.raises(InvalidInput, match="no signing key"):
        rotate(tmp_path / "keys")
    (tmp_path / "keys" / f"audit-{signer.public_key.id.hex()}.pub").mkdir()
    next_key(tmp_path / "keys")
    with pytest.raises(Unavailable, match="writable"):
        rotate(tmp_path / "keys")
    assert load_or_create(tmp_path / "keys") == signer
