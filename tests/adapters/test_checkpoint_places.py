"""Checkpoints in git notes and in MLflow: kept in order, read back, and a place that is away says so."""

import subprocess

import pytest

from specops.adapters.checkpoint_places import GitNotePlace, MlflowPlace
from specops.adapters.signing import load_or_create
from specops.core.audit import Checkpoint
from specops.errors import ChainBroken, Unavailable


@pytest.fixture
def notes(tmp_path):
    """Return three signed checkpoints."""
    signer = load_or_create(tmp_path / "keys")
    return [signer.sign(Checkpoint(origin=signer.name, size=n, root=bytes([n]) * 32).to_text()) for n in (0, 3, 12)]


def git(folder, *arguments, stdin=None):
    """Run git."""
    who = ("-c", "user.name=t", "-c", "user.email=t@t")
    subprocess.run(["git", "-C", folder, *who, *arguments], input=stdin, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path):
    """Return a repository with one commit."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init")
    git(folder, "commit", "--allow-empty", "-m", "first")
    return folder


def test_git_keeps_notes_in_order_through_later_commits(repository, notes):
    """Byte for byte what was signed, under a ref of its own."""
    place = GitNotePlace(repository=repository)
    assert (place.newest(), place.read()) == (-1, [])
    for note in notes:
        place.append(note)
        git(repository, "commit", "--allow-empty", "-m", "later")
    assert (place.newest(), place.read()) == (12, notes)
    assert place.name == f"git notes of {repository}"


def test_an_edited_git_note_is_found(repository, notes):
    """A note of which the end is gone is no note."""
    place = GitNotePlace(repository=repository)
    place.append(notes[0])
    git(repository, "notes", "--ref=specops", "append", "-m", "half a note", "HEAD")
    with pytest.raises(ChainBroken, match=r"git notes of .* ends within a note"):
        place.read()


def test_a_repository_that_is_none_or_empty_is_named(tmp_path):
    """One line with what git said."""
    with pytest.raises(Unavailable, match="checkpoint_git"):
        GitNotePlace(repository=tmp_path / "nowhere").newest()
    git(tmp_path, "init")
    with pytest.raises(Unavailable, match="cannot be reached"):
        GitNotePlace(repository=tmp_path).newest()


@pytest.mark.slow
def test_mlflow_keeps_each_note_as_a_file_of_one_run(tmp_path, notes):
    """A second process finds the same run."""
    pytest.importorskip("mlflow")
    (tmp_path / "artifacts").mkdir()
    where = (f"sqlite:///{tmp_path / 'mlflow.db'}", tmp_path / "artifacts")
    place = MlflowPlace(*where)
    assert (place.newest(), place.read()) == (-1, [])
    for note in notes:
        place.append(note)
    again = MlflowPlace(*where)
    assert (again.name, again.newest(), again.read()) == ("MLflow", 12, notes)
