"""What evidence costs: folding one outcome into the shipped policies, on one core, beside a floor measured in the same run.

Part of the benchmark `evidence`. Processor time, so that a busy machine does not count for much; garbage collection is on, as
in production. The floor is the cheapest thing an update must do: build one frozen value with as many fields as a wealth has.
"""

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import yaml

from specops.core.judge import glance, judge
from specops.core.ladder import Terms
from specops.core.outcome import Acceptance, Arm, Finish, Kind, Outcome
from specops.core.pairing import WAITING
from specops.core.policy import Policy, parse_policy
from specops.core.window import Window, fold
from specops.stats import betting
from specops.stats.wealth import Mode, Null, Wealth
from tests.benchmarks.row import Row

POLICIES = Path(__file__).parents[2] / "policies"
T0 = datetime(2026, 1, 1, tzinfo=UTC)
COUNT, REPEATS, MOST_US = 1_500, 5, 25.0
PER_ROLLOUT = 5 * 10  # check updates per second: checks x outcomes per second
ROLLOUTS = 1_000
Then = Callable[[Policy, Window, Outcome], object]


def costs() -> Iterator[Row]:
    """Yield a row for each policy and load, then the floor."""
    floor = _best(_frozen_values)
    yield Row(
        check="floor of an update: one frozen value of a wealth's size", figure=floor, unit="us", goal="reported", holds=True,
        against="one core, garbage collection on, best of 5", runs=REPEATS * COUNT,
    )  # fmt: skip
    ours, pairs = [_outcome(i) for i in range(COUNT)], _pairs(COUNT)
    for name, load, outcomes, queued in (
        ("default", "live answers of the candidate", ours, 0),
        ("strict", "live answers of the candidate", ours, 0),
        ("latency-first", "live answers of the candidate", ours, 0),
        ("strict", "pairs beside a full queue of halves", pairs, WAITING),
        ("latency-first", "both arms, errors and slow answers", _mixed(COUNT), 0),
    ):
        yield _row(name, load, outcomes, floor, queued=queued)
    yield _row("default", "live answers of the candidate, a glance after each", ours, floor, then=_glance)
    words = "live answers of the candidate, a verdict in words after each"
    yield _row("default", words, ours, floor, then=_judge, is_goal=False)


def _row(
    name: str,
    load: str,
    outcomes: list[Outcome],
    floor: float,
    *,
    queued: int = 0,
    then: Then | None = None,
    is_goal: bool = True,
) -> Row:
    policy = parse_policy(yaml.safe_load((POLICIES / f"{name}.yaml").read_text(encoding="utf-8")))
    begun = Window.empty(policy)
    for i in range(queued):
        begun = fold(begun, _outcome(i, arm=Arm.BASELINE, request_id=f"waiting-{i}"), policy, promoted=False)
    if len(begun.halves) != queued:
        raise AssertionError(f"{len(begun.halves)} halves wait, not {queued}: the row would measure something else")

    def run() -> None:
        window = begun
        for outcome in outcomes:
            window = fold(window, outcome, policy, promoted=False)
            if then is not None:
                then(policy, window, outcome)

    cost = _best(run, len(outcomes) * len(policy.checks))
    rollouts = 1e6 / (cost * PER_ROLLOUT)
    return Row(
        check=f"update, policy {name} ({len(policy.checks)} checks), {load}", figure=cost,
        unit=f"us per outcome and check ({cost / floor:.0f} x the floor; {rollouts:.0f} rollouts x 5 checks x 10 outcomes/s)",
        goal=f"<= {MOST_US:g} and >= {ROLLOUTS} rollouts" if is_goal else "reported",
        holds=not is_goal or (cost <= MOST_US and rollouts >= ROLLOUTS), against="one core, garbage collection on, best of 5",
        runs=REPEATS * len(outcomes),
    )  # fmt: skip


def _best(work: Callable[[], object], parts: int = COUNT) -> float:
    """Return microseconds of processor time per part, the best of some repeats."""
    took = []
    for _ in range(REPEATS):
        began = time.process_time()
        work()
        took.append(time.process_time() - began)
    return min(took) / parts * 1e6


def _frozen_values() -> None:
    first = Wealth.start(betting.bets(Null.AT_LEAST, 0.5), Mode.CHANGE)
    for n in range(COUNT):
        Wealth(first.bets, first.mode, n, 1.0, first.stakes, 0)


def _glance(policy: Policy, window: Window, outcome: Outcome) -> object:
    return glance(policy, window, terms=Terms(), now=outcome.at)


def _judge(policy: Policy, window: Window, outcome: Outcome) -> object:
    return judge(policy, window, terms=Terms(), now=outcome.at)


RATES = [float(x) for x in np.random.default_rng(35).beta(7, 3, size=COUNT)]


def _outcome(number: int, **changes: object) -> Outcome:
    """Return an answer of the candidate to a live request, at 20 a second and a load of 1 to 13 in flight."""
    plain = {
        "request_id": f"r{number}", "arm": Arm.CANDIDATE, "kind": Kind.LIVE, "release_id": "x", "finish": Finish.STOP,
        "at": T0 + timedelta(seconds=number / 20), "e2e_s": 1.5, "ttft_s": 0.3, "completion_tokens": 80, "share": 0.3,
        "in_flight": number % 13 + 1,
        "acceptance": Acceptance(rounds=30, drafted=120, accepted=round(RATES[number % COUNT] * 120)),
    }  # fmt: skip
    return Outcome(**(plain | changes))  # type: ignore[arg-type]


def _pairs(count: int) -> list[Outcome]:
    """Return both answers to each of `count` / 2 requests, baseline first."""
    arms = ({"arm": Arm.BASELINE}, {"kind": Kind.SHADOW, "share": None, "e2e_s": 1.2})
    return [_outcome(i, request_id=f"pair-{i}", **arm) for i in range(count // 2) for arm in arms]


def _mixed(count: int) -> list[Outcome]:
    """Return live answers, three of ten the candidate's, 1% errors and 3% slow ones."""
    rng, found = np.random.default_rng(36), []
    for i in range(count):
        arm = {} if rng.random() < 0.3 else {"arm": Arm.BASELINE, "acceptance": None}
        end = {"finish": Finish.ERROR, "error": "engine_5xx"} if rng.random() < 0.01 else {}
        slow = {"ttft_s": 2.0, "e2e_s": 3.2} if rng.random() < 0.03 else {}
        found.append(_outcome(i, **arm, **end, **slow))
    return found


def recorded(name: str) -> tuple[Policy, list[Outcome]]:
    """Return a shipped policy, and outcomes of both arms and of mirrored requests in the order of a busy gateway."""
    policy = parse_policy(yaml.safe_load((POLICIES / f"{name}.yaml").read_text(encoding="utf-8")))
    return policy, [one for both in zip(_mixed(300), _pairs(300), strict=True) for one in both]
