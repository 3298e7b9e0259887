"""The report tells what the store holds about a rollout: each decision at its step, each number as recorded."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from specops.control.act import Controller, Endpoints
from specops.control.amend import read_policy
from specops.control.deliver import deliver
from specops.control.rollouts import Plan, start
from specops.core.outcome import Acceptance, Arm, Finish, Kind, Outcome
from specops.core.release import Release
from specops.core.rollout import ActionKind, Step, StepKind
from specops.core.verdict import Result
from specops.dossier import compile_report
from specops.errors import InvalidInput
from specops.gateway.client import Batch
from specops.report.page import build
from specops.settings import Settings
from specops.wiring import load_policy, opened

T0 = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
PLAIN = Release(name="plain", target="a" * 64, tokenizer="b" * 64)
SPEC = Release(name="spec", target="a" * 64, tokenizer="b" * 64, method="draft_model", draft="c" * 64, num_speculative_tokens=4)
STEPS = (
    Step(kind=StepKind.SHADOW, mirror=1.0, min_requests=20),
    Step(kind=StepKind.CANARY, weight=0.5, min_requests=10),
    Step(kind=StepKind.WATCH, weight=1.0, min_requests=1),
)
LIMIT = load_policy("quickstart")[0].checks[0].limit
RATIO = {"n": 12, "ratio": 2.0, "low": 1.6, "high": 2.5, "alpha": 0.05}
OFFLINE = {
    "prompts": 12,
    "ratios": {"tpot_s": RATIO},
    "means": {"tpot_s": {"baseline": 0.02, "candidate": 0.01}},
    "differences": [{"prompt": 3, "token": 7, "baseline": [1], "candidate": [2]}],
}


class Tape:
    """A gateway that hands out everything at once."""

    def __init__(self, outcomes):
        self.outcomes = outcomes
        self.is_routed = False

    def put_route(self, route):
        """Let traffic begin."""
        self.is_routed = True

    def status(self):
        """Nothing ever trips."""
        return {"tripped": None}

    def poll(self, after, epoch, wait_s):
        """Return what came after."""
        rest = tuple(self.outcomes[after:]) if self.is_routed else ()
        return Batch(epoch="e", next=after + len(rest), dropped=0, outcomes=rest)


def _outcome(number):
    accepted = 3 if number < 60 else 0
    counts = Acceptance(rounds=1, drafted=4, accepted=accepted, histogram=tuple(int(i == accepted) for i in range(5)))
    return Outcome(
        request_id=f"r{number}", arm=Arm.CANDIDATE, kind=Kind.SHADOW if number < 20 else Kind.LIVE, release_id=SPEC.id,
        at=T0 + timedelta(seconds=number), finish=Finish.STOP, e2e_s=1.0, ttft_s=0.2, completion_tokens=9, acceptance=counts,
    )  # fmt: skip


@pytest.fixture
def empty_house(tmp_path):
    """Open a data folder without anything."""
    with opened(Settings(data_dir=tmp_path / "data")) as house:
        yield house


@pytest.fixture
def house(empty_house):
    """Play a rollout in one poll: 60 healthy outcomes, then a collapse, the alert delivered."""
    return play(empty_house, *load_policy("quickstart"))


def play(empty_house, policy, text):
    """Play it under a policy."""
    store = empty_house.store
    urls = {"baseline_url": "http://127.0.0.1:1", "candidate_url": "http://127.0.0.1:2"}
    with store.begin() as unit:
        unit.releases.add(PLAIN)
        unit.releases.add(SPEC)
        unit.evidence.add(SPEC.id, "offline", OFFLINE, T0)
    plan = Plan(
        rollout_id="ro-1", baseline="plain", candidate="spec", pipeline="p", steps=STEPS, policy=policy, policy_text=text,
        **urls,
    )  # fmt: skip
    start(store, plan, actor="ann", now=T0)
    loop = Controller(
        store=store, gateway=Tape([_outcome(i) for i in range(100)]), policy=policy, endpoints=Endpoints(**urls),
        rollout_id="ro-1", holder="h", actor="control", clock=lambda: T0 + timedelta(seconds=100), check=lambda _o, _at: (),
    )  # fmt: skip
    loop.resume()
    loop.pass_once()
    deliver(store, {"alert": lambda _k, _p: None}, clock=lambda: T0 + timedelta(seconds=101))
    return empty_house


def test_without_a_rollout_there_is_no_report(empty_house):
    """The way out is in the message."""
    with pytest.raises(InvalidInput, match="specops rollout start"):
        compile_report(empty_house)


def test_every_decision_of_one_poll_has_its_own_line(house):
    """Decisions that share their time are told apart, each at the step it judged."""
    lines = compile_report(house).decisions
    moved = [(line.step, line.action) for line in lines if line.action is not ActionKind.HOLD]
    assert moved == [
        (StepKind.SHADOW, ActionKind.ADVANCE),
        (StepKind.CANARY, ActionKind.PROMOTE),
        (StepKind.WATCH, ActionKind.ROLL_BACK),
    ]
    assert lines[-1].result is Result.FAIL


def test_the_weights_are_those_of_the_audit_log(house):
    """Shadow, canary, everything, nothing."""
    assert [(w.weight, w.mirror) for w in compile_report(house).weights] == [(0, 1), (0.5, 0), (1, 0), (0, 0)]


def test_the_collapse_is_found_where_control_found_it(house):
    """The detection index is the deciding request's, shortly after the shift at 60."""
    data = compile_report(house)
    with house.store.read() as unit:
        deciding = unit.audit.of("ro-1")[-1].payload["deciding_request"]
    assert f"r{data.detection_index}" == deciding
    assert 60 < data.detection_index < 99
    assert len(data.acceptance) == 100
    assert data.acceptance_limit == LIMIT


def test_phases_follow_the_rollout(house):
    """A point belongs to the phase in which control counted it, whenever it ended."""
    phases = [p.phase for p in compile_report(house).acceptance]
    assert phases[:20] == ["shadow"] * 20
    changes = [a for a, b in pairwise(phases) if a != b]
    assert changes == ["shadow", "canary"]
    assert phases[-1] == "watch"


def test_offline_evidence_is_turned_to_candidate_over_baseline(house):
    """The store holds baseline / candidate; the report says what the candidate needs, with the interval turned too."""
    data = compile_report(house)
    (line,) = data.evaluation
    assert (line.baseline, line.candidate, line.ratio, line.low, line.high) == (0.02, 0.01, 0.5, 0.4, 0.625)
    assert (data.equality.equal, data.equality.compared) == (11, 12)
    assert "prompt 3, token 7" in data.equality.note


def test_the_alert_is_told_as_delivered(house):
    """Delivery is taken from the audit log."""
    (alert,) = compile_report(house).alerts
    assert (alert.delivered, alert.owner) == (True, "inference-oncall")


def test_a_stop_is_an_end_as_a_roll_back_is(empty_house):
    """The hardest rung: the alert of its name, delivered, and the deciding request marked."""
    text = load_policy("quickstart")[1].replace("    owner:", "    on_fail: stop\n    owner:")

    data = compile_report(play(empty_house, read_policy(text), text))

    assert [(a.name, a.delivered) for a in data.alerts] == [("SpecopsStopped", True)]
    assert 60 < data.detection_index < 99


def test_what_was_not_recorded_is_absent(empty_house, house):
    """No drill, no reaction time."""
    data = compile_report(house, "ro-1")
    assert (data.shift_index, data.reaction_s) == (None, None)


def test_positions_count_rounds_that_reached_them(house):
    """Of 100 rounds 60 accepted three tokens and none a fourth."""
    assert [(p.position, p.drafted, p.accepted) for p in compile_report(house).positions] == [
        (1, 100, 60),
        (2, 100, 60),
        (3, 100, 60),
        (4, 100, 0),
    ]


def test_the_page_holds_the_key_numbers(house, tmp_path):
    """Policy, root and ids can be read in the file, which is whole."""
    data = compile_report(house, title="A title of its own")
    build(data, tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    numbers = (data.audit.root[:12], data.policy.digest[:12], SPEC.id, PLAIN.id, f"{LIMIT:g}", "11 of 12")
    for text in ("A title of its own", *numbers):
        assert text in page
    assert page.rstrip().endswith("</html>")
