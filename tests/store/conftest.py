"""A migrated store on each database, and builders that supply what a test is not about.

A test that asks for `store` or `url` runs on SQLite and on PostgreSQL; one that also asks for `path`, the file, on SQLite only.
"""

import shutil
from datetime import UTC, datetime

import pytest

from specops.adapters.signing import load_or_create
from specops.core.outcome import Acceptance, Arm, Finish, Kind, Outcome
from specops.core.release import Release
from specops.core.rollout import Rollout, Step, StepKind
from specops.store import dialect
from specops.store.database import open_store

T0 = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)


def pytest_generate_tests(metafunc):
    """Run on both databases what does not need a file."""
    if "backend" in metafunc.fixturenames:
        kinds = ["sqlite"] if "path" in metafunc.fixturenames else ["sqlite", "postgres"]
        metafunc.parametrize("backend", kinds, indirect=True)


@pytest.fixture(scope="session")
def template(tmp_path_factory):
    """Return an empty migrated database; copying it is cheaper than migrating for each test."""
    path = tmp_path_factory.mktemp("template") / "specops.db"
    open_store(f"sqlite:///{path}", segments=path.parent).close()
    return path


@pytest.fixture(scope="session")
def postgres_template(postgres, tmp_path_factory):
    """Return the name of an empty migrated database on the PostgreSQL server."""
    name = postgres.create()
    open_store(postgres.url(name), segments=tmp_path_factory.mktemp("template")).close()
    return name


@pytest.fixture
def path(template, tmp_path):
    """Return the path of this test's database file."""
    return shutil.copy(template, tmp_path / "specops.db")


@pytest.fixture
def postgres_url(postgres, postgres_template):
    """Return the URL of this test's migrated PostgreSQL database."""
    name = postgres.create(postgres_template)
    yield postgres.url(name)
    postgres.drop(name)


@pytest.fixture
def backend(request):
    """Return the kind of database of this test."""
    return request.param


@pytest.fixture
def url(backend, request):
    """Return the URL of this test's migrated database."""
    if backend == "postgres":
        return request.getfixturevalue("postgres_url")
    return f"sqlite:///{request.getfixturevalue('path')}"


@pytest.fixture
def empty_url(backend, request, tmp_path):
    """Return the URL of a database in which nothing is yet."""
    if backend == "sqlite":
        yield f"sqlite:///{tmp_path / 'empty' / 'specops.db'}"
        return
    server = request.getfixturevalue("postgres")
    name = server.create()
    yield server.url(name)
    server.drop(name)


@pytest.fixture
def engine(empty_url):
    """Return specops' own engine on an empty database: its transactions hold the writer lock."""
    kind, parsed = dialect.for_url(empty_url)
    engine = kind.engine(parsed, 5.0)
    yield engine
    engine.dispose()


@pytest.fixture
def store(url, tmp_path):
    """Return this test's store."""
    store = open_store(url, segments=tmp_path / "segments")
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
