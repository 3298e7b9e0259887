"""The command line in this process, on a data folder of its own."""

import shutil
import sqlite3
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from specops.cli.main import main
from specops.control.register import register
from specops.control.rollouts import Plan, start
from specops.core.release import Artifact, ArtifactKind, Edge, EdgeKind, FileDigest, Release
from specops.settings import Settings
from specops.store.sqlite import TRIGGERS
from specops.wiring import load_pipeline, load_policy, opened

T0 = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What a command left: exit code and both streams."""

    code: int
    out: str
    err: str


def _artifact(kind, name):
    return Artifact(kind=kind, name=name, files=(FileDigest(path="f", size=1, sha256=name[0] * 64),))


TARGET, DRAFT = _artifact(ArtifactKind.TARGET, "target"), _artifact(ArtifactKind.DRAFT, "draft")
PLAIN = Release(name="plain", target=TARGET.digest, tokenizer="b" * 64)
SPEC = Release(
    name="spec", target=TARGET.digest, tokenizer="b" * 64, method="draft_model", draft=DRAFT.digest, num_speculative_tokens=4
)


@pytest.fixture(scope="session")
def template(tmp_path_factory):
    """Return a data folder with a registered pair and a started rollout, and one that was only opened."""
    root = tmp_path_factory.mktemp("template")
    with opened(Settings(data_dir=root / "empty")):
        pass
    shutil.copytree(root / "empty", root / "full")
    policy, text = load_policy("quickstart")
    plan = Plan(
        rollout_id="ro-1", baseline="plain", candidate="spec", pipeline="quickstart", policy=policy, policy_text=text,
        steps=load_pipeline("quickstart").steps, baseline_url="http://127.0.0.1:1", candidate_url="http://127.0.0.1:2",
    )  # fmt: skip
    edge = Edge(source=DRAFT.digest, kind=EdgeKind.DISTILLED_FROM, target=TARGET.digest)
    with opened(Settings(data_dir=root / "full")) as house:
        register(house.store, artifacts=(TARGET, DRAFT), edges=(edge,), releases=(PLAIN, SPEC), actor="ann", now=T0)
        start(house.store, plan, actor="ann", now=T0)
        house.checkpoint()
    return root


@pytest.fixture
def use(template, tmp_path, monkeypatch):
    """Return a function that makes a copy of a template folder the one in force."""

    def go(name):
        folder = shutil.copytree(template / name, tmp_path / "data")
        monkeypatch.setenv("SPECOPS_DATA_DIR", str(folder))
        monkeypatch.setenv("SPECOPS_GATEWAY_PORT", "9")  # the discard port: nobody answers
        monkeypatch.setenv("SPECOPS_ACTOR", "bob")
        monkeypatch.chdir(tmp_path)
        return folder

    return go


@pytest.fixture
def full(use):
    """Return a data folder with a running rollout."""
    return use("full")


@pytest.fixture
def empty(use):
    """Return a data folder without anything."""
    return use("empty")


@pytest.fixture
def run(capfd):
    """Return a function that runs a command line."""

    def go(*arguments):
        capfd.readouterr()
        with pytest.raises(SystemExit) as left:
            main(list(map(str, arguments)))
        out, err = capfd.readouterr()
        return Done(code=left.value.code, out=out, err=err)

    return go


@pytest.fixture
def tamper():
    """Return a function that edits the database behind its guards."""

    def go(folder: Path, statement: str):
        with sqlite3.connect(folder / "specops.db") as raw:
            for name in TRIGGERS:
                raw.execute(f"DROP TRIGGER {name}")
            assert raw.execute(statement).rowcount == 1
        raw.close()

    return go
