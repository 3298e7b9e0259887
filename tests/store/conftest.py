"""A migrated store in a temporary folder, and builders that supply what a test is not about."""

import shutil
from datetime import UTC, datetime

import pytest

from specops.adapters.signing import load_or_create
from specops.core.outcome import Acceptance, Arm, Finish, Kind, Outcome
from specops.core.release import Release
from specops.core.rollout import Rollout, Step, StepKind
from specops.store.database import open_store

T0 = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)


@pytest.fixture(scope="session")
def template(tmp_path_factory):
    """Return an empty migrated database; copying it is cheaper than migrating for each test."""
    path = tmp_path_factory.mktemp("template") / "specops.db"
    open_store(f"sqlite:///{path}", segments=path.parent).close()
    return path


@pytest.fixture
def path(template, tmp_path):
    """Return the path of this test's database."""
    return shutil.copy(template, tmp_path / "specops.db")


@pytest.fixture
def store(path, tmp_path):
    """Return this test's store."""
    store = open_store(f"sqlite:///{path}", segments=tmp_path / "segments")
    yield store
    store.close()


@pytest.fixture
def t0():
    """Return the time at which the tests take place."""
    return T0


@pytest.fixture
def signer(tmp_path):
    """Return a signing key."""
    return load_or_create(tmp_path / "keys")


@pytest.fixture
def make_outcome():
    """Return a builder of outcomes."""

    def build(number=0, **changes):
        fields = {
            "request_id": f"r{number}", "arm": Arm.CANDIDATE, "kind": Kind.LIVE, "release_id": "rel-1", "at": T0,
            "finish": Finish.STOP, "e2e_s": 0.5, "ttft_s": 0.1, "completion_tokens": 9,
            "acceptance": Acceptance(rounds=3, drafted=12, accepted=6, histogram=(0, 1, 1, 1, 0)),
        }  # fmt: skip
        return Outcome(**(fields | changes))

    return build


@pytest.fixture
def make_rollout():
    """Return a builder of rollouts."""

    def build(**changes):
        steps = (
            Step(kind=StepKind.SHADOW, mirror=0.5),
            Step(kind=StepKind.CANARY, weight=0.1),
            Step(kind=StepKind.WATCH, weight=1.0),
        )
        fields = {"id": "ro-1", "baseline": "a", "candidate": "b", "policy_digest": "p", "pipeline": "q", "steps": steps}
        return Rollout(**(fields | changes))

    return build


@pytest.fixture
def make_release():
    """Return a builder of releases."""

    def build(name="plain", **changes):
        return Release(**({"name": name, "target": "t" * 64, "tokenizer": "k" * 64} | changes))

    return build


@pytest.fixture
def append(store):
    """Return a function that appends audit entries, each in its own transaction."""

    def build(count=1, **changes):
        for number in range(count):
            with store.begin() as unit:
                fields = {
                    "tag": "rollout:step:advanced",
                    "actor": "control",
                    "subject": "ro-1",
                    "payload": {"n": number},
                    "at": T0,
                }
                unit.audit.append(**(fields | changes))

    return build
