"""Builders for the core's tests: each supplies everything a test is not about."""

from datetime import UTC, datetime

import pytest

from specops.core.outcome import Acceptance, Arm, Finish, Kind, Outcome
from specops.core.policy import parse_policy
from specops.core.rollout import Rollout, Step, StepKind
from specops.core.verdict import Finding, Result, Verdict

T0 = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture
def now():
    """Return the one moment at which tests happen."""
    return T0


@pytest.fixture
def policy_mapping():
    """Return a valid policy as a fresh mapping, free to be spoiled."""
    return {
        "name": "test",
        "alpha": 0.01,
        "arl_requests": 10_000,
        "settle": 0,
        "fatal": {"engine_unreachable": 1, "empty_answer": 3},
        "checks": [
            {"name": "acceptance", "metric": "acceptance_rate", "at_least": 0.45, "min_requests": 8, "owner": "oncall"},
            {"name": "ttft", "metric": "ttft_s", "at_most": {"limit_s": 2.0, "share": 0.05}, "pass_at": 0.25,
             "min_requests": 8, "owner": "oncall"},
            {"name": "errors", "metric": "error", "at_most": 0.05, "pass_at": 0.25, "min_requests": 8, "owner": "oncall"},
        ],
    }  # fmt: skip


@pytest.fixture
def policy(policy_mapping):
    """Return the parsed policy."""
    return parse_policy(policy_mapping)


@pytest.fixture
def make_outcome():
    """Build a completed candidate outcome with `rate` of 100 drafted tokens accepted; None leaves the counts away."""

    def make(rate=0.7, **changes):
        counts = None if rate is None else Acceptance(rounds=25, drafted=100, accepted=round(100 * rate))
        plain = {
            "request_id": "r",
            "arm": Arm.CANDIDATE,
            "kind": Kind.LIVE,
            "release_id": "rel-1",
            "at": T0,
            "finish": Finish.STOP,
        }
        times = {"e2e_s": 1.0, "ttft_s": 0.2, "completion_tokens": 9}
        return Outcome(**(plain | times | {"acceptance": counts} | changes))

    return make


@pytest.fixture
def make_rollout():
    """Build a rollout of shadow, 10%, gated 50% and watch."""

    def make(at_step=0, **changes):
        steps = (
            Step(kind=StepKind.SHADOW, mirror=0.5),
            Step(kind=StepKind.CANARY, weight=0.1),
            Step(kind=StepKind.CANARY, weight=0.5, gate=True),
            Step(kind=StepKind.WATCH, weight=1.0),
        )
        plain = {"id": "ro-1", "baseline": "a", "candidate": "b", "policy_digest": "d", "pipeline": "p", "steps": steps}
        return Rollout(**(plain | {"step": at_step, "requested_by": "ann"} | changes))

    return make


@pytest.fixture
def make_verdict():
    """Build a verdict of one finding."""

    def make(result, reason="because"):
        finding = Finding(
            check="c", result=Result(result), metric="error", n=1, estimate=None, low=None, high=None, limit=0.1, unit="share",
            e_value=1.0, e_threshold=100.0, pass_e_value=None, pass_threshold=None, owner="oncall", reason=reason,
        )  # fmt: skip
        return Verdict(result=Result(result), findings=(finding,), policy_digest="d", outcomes=1, at=T0)

    return make
