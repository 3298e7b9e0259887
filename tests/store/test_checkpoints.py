"""Checkpoints in several places: all brought up, one that fails holds up nothing, and one that disagrees is named."""

from datetime import timedelta

import pytest

from specops.core.audit import Checkpoint
from specops.errors import ChainBroken, InvalidInput, Unavailable
from specops.store.checkpoints import FilePlace, mirror, read_notes, refill
from specops.store.verify import verify


class Away:
    """A place that does not answer while it is away."""

    name = "the vault"

    def __init__(self):
        self.away, self.kept = True, []

    def _ask(self):
        if self.away:
            raise Unavailable("no route\nto the vault")

    def newest(self):
        """Return 0-based progress as a size, enough for these tests."""
        self._ask()
        return max((int(note.splitlines()[1]) for note in self.kept), default=-1)

    def append(self, note):
        """Keep."""
        self.kept.append(note)

    def read(self):
        """Return all."""
        self._ask()
        return self.kept


@pytest.fixture
def notes(tmp_path):
    """Return the path of the checkpoints file."""
    return tmp_path / "outside" / "checkpoints.txt"


@pytest.fixture
def copy(tmp_path):
    """Return a second file."""
    return FilePlace(path=tmp_path / "disk" / "copy.txt")


@pytest.fixture
def sign(store, append, signer, notes):
    """Return a function that appends an entry and signs the head."""

    def run():
        append()
        store.checkpoint(signer, notes)

    return run


def test_a_second_file_gets_what_it_lacks(store, sign, notes, copy, signer, t0):
    """Also what was signed before it was set up; nothing twice."""
    sign()
    sign()
    assert copy.newest() == -1
    assert mirror(store, [copy], actor="control", now=t0) == ()
    assert mirror(store, [copy], actor="control", now=t0) == ()
    assert (copy.read(), copy.newest(), copy.name) == (read_notes(notes), 2, str(copy.path))
    found = verify(store, notes, signer.public_key, [copy])
    assert (found.places, found.warnings, found.checkpoints) == ((str(notes), copy.name), (), 2)


def test_a_place_that_is_away_is_told_each_time_and_on_record_once(store, sign, copy, notes, signer, t0):
    """The others are brought up; a week away is one entry, and so is the return."""
    vault = Away()
    for day in range(3):
        sign()
        said = mirror(store, [vault, copy], actor="control", now=t0 + timedelta(days=day))
        assert said == ("checkpoints did not reach the vault: no route to the vault",)
    assert verify(store, notes, signer.public_key, [vault, copy]).warnings[0].startswith("the vault was not compared: no route")
    vault.away = False
    assert mirror(store, [vault], actor="control", now=t0) == ()
    with store.read() as unit:
        tags = [e.tag for e in unit.audit.of("the vault")]
        assert vault.kept == unit.audit.notes()
    assert tags == ["audit:place:failed", "audit:place:recovered"]


def test_a_place_that_lacks_checkpoints_is_a_warning(store, sign, notes, copy, signer, t0):
    """It may have been away; the operator is told how many."""
    sign()
    mirror(store, [copy], actor="control", now=t0)
    sign()
    (said,) = verify(store, notes, signer.public_key, [copy]).warnings
    assert said.endswith("lacks 1 of 2 checkpoints, the first at size 2")


def test_a_fork_in_one_place_is_named(store, sign, notes, copy, signer):
    """Signed by the right key, of another log."""
    sign()
    copy.append(signer.sign(Checkpoint(origin=signer.name, size=1, root=bytes(32)).to_text()))
    with pytest.raises(ChainBroken, match=rf"size 1 disagree: the one in {copy.path} is not of this log"):
        verify(store, notes, signer.public_key, [copy])


def test_an_edited_note_in_one_place_is_named(store, sign, notes, copy, signer):
    """The message says where."""
    sign()
    copy.append(read_notes(notes)[0].replace("\n1\n", "\n2\n"))
    with pytest.raises(ChainBroken, match=rf"does not fit the note .* \({copy.path}\)"):
        verify(store, notes, signer.public_key, [copy])


def test_a_place_for_which_a_package_is_missing_is_a_warning(store, sign, notes, signer):
    """It is no reason to doubt the log."""

    class Missing(Away):
        def _ask(self):
            raise InvalidInput("mlflow is not installed")

    sign()
    assert "mlflow is not installed" in verify(store, notes, signer.public_key, [Missing()]).warnings[0]


def test_a_file_that_lost_checkpoints_is_refilled_and_the_log_says_so(store, sign, notes, signer, t0):
    """Once; when nothing is missing, nothing is said."""
    sign()
    sign()
    whole = notes.read_text()
    notes.unlink()

    (said,) = refill(store, notes, signer.public_key, actor="ann", now=t0)

    assert said == f"2 checkpoints were missing in {notes} and written again, the first over 1 entries"
    assert refill(store, notes, signer.public_key, actor="ann", now=t0) == ()
    assert notes.read_text() == whole
    with store.read() as unit:
        (entry,) = unit.audit.of(str(notes))
    assert (entry.tag, entry.payload) == ("audit:place:refilled", {"notes": 2, "first": 1})


def test_a_note_edited_in_the_database_does_not_get_into_the_file(store, append, signer, notes, t0):
    """What is there once stays for good."""
    append()
    with store.begin() as unit:
        text = Checkpoint(origin=signer.name, size=1, root=unit.audit.root_at(1)).to_text()
        unit.audit.keep_note(1, signer.sign(text).replace("\n1\n", "\n0\n"))
    with pytest.raises(ChainBroken, match="does not fit the note over 0 entries"):
        refill(store, notes, signer.public_key, actor="ann", now=t0)
    assert not notes.exists()


def test_a_file_that_cannot_be_written_or_read_is_unavailable(store, append, signer, tmp_path):
    """And one that is no text was edited."""
    append()
    (tmp_path / "file").write_text("")
    with pytest.raises(Unavailable, match="set checkpoint_path"):
        store.checkpoint(signer, tmp_path / "file" / "checkpoints.txt")
    (tmp_path / "folder").mkdir()
    with pytest.raises(Unavailable, match="cannot read the checkpoints"):
        read_notes(tmp_path / "folder")
    (tmp_path / "file").write_bytes(b"\xff")
    with pytest.raises(ChainBroken, match="no text"):
        read_notes(tmp_path / "file")
