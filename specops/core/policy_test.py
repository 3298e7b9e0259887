"""Unit tests of a policy, written as YAML: a made-up rollout per test, and what the policy must say and do at a request.

Called by `specops policy test`; reads no file itself. The idea and the words are promtool's (unit testing of rules, Prometheus
documentation); series are in `core.policy_series`, the rollout is played by `core.policy_play`, the file is read by
`core.policy_test_file`. The same file and seed give the same result on every machine.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from specops.core.outcome import Acceptance, Arm, Finish, Kind, Outcome
from specops.core.policy import Policy
from specops.core.policy_play import Play, made_up
from specops.core.policy_series import Value
from specops.core.policy_test_file import Case, Expectation, Stage, Statistics, TestFile

T0 = datetime(2026, 1, 1, tzinfo=UTC)
DRAFTED = 10_000  # tokens behind one acceptance rate: as fine as a rate in a test needs to be
TOKENS = 101  # completion tokens where tpot_s is given: e2e = ttft + 100 tpot
OTHER = "other"  # class of an error that a test does not name; no policy calls it fatal


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One expectation that did not hold."""

    case: str
    at: int
    what: str
    expected: str
    got: str

    @property
    def text(self) -> str:
        """One line."""
        return f"{self.case}: at {self.at}: expected {self.what} {self.expected}, got {self.got}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What came of one test: requests played, runs of its statistics, and every failed expectation."""

    case: str
    requests: int
    runs: int
    failures: tuple[Failure, ...]


def run_tests(file: TestFile, policy: Policy) -> tuple[Report, ...]:
    """Run every test of a file against a policy; each is independent of the others."""
    return tuple(run_case(case, policy) for case in file.tests)


def run_case(case: Case, policy: Policy) -> Report:
    """Run one test: its expectations on the rollout of its seed, then its statistics on seeds of their own."""
    failures = list(_expectations(case, policy))
    if case.statistics is not None:
        failures += _statistics(case, case.statistics, policy)
    runs = case.statistics.runs if case.statistics else 0
    return Report(case=case.name, requests=case.length, runs=runs, failures=tuple(failures))


def outcomes_of(case: Case, seed: int) -> Iterator[tuple[int, Outcome]]:
    """Yield (number of the request, outcome): the baseline's answer first where the test describes one."""
    rng = Random(seed)  # a test, no secret
    columns = {name: series.values(rng, case.length) for name, series in case.input.items()}
    beside = {name: series.values(rng, case.length) for name, series in case.baseline.items()}
    loads, prompts = case.in_flight.values(rng, case.length), case.prompt_tokens.values(rng, case.length)
    share = case.share if case.kind is Kind.LIVE and case.stage is not Stage.PROMOTED else None
    for i in range(case.length):
        at = T0 + timedelta(seconds=case.interval_s * i)
        shared = {"at": at, "in_flight": _whole(loads[i]), "prompt_tokens": _whole(prompts[i]), "share": share}
        if beside:
            request = f"r{i}" if case.kind is Kind.SHADOW else f"b{i}"
            values = {name: column[i] for name, column in beside.items()}
            yield i + 1, _outcome(request, Arm.BASELINE, Kind.LIVE, values, shared)
        yield i + 1, _outcome(f"r{i}", Arm.CANDIDATE, case.kind, {n: c[i] for n, c in columns.items()}, shared)


def _whole(value: Value) -> int:
    return int(value) if isinstance(value, float) else 1


def _outcome(request: str, arm: Arm, kind: Kind, values: Mapping[str, Value], shared: Mapping[str, Any]) -> Outcome:
    """Return an answer that measures what the test says, and nothing that it does not mention."""
    fault = values.get("error", 0.0)
    error = fault if isinstance(fault, str) else OTHER if fault else None
    finish = Finish.ABORT if fault is None else Finish.ERROR if error else Finish.STOP
    ttft, tpot, e2e, rate = (_seconds(values, name) for name in ("ttft_s", "tpot_s", "e2e_s", "acceptance_rate"))
    whole = e2e if e2e is not None else (ttft or 0.0) + (1.0 if tpot is None else tpot * (TOKENS - 1))
    counts = None if rate is None else Acceptance(rounds=DRAFTED, drafted=DRAFTED, accepted=round(min(rate, 1.0) * DRAFTED))
    return Outcome(
        request_id=request, arm=arm, kind=kind, release_id=arm.value, finish=finish, error=error, e2e_s=whole,
        ttft_s=(0.0 if ttft is None else ttft) if tpot is not None else ttft,
        completion_tokens=1 if tpot is None else TOKENS, acceptance=counts, **shared,
    )  # fmt: skip


def _seconds(values: Mapping[str, Value], name: str) -> float | None:
    value = values.get(name)
    return max(value, 0.0) if isinstance(value, float) else None


def _start(case: Case, policy: Policy) -> Play:
    is_promoted = case.stage is Stage.PROMOTED
    return Play(policy, made_up(policy, is_gated=case.stage is Stage.TRIAL, is_promoted=is_promoted))


def _expectations(case: Case, policy: Policy) -> Iterator[Failure]:
    """Play the test once and compare at each request that it names."""
    play, restarts = _start(case, policy), _restarts(case)
    wanted: dict[int, list[Expectation]] = {}
    for expected in case.expect:
        wanted.setdefault(expected.at, []).append(expected)
    for n, outcome in outcomes_of(case, case.seed):
        if outcome.arm is Arm.CANDIDATE and n - 1 in restarts:
            play.restart()
        play.take(outcome)
        for expected in wanted.get(n, ()) if outcome.arm is Arm.CANDIDATE else ():
            yield from _compare(case.name, expected, play, outcome)
    if case.must_not_fire and play.alerts:
        name, _ = min(play.alerts.items(), key=lambda alert: alert[1])
        yield Failure(case=case.name, at=case.length, what="alert", expected="none", got=_alerts(play, name))


def _restarts(case: Case) -> set[int]:
    return {at for series in (*case.input.values(), *case.baseline.values()) for at in series.restarts}


def _compare(case: str, expected: Expectation, play: Play, outcome: Outcome) -> Iterator[Failure]:
    def failure(what: str, want: str, got: str) -> Failure:
        return Failure(case=case, at=expected.at, what=what, expected=want, got=got)

    if expected.verdict is not None and expected.verdict is not play.result:
        said = play.moved.reason if play.moved and play.rollout.is_terminal else play.verdict(outcome).reason
        yield failure("verdict", expected.verdict, f"{play.result}: {said}")
    action = play.moved.kind if play.moved else "HOLD"
    if expected.action is not None and expected.action != action:
        yield failure("action", expected.action, f"{action}{f': {play.moved.reason}' if play.moved else ''}")
    for name in expected.alerts:
        if name not in play.alerts:
            yield failure("alert", name, _alerts(play, *play.alerts))
    for name in expected.quiet:
        if name in play.alerts:
            yield failure("no alert", name, _alerts(play, name))


def _alerts(play: Play, *names: str) -> str:
    return ", ".join(f"{name} at {play.alerts[name]}" for name in names) or "none"


def _statistics(case: Case, wanted: Statistics, policy: Policy) -> Iterator[Failure]:
    """Run the test many times, each on its own seed, and compare rates and delays with what is allowed."""
    fired = [_fired_after(case, policy, wanted.seed + run) for run in range(wanted.runs)]
    shift = wanted.shift_at if wanted.shift_at is not None else case.length
    early = sum(at is not None and at <= shift for at in fired) / len(fired)
    delays = sorted(float("inf") if at is None else at - shift for at in fired if at is None or at > shift)

    def failure(what: str, want: float, got: float) -> Failure:
        return Failure(case=case.name, at=case.length, what=what, expected=f"{want:g}", got=f"{got:g} in {wanted.runs} runs")

    if wanted.false_alarm_at_most is not None and early > wanted.false_alarm_at_most:
        yield failure("false alarms of at most", wanted.false_alarm_at_most, early)
    if wanted.detected_at_least is not None:
        found = sum(delay != float("inf") for delay in delays) / max(len(delays), 1)
        if found < wanted.detected_at_least:
            yield failure("a share detected of at least", wanted.detected_at_least, found)
    if wanted.delay_at_most is not None:
        median = delays[len(delays) // 2] if delays else float("inf")
        if median > wanted.delay_at_most:
            yield failure("a median delay of at most", wanted.delay_at_most, median)


def _fired_after(case: Case, policy: Policy, seed: int) -> int | None:
    """Return the request at which the policy first said FAIL."""
    play = _start(case, policy)
    for n, outcome in outcomes_of(case, seed):
        play.take(outcome)
        if play.failed_after is not None:
            return n
    return None

