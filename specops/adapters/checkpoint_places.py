"""Places outside the database that keep signed checkpoints beside the file: a git repository's notes, an MLflow run.

Each is a `core.audit.CheckpointPlace`; `wiring` makes those that the settings name, `store.checkpoints.mirror` brings them up,
`store.verify` compares them. A place never decides anything, and its failure holds up nothing.
"""

import os
import subprocess
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specops.adapters.mlflow_tracking import open_client, reaching
from specops.core.audit import size_in, split_notes
from specops.errors import Unavailable

GIT_REF = "specops"
GIT_TIMEOUT_S = 20.0
_WHO = ("-c", "user.name=specops", "-c", "user.email=specops@localhost", "-c", "core.quotePath=false")
EXPERIMENT = "specops-audit"
_KEY_TAG = "specops.checkpoints"
_FOLDER = "checkpoints"


@dataclass(frozen=True, slots=True, kw_only=True)
class GitNotePlace:
    """Keeps notes under refs/notes/specops of a repository, attached to its first commit; each append is a commit there.

    Push that ref to a server that refuses forced updates, and no one can take a checkpoint back.
    """

    repository: Path

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"git notes of {self.repository}"

    def newest(self) -> int:
        """Return the size of the newest note, -1 when there is none."""
        return max(map(size_in, self.read()), default=-1)

    def append(self, note: str) -> None:
        """Append a note.

        Raises:
            Unavailable: git is absent, or refuses.
        """
        self._git("notes", f"--ref={GIT_REF}", "append", "-F", "-", self._first(), stdin=note)

    def read(self) -> list[str]:
        """Return all notes.

        Raises:
            ChainBroken: the text ends within a note.
            Unavailable: git is absent, or refuses.
        """
        first = self._first()
        if first not in self._git("notes", f"--ref={GIT_REF}", "list").split():
            return []
        text = self._git("notes", f"--ref={GIT_REF}", "show", first).rstrip("\n")
        return split_notes(f"{text}\n\n", self.name)

    def _first(self) -> str:
        """Return the first commit: it stays, whatever is committed later."""
        commits = self._git("rev-list", "--max-parents=0", "HEAD").split()
        if not commits:
            raise Unavailable(f"{self.name} cannot be kept: the repository has no commit; make one")
        return commits[-1]

    def _git(self, *arguments: str, stdin: str = "") -> str:
        command = ["git", "-C", str(self.repository), *_WHO, *arguments]
        ours = os.environ | {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C.UTF-8"}
        try:
            done = subprocess.run(  # noqa: S603  # our own arguments, no shell
                command, input=stdin.encode(), capture_output=True, timeout=GIT_TIMEOUT_S, check=False, env=ours
            )
        except (OSError, subprocess.TimeoutExpired) as exc:
            raise Unavailable(f"{self.name} cannot be reached: {exc}; install git or unset checkpoint_git") from exc
        if done.returncode:
            said = " ".join(done.stderr.decode(errors="replace").split())
            raise Unavailable(f"{self.name} cannot be reached: {said}; see checkpoint_git")
        try:
            return done.stdout.decode()
        except UnicodeDecodeError as exc:
            raise Unavailable(f"{self.name} cannot be read: {exc}") from exc


class MlflowPlace:
    """Keeps notes as artifacts of one run in the experiment `specops-audit`, one file each, named by size."""

    def __init__(self, tracking_uri: str, artifacts_dir: Path) -> None:
        """Remember where; MLflow is imported and opened at first use, which takes seconds."""
        self._uri = tracking_uri
        self._artifacts_dir = artifacts_dir
        self._opened: tuple[Any, str] | None = None

    @property
    def name(self) -> str:
        """What messages call it; the URI may hold a password, so it is not repeated."""
        return "MLflow"

    def newest(self) -> int:
        """Return the size of the newest note, -1 when there is none."""
        with reaching("the tracking server"):
            client, run_id = self._open()
            paths = [Path(str(item.path)).stem for item in client.list_artifacts(run_id, _FOLDER)]
        return max((int(stem) for stem in paths if stem.isdecimal() and stem.isascii()), default=-1)

    def append(self, note: str) -> None:
        """Write a note as a file of its own.

        Raises:
            Unavailable: MLflow does not answer.
        """
        with reaching("the tracking server"):
            client, run_id = self._open()
            client.log_text(run_id, note, f"{_FOLDER}/{size_in(note):012d}.txt")

    def read(self) -> list[str]:
        """Return all notes.

        Raises:
            Unavailable: MLflow does not answer.
        """
        if self.newest() < 0:
            return []
        with reaching("the tracking server"), tempfile.TemporaryDirectory() as folder:
            client, run_id = self._open()
            here = Path(client.download_artifacts(run_id, _FOLDER, folder))
            return [path.read_bytes().decode(errors="replace") for path in sorted(here.glob("*.txt"))]

    def _open(self) -> tuple[Any, str]:
        """Return the client and the id of the run, made at first use."""
        if self._opened is None:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message=r"The ``noload`` loader strategy")  # MLflow on SQLAlchemy 2.1
                client = open_client(self._uri)
                found = client.get_experiment_by_name(EXPERIMENT)
            experiment = found.experiment_id if found else client.create_experiment(EXPERIMENT, self._artifacts_dir.as_uri())
            runs = client.search_runs([experiment], f"tags.`{_KEY_TAG}` = 'true'", max_results=1)
            run = runs[0] if runs else client.create_run(experiment, run_name="checkpoints", tags={_KEY_TAG: "true"})
            self._opened = client, run.info.run_id
        return self._opened
