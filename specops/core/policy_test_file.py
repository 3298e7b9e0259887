"""The file of policy tests as values: which keys there are, and which tests could never mean anything.

Called by `specops policy test`; `core.policy_test` runs what is read here. A test without an expectation is refused, so is a
series that ends before the others.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from specops.core.check import Metric
from specops.core.outcome import Kind
from specops.core.policy_kinds import REQUIRED, Choice, Duration, Field, Flag, Number, Text, Whole, read, require_mapping, shown
from specops.core.policy_series import Series, parse_series
from specops.core.rollout import ActionKind
from specops.core.verdict import Result
from specops.errors import PolicyError

MAX_TESTS = 200
MAX_RUNS = 5_000
MAX_PLAYED = 3_000_000  # requests of all runs of one test: some minutes
INPUTS = (Metric.ACCEPTANCE_RATE, Metric.TTFT_S, Metric.TPOT_S, Metric.E2E_S, Metric.ERROR)


class Stage(StrEnum):
    """Where the made-up rollout stands: on trial for good, on its way to promotion, or promoted."""

    TRIAL = "trial"
    ROLLOUT = "rollout"
    PROMOTED = "promoted"


@dataclass(frozen=True, slots=True)
class _Any:
    """Anything; read again by who knows what it must be."""

    def read(self, value: object, _where: str, _key: str) -> object:
        """Return it as it is."""
        return value

    def schema(self) -> dict[str, Any]:
        """Return the rule that allows everything."""
        return {}


_SHARE = Number(low_in=True, high_in=True, why="a share")
FILE_FIELDS = {
    "name": Field(Text(is_needed=True), REQUIRED, "handle for people"),
    "policy": Field(Text(is_needed=True), REQUIRED, "shipped name, or a path from this file"),
    "description": Field(Text(), "", "one sentence"),
    "tests": Field(_Any(), REQUIRED, "the tests"),
}
TEST_FIELDS = {
    "name": Field(Text(is_needed=True), REQUIRED, "what the policy must do, as a sentence"),
    "interval_s": Field(Duration(), 1.0, "time between requests, in seconds"),
    "stage": Field(Choice(tuple(Stage)), Stage.TRIAL, "where the rollout stands"),
    "kind": Field(Choice((Kind.LIVE, Kind.SHADOW)), Kind.LIVE, "how requests reach the candidate"),
    "share": Field(Number(why="the candidate's live share"), None, "the candidate's live share; 0.5 beside a baseline"),
    "seed": Field(Whole(low=0), 1, "seed of the generators"),
    "input": Field(_Any(), REQUIRED, "a series per metric of the candidate"),
    "baseline": Field(_Any(), None, "a series per metric of the baseline"),
    "in_flight": Field(_Any(), 1, "series of requests in flight"),
    "prompt_tokens": Field(_Any(), 100, "series of prompt lengths in tokens"),
    "expect": Field(_Any(), None, "expectations, each at a request"),
    "must_not_fire": Field(Flag(), False, "nobody is called during the whole test"),
    "statistics": Field(_Any(), None, "what must hold over many seeds"),
}
EXPECT_FIELDS = {
    "at": Field(Whole(), REQUIRED, "after this request, from 1"),
    "verdict": Field(Choice(tuple(Result)), None, "the verdict then"),
    "action": Field(Choice(tuple(ActionKind)), None, "the last action till then; HOLD for none"),
    "alert": Field(_Any(), None, "the check, or checks, that somebody was called about till then"),
    "no_alert": Field(_Any(), None, "the check, or checks, that nobody was called about till then"),
}
STATISTICS_FIELDS = {
    "runs": Field(Whole(), 200, "how many seeds"),
    "seed": Field(Whole(low=0), 1, "the first of them"),
    "shift_at": Field(Whole(low=0), None, "the last request before things go wrong; without it nothing does"),
    "false_alarm_at_most": Field(_SHARE, None, "share of runs that fail up to shift_at"),
    "delay_at_most": Field(Number(high=1e9, low_in=True, why="requests"), None, "median requests from shift_at to FAIL"),
    "detected_at_least": Field(_SHARE, None, "share of runs that fail after shift_at"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What must hold after request `at`; None and empty ask nothing."""

    at: int
    verdict: Result | None
    action: ActionKind | None
    alerts: tuple[str, ...]
    quiet: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """What must hold over `runs` seeds from `seed` on."""

    runs: int
    seed: int
    shift_at: int | None
    false_alarm_at_most: float | None
    delay_at_most: float | None
    detected_at_least: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One test. Series by metric; `length` requests of the candidate."""

    name: str
    interval_s: float
    stage: Stage
    kind: Kind
    share: float | None
    seed: int
    length: int
    input: Mapping[str, Series]
    baseline: Mapping[str, Series]
    in_flight: Series
    prompt_tokens: Series
    expect: tuple[Expectation, ...]
    must_not_fire: bool
    statistics: Statistics | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TestFile:
    """A file of tests for one policy."""

    __test__ = False  # pytest must not collect it

    name: str
    policy: str
    tests: tuple[Case, ...]


def parse_test_file(mapping: Mapping[str, Any], checks: tuple[str, ...]) -> TestFile:
    """Return the tests that a mapping declares.

    Args:
        mapping: the file.
        checks: names of the policy's checks, which alerts are named after.

    Raises:
        PolicyError: an unknown or missing key, a series that cannot be read or ends too early, a test that expects nothing.
    """
    given = read(mapping, FILE_FIELDS, "test file")
    tests = given["tests"]
    if not isinstance(tests, list) or not 1 <= len(tests) <= MAX_TESTS:
        raise PolicyError(f"test file {shown(given['name'])} needs 1 to {MAX_TESTS} tests under 'tests', got {shown(tests)}")
    return TestFile(
        name=given["name"], policy=given["policy"], tests=tuple(_case(one, i + 1, checks) for i, one in enumerate(tests))
    )


def _case(raw: object, number: int, checks: tuple[str, ...]) -> Case:
    rule = require_mapping(raw, f"test {number}")
    where = f"test {shown(rule.get('name', number))}"
    given = read(rule, TEST_FIELDS, where)
    columns, beside = _columns(given["input"], where, "input"), _columns(given["baseline"] or {}, where, "baseline")
    if not columns:
        raise PolicyError(f"{where} has no input; give at least one of {', '.join(INPUTS)}")
    loads = {name: parse_series(given[name], f"{where}: {name}") for name in ("in_flight", "prompt_tokens")}
    length = _length(columns | {f"baseline {n}": s for n, s in beside.items()} | loads, where)
    expect = _expectations(given["expect"], where, length, checks)
    statistics = None if given["statistics"] is None else _statistics(given["statistics"], where, length)
    if not expect and not given["must_not_fire"] and statistics is None:
        raise PolicyError(f"{where} expects nothing; add 'expect', 'must_not_fire' or 'statistics'")
    return Case(
        name=given["name"], interval_s=given["interval_s"], stage=Stage(given["stage"]), kind=Kind(given["kind"]),
        share=given["share"] or (0.5 if beside else None), seed=given["seed"], length=length, input=columns,
        baseline=beside, **loads, expect=expect, must_not_fire=given["must_not_fire"], statistics=statistics,
    )  # fmt: skip


def _columns(raw: object, where: str, key: str) -> dict[str, Series]:
    mapping = require_mapping(raw, f"{where}: {key}")
    fields = {str(metric): Field(_Any(), None, "a series") for metric in INPUTS}
    given = read(mapping, fields, f"{where}: {key}")
    if {"e2e_s", "tpot_s"} <= mapping.keys():
        raise PolicyError(f"{where}: {key} has e2e_s and tpot_s, and the one follows from the other; keep one")
    for name, text in given.items():
        if type(text) is int and text > (1 if name in {Metric.ERROR, Metric.ACCEPTANCE_RATE} else 15):  # 0x10 and more
            raise PolicyError(f"{where}: {key}.{name} is {shown(text)}; YAML reads a bare 0x50 as hexadecimal, quote it")
    return {name: parse_series(text, f"{where}: {key}.{name}") for name, text in given.items() if text is not None}


def _length(series: Mapping[str, Series], where: str) -> int:
    """Return the common number of values; constants take any."""
    counted = {name: one.length for name, one in series.items() if not one.is_constant}
    length = max(counted.values(), default=0)
    if not length:
        raise PolicyError(f"{where} does not say how many requests there are; write x100 behind a value")
    for name, count in counted.items():
        if count != length:
            missing = length - count
            raise PolicyError(f"{where}: {name} has {count} values, another series {length}; end it with _x{missing}")
    return length


def _expectations(raw: object, where: str, length: int, checks: tuple[str, ...]) -> tuple[Expectation, ...]:
    if raw is None:
        return ()
    if not isinstance(raw, list) or not raw:
        raise PolicyError(f"{where}: expect must be a list of mappings with 'at', got {shown(raw)}")
    found = []
    for number, one in enumerate(raw):
        place = f"{where}: expect[{number}]"
        given = read(one, EXPECT_FIELDS, place)
        if given["at"] > length:
            raise PolicyError(f"{place} looks at request {given['at']} of {length}")
        alerts, quiet = (_names(given[key], f"{place}: {key}", checks) for key in ("alert", "no_alert"))
        if given["verdict"] is None and given["action"] is None and not alerts and not quiet:
            raise PolicyError(f"{place} expects nothing; add verdict, action, alert or no_alert")
        verdict, action = given["verdict"] and Result(given["verdict"]), given["action"] and ActionKind(given["action"])
        found.append(Expectation(at=given["at"], verdict=verdict, action=action, alerts=alerts, quiet=quiet))
    return tuple(found)


def _names(raw: object, where: str, checks: tuple[str, ...]) -> tuple[str, ...]:
    names = [] if raw is None else raw if isinstance(raw, list) else [raw]
    kind = Choice(checks, why="a check of the policy, or fatal:CLASS")
    return tuple(
        name if isinstance(name, str) and name.startswith("fatal:") else kind.read(name, where, "name") for name in names
    )


def _statistics(raw: object, where: str, length: int) -> Statistics:
    given = read(raw, STATISTICS_FIELDS, f"{where}: statistics")
    wants = {key: given[key] for key in ("false_alarm_at_most", "delay_at_most", "detected_at_least")}
    if all(value is None for value in wants.values()):
        raise PolicyError(f"{where}: statistics expect nothing; add {', '.join(wants)}")
    needs_shift = wants["delay_at_most"] is not None or wants["detected_at_least"] is not None
    if needs_shift and given["shift_at"] is None:
        raise PolicyError(f"{where}: statistics need 'shift_at' to measure a delay from")
    if given["shift_at"] is not None and given["shift_at"] >= length:
        raise PolicyError(f"{where}: shift_at {given['shift_at']} leaves none of {length} requests")
    if given["runs"] > MAX_RUNS or given["runs"] * length > MAX_PLAYED:
        raise PolicyError(f"{where}: {given['runs']} runs of {length} requests are too many; at most {MAX_PLAYED} in all")
    return Statistics(runs=given["runs"], seed=given["seed"], shift_at=given["shift_at"], **wants)
