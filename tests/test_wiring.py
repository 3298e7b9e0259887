"""The parts work together: names to files, a data folder to a control loop that moves a gateway over HTTP."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from specops.control.rollouts import Plan, abort_by_hand, start
from specops.core.outcome import Acceptance, Arm, Finish, Kind, Outcome
from specops.core.release import Release
from specops.core.rollout import Rollout, State, Step, StepKind
from specops.errors import InvalidInput, PolicyError
from specops.settings import Settings
from specops.wiring import (
    checkpoint_places,
    controller,
    current_rollout,
    gateway_of,
    gateway_status,
    load_pipeline,
    load_policy,
    newest_rollout,
    now,
    opened,
    run_control,
    shipped,
)

PLAIN = Release(name="plain", target="a" * 64, tokenizer="b" * 64)
SPEC = Release(name="spec", target="a" * 64, tokenizer="b" * 64, method="draft_model", draft="c" * 64, num_speculative_tokens=4)
STEPS = (Step(kind=StepKind.CANARY, weight=0.5, min_requests=5), Step(kind=StepKind.WATCH, weight=1.0))


class Remote(ThreadingHTTPServer):
    """A gateway's admin API and an Alertmanager on one port: remembers what it was told."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.routes, self.alerts, self.outcomes = [], [], []


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_PUT(self):
        self.server.routes.append(self._body())
        self._answer({"applied": True, "revision": self.server.routes[-1]["revision"]})

    def do_POST(self):
        self.server.alerts += self._body()
        self._answer({})

    def do_GET(self):
        if not self.path.startswith("/-/outcomes"):
            return self._answer({"route": None, "effective_weight": 0.0, "tripped": None, "epoch": "e", "applied_at": None})
        after = int(self.path.split("after=")[1].split("&")[0])
        page = self.server.outcomes[after:] if self.server.routes else []  # no traffic before the first route
        return self._answer({"epoch": "e", "next": after + len(page), "dropped": 0, "outcomes": page})

    def _body(self):
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def _answer(self, value):
        raw = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_):
        """Say nothing."""


@pytest.fixture
def remote():
    """Serve gateway and Alertmanager on a free port."""
    with Remote() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def house(tmp_path, remote):
    """Open a data folder whose gateway and Alertmanager are the remote."""
    port = remote.server_address[1]
    settings = Settings(data_dir=tmp_path / "data", gateway_port=port, alertmanager_url=f"http://127.0.0.1:{port}")
    with opened(settings) as house:
        yield house


@pytest.fixture
def begin(house):
    """Return a function that starts a rollout of the quickstart policy."""

    def go(rollout_id="ro-1"):
        policy, text = load_policy("quickstart")
        urls = {"baseline_url": "http://127.0.0.1:1", "candidate_url": "http://127.0.0.1:2"}
        with house.store.begin() as unit:
            unit.releases.add(PLAIN)
            unit.releases.add(SPEC)
        plan = Plan(
            rollout_id=rollout_id, baseline="plain", candidate="spec", pipeline="p", steps=STEPS, policy=policy,
            policy_text=text, **urls,
        )  # fmt: skip
        return start(house.store, plan, actor="ann", now=now())

    return go


@pytest.fixture
def until():
    """Return a builder of `until`: true when a condition holds, or after so many asks that the test must fail."""

    def build(condition, asks=3000):
        left = iter(range(asks))
        return lambda: condition() or next(left, None) is None

    return build


def _bad_outcome(number):
    counts = Acceptance(rounds=100, drafted=100, accepted=5, histogram=(95, 5))
    return Outcome(
        request_id=f"r{number}", arm=Arm.CANDIDATE, kind=Kind.LIVE, release_id=SPEC.id, at=now(), finish=Finish.STOP,
        e2e_s=1.0, ttft_s=0.2, completion_tokens=9, acceptance=counts,
    ).to_record()  # fmt: skip


@pytest.mark.parametrize("path", sorted(shipped("pipelines").glob("*.yaml")), ids=lambda p: p.stem)
def test_every_shipped_pipeline_and_its_policy_load(path):
    """By name and by path."""
    pipeline = load_pipeline(path.stem)
    assert load_pipeline(str(path)) == pipeline
    policy, text = load_policy(pipeline.policy)
    assert policy.name in text


@pytest.mark.parametrize(("text", "message"), [("a: [", "not valid YAML"), ("5", "must hold a mapping, got int")])
def test_a_broken_file_is_named(tmp_path, text, message):
    """What is wrong is told in one line."""
    path = tmp_path / "x.yaml"
    path.write_text(text)
    with pytest.raises(PolicyError, match=message) as caught:
        load_pipeline(str(path))
    assert "\n" not in str(caught.value)


def test_an_absent_file_lists_the_shipped_ones():
    """The way out is in the message."""
    with pytest.raises(PolicyError, match="shipped pipelines: canary, quickstart"):
        load_pipeline("nosuch")


def test_the_newest_rollout_is_the_running_one(house, begin):
    """The running rollout decides the route; after its end it still does, until another starts."""
    assert (current_rollout(house), newest_rollout(house)) == (None, None)
    begin("ro-2")
    assert (current_rollout(house), newest_rollout(house)) == ("ro-2", "ro-2")
    abort_by_hand(house.store, "ro-2", reason="r", actor="ann", now=now())
    assert (current_rollout(house), newest_rollout(house)) == (None, "ro-2")
    begin("ro-1")
    assert newest_rollout(house) == "ro-1"


def test_a_rollout_without_endpoints_has_no_controller(house, begin):
    """Whoever wrote the rollout past `start` is told so."""
    begin()
    abort_by_hand(house.store, "ro-1", reason="r", actor="ann", now=now())
    with house.store.begin() as unit:
        digest = unit.rollouts.get("ro-1").policy_digest
        unit.rollouts.add(
            Rollout(id="ro-x", baseline=PLAIN.id, candidate=SPEC.id, policy_digest=digest, pipeline="p", steps=STEPS)
        )
    with pytest.raises(InvalidInput, match="no recorded endpoints"):
        controller(house, "ro-x", gateway_of(house.settings))


def test_a_silent_gateway_has_no_status(remote, house):
    """None where nobody answers, the record where somebody does."""
    assert gateway_status(house.settings)["effective_weight"] == 0.0
    assert gateway_status(Settings(gateway_port=9)) is None


def test_control_rolls_back_over_http_and_the_alert_arrives(house, remote, begin, until):
    """From outcomes in the gateway to a route without share and one alert at Alertmanager."""
    begin()
    remote.outcomes += [_bad_outcome(i) for i in range(40)]
    run_control(house, until=until(lambda: bool(remote.alerts)))
    assert [r["weight"] for r in remote.routes] == [0.5, 0.0]
    assert [a["labels"]["rollout"] for a in remote.alerts] == ["ro-1"]
    with house.store.read() as unit:
        assert unit.rollouts.get("ro-1").state is State.ROLLED_BACK


def test_a_rollout_that_ended_without_control_loses_its_traffic(house, remote, begin, until):
    """Aborted while no control plane ran, or killed before the route was put: the next control process puts it."""
    begin()
    abort_by_hand(house.store, "ro-1", reason="r", actor="ann", now=now())
    run_control(house, until=until(lambda: bool(remote.routes), asks=50), deliver_alerts=False)
    assert [(r["weight"], r["mirror"], r["rollout_id"]) for r in remote.routes] == [(0.0, 0.0, "ro-1")]


def test_checkpoints_go_where_the_settings_say():
    """None by default; a file, a repository, MLflow."""
    assert checkpoint_places(Settings()) == ()
    places = checkpoint_places(Settings(checkpoint_copy="c.txt", checkpoint_git="repo", checkpoint_mlflow=True))
    assert [place.name for place in places] == ["c.txt", "git notes of repo", "MLflow"]
