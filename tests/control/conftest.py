"""A rollout on a real store and an in-memory gateway: all that the control loop needs, nothing that waits."""

import itertools
import shutil
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
import yaml

from specops.control import rollouts
from specops.control.act import Controller, Endpoints
from specops.core.outcome import Acceptance, Arm, Finish, Kind, Outcome
from specops.core.policy import parse_policy
from specops.core.release import Release
from specops.core.rollout import Step, StepKind
from specops.errors import GatewayUnavailable
from specops.store.database import open_store

T0 = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
POLICY = """
name: test
alpha: 0.01
arl_requests: 10000
settle: 0
fatal: {engine_unreachable: 1, empty_answer: 3}
checks:
  - {name: acceptance, metric: acceptance_rate, at_least: 0.45, min_requests: 8, owner: oncall}
  - {name: errors, metric: error, at_most: 0.05, pass_at: 0.25, min_requests: 8, owner: oncall}
"""
STEPS = (
    Step(kind=StepKind.SHADOW, mirror=1.0, min_requests=10),
    Step(kind=StepKind.CANARY, weight=0.1, min_requests=5),
    Step(kind=StepKind.CANARY, weight=1.0, min_requests=5),
    Step(kind=StepKind.WATCH, weight=1.0, min_requests=1),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One answer to a poll."""

    epoch: str
    next: int
    dropped: int
    outcomes: tuple[Outcome, ...]
    tripped: str | None = None


@dataclass(slots=True)
class Ring:
    """Implements `control.ports.Gateway` in memory. `limit` cuts polls; `is_down` refuses every call, `refuses` commands."""

    limit: int = 500
    epoch: str = "e1"
    dropped: int = 0
    is_down: bool = False
    refuses: bool = False
    tripped: str | None = None
    outcomes: list[Outcome] = field(default_factory=list)
    routes: list = field(default_factory=list)

    @property
    def route(self):
        """The route in force."""
        return self.routes[-1]

    def put_route(self, route):
        """Follow a route, unless commands don't come through."""
        self._answer()
        if self.refuses:
            raise GatewayUnavailable("no answer to a command; start it")
        self.routes.append(route)

    def poll(self, after, epoch, wait_s):
        """Return what came after; another epoch reads from the beginning."""
        self._answer()
        start = after if epoch in {None, self.epoch} else 0
        page = tuple(self.outcomes[start : start + self.limit])
        return Page(epoch=self.epoch, next=start + len(page), dropped=self.dropped, outcomes=page, tripped=self.tripped)

    def status(self):
        """Say which route is in force."""
        self._answer()
        share = self.route.weight if self.routes else None
        return {"route": self.route.to_record() if self.routes else None, "tripped": self.tripped, "effective_weight": share}

    def _answer(self):
        if self.is_down:
            raise GatewayUnavailable("down, got no answer; start it")


@dataclass(slots=True)
class Clock:
    """UTC now, moved by hand."""

    at: datetime = T0

    def __call__(self):
        """Return now."""
        return self.at

    def pass_s(self, seconds):
        """Let time pass."""
        self.at += timedelta(seconds=seconds)


@pytest.fixture(scope="session")
def template(tmp_path_factory):
    """Return an empty migrated database; copying it is cheaper than migrating for each test."""
    path = tmp_path_factory.mktemp("template") / "specops.db"
    open_store(f"sqlite:///{path}", segments=path.parent).close()
    return path


@pytest.fixture
def open_fresh(template, tmp_path):
    """Return a function that opens a new empty store each time it is called."""
    opened, numbers = [], itertools.count()

    def build():
        folder = tmp_path / f"data-{next(numbers)}"
        folder.mkdir()
        url = f"sqlite:///{shutil.copy(template, folder / 'specops.db')}"
        opened.append(open_store(url, segments=folder / "segments"))
        return opened[-1]

    yield build
    for store in opened:
        store.close()


@pytest.fixture
def store(open_fresh):
    """Return this test's store."""
    return open_fresh()


@pytest.fixture
def clock():
    """Return the test's clock."""
    return Clock()


@pytest.fixture
def ring():
    """Return the test's gateway."""
    return Ring()


@pytest.fixture
def make_ring():
    """Return the gateway's class, for tests that need several."""
    return Ring


@pytest.fixture
def policy():
    """Return the policy of every rollout here."""
    return parse_policy(yaml.safe_load(POLICY))


@pytest.fixture
def releases():
    """Return baseline and candidate."""
    common = {"target": "a" * 64, "tokenizer": "b" * 64}
    return (
        Release(name="plain", **common),
        Release(name="spec", method="draft_model", draft="c" * 64, num_speculative_tokens=4, **common),
    )


@pytest.fixture
def make_plan(policy):
    """Return a builder of plans."""

    def build(**changes):
        plain = {"rollout_id": "ro-1", "baseline": "plain", "candidate": "spec", "pipeline": "test", "steps": STEPS}
        urls = {"baseline_url": "http://127.0.0.1:1", "candidate_url": "http://127.0.0.1:2"}
        return rollouts.Plan(**(plain | urls | {"policy": policy, "policy_text": POLICY} | changes))

    return build


@pytest.fixture
def begin(make_plan, releases):
    """Return a function that registers both releases and starts the rollout of a plan in a store."""

    def build(store, **changes):
        with store.begin() as unit:
            for release in releases:
                unit.releases.add(release)
        return rollouts.start(store, make_plan(**changes), actor="ann", now=T0)

    return build


@pytest.fixture
def make_controller(policy, clock):
    """Return a builder of control loops."""

    def build(store, gateway, **changes):
        endpoints = Endpoints(baseline_url="http://127.0.0.1:1", candidate_url="http://127.0.0.1:2")
        plain = {"rollout_id": "ro-1", "holder": "here", "actor": "control", "clock": clock, "check": lambda _o, _at: ()}
        parts = {"store": store, "gateway": gateway, "policy": policy, "endpoints": endpoints}
        return Controller(**(parts | plain | changes))

    return build


@pytest.fixture
def controller(store, ring, begin, make_controller):
    """Return a resumed control loop of a started rollout."""
    begin(store)
    loop = make_controller(store, ring)
    loop.resume()
    return loop


@pytest.fixture
def make_outcome(releases):
    """Build a completed answer of the candidate, `rate` of its 100 drafted tokens accepted."""
    numbers = itertools.count()

    def build(rate=0.7, **changes):
        accepted = round(100 * rate)
        counts = Acceptance(rounds=100, drafted=100, accepted=accepted, histogram=(100 - accepted, accepted))
        plain = {"request_id": f"r{next(numbers)}", "arm": Arm.CANDIDATE, "kind": Kind.LIVE, "release_id": releases[1].id}
        times = {"at": T0, "finish": Finish.STOP, "e2e_s": 1.0, "ttft_s": 0.2, "completion_tokens": 9}
        return Outcome(**(plain | times | {"acceptance": counts} | changes))

    return build


@pytest.fixture
def healthy(make_outcome):
    """Return a builder of healthy outcomes."""
    return lambda count: [make_outcome() for _ in range(count)]


@pytest.fixture
def collapsed(make_outcome):
    """Return a builder of outcomes far below the limit."""
    return lambda count: [make_outcome(0.1) for _ in range(count)]


@pytest.fixture
def tags():
    """Return a function that lists the audit tags about a subject."""

    def read(store, subject="ro-1"):
        with store.read() as unit:
            return [e.tag for e in unit.audit.of(subject)]

    return read


@pytest.fixture
def everything():
    """Return a function that reads all that a rollout has stored, for comparison."""

    def read(store):
        with store.read() as unit:
            return {
                "rollout": unit.rollouts.get("ro-1"),
                "window": unit.windows.load("ro-1"),
                "verdicts": unit.verdicts.of("ro-1"),
                "outcomes": unit.outcomes.read("ro-1"),
                "audit": unit.audit.all(),
                "outbox": unit.outbox.due(T0 + timedelta(days=365)),
                "alias": unit.aliases.get("production"),
            }

    return read
