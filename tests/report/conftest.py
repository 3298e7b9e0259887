"""A synthetic rollout that collapses: used by the report's tests and by nobody else."""

import math
import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from specops.core.outcome import Arm
from specops.core.rollout import ActionKind, StepKind
from specops.core.verdict import Result
from specops.report import model

T0 = datetime(2026, 11, 28, 9, 0, tzinfo=UTC)
SHIFT, FOUND = 240, 271


def digest(letter):
    """Return a made-up digest."""
    return (letter * 64)[:64]


def releases():
    """Return three releases of one target."""
    common = {"target": digest("7a"), "tokenizer": digest("c4")}
    return (
        model.ReleaseLine(
            role="baseline",
            name="target-plain",
            id="rel-11aa22bb33cc",
            digest=digest("11"),
            method=None,
            num_speculative_tokens=0,
            draft=None,
            **common,
        ),
        model.ReleaseLine(
            role="candidate",
            name="draft-k4",
            id="rel-44dd55ee66ff",
            digest=digest("44"),
            method="draft_model",
            num_speculative_tokens=4,
            draft=digest("d1"),
            **common,
        ),
        model.ReleaseLine(
            role="alternative",
            name="ngram-k4",
            id="rel-77aa88bb99cc",
            digest=digest("77"),
            method="ngram",
            num_speculative_tokens=4,
            draft=None,
            **common,
        ),
    )


def graph():
    """Return lineage nodes and edges."""
    names = [
        ("corpus", "tinystories-slice", "corpus"),
        ("recipe", "train-recipe", "recipe"),
        ("tok", "bpe-2048", "tokenizer"),
        ("target", "target-6m", "target"),
        ("draft", "draft-0.4m", "draft"),
        ("eval", "held-out", "evaluation_set"),
        ("plain", "target-plain", "release"),
        ("spec", "draft-k4", "release"),
    ]
    links = [
        ("tok", "trained_on", "corpus"),
        ("target", "trained_on", "corpus"),
        ("target", "tokenized_with", "tok"),
        ("target", "uses", "recipe"),
        ("draft", "distilled_from", "target"),
        ("draft", "tokenized_with", "tok"),
        ("plain", "uses", "target"),
        ("spec", "uses", "target"),
        ("spec", "uses", "draft"),
        ("spec", "replaces", "plain"),
        ("spec", "evaluated_on", "eval"),
    ]
    return (
        tuple(model.LineageNode(id=i, label=label, kind=kind) for i, label, kind in names),
        tuple(model.LineageEdge(source=s, kind=k, target=t) for s, k, t in links),
    )


def acceptance(rng):
    """Return rates that collapse at SHIFT."""
    points, total = [], 0.0
    for i in range(1, 291):
        rate = min(1.0, max(0.0, rng.gauss(0.71 if i < SHIFT else 0.34, 0.12)))
        total += rate
        half = 1.6 * math.sqrt(math.log(20 + i) / i) * 0.3
        phase = "shadow" if i < 60 else "canary 10%" if i < 130 else "canary 50%" if i < 200 else "watch"
        points.append(
            model.AcceptancePoint(index=i, rate=rate, phase=phase, low=max(0, total / i - half), high=min(1, total / i + half))
        )
    return tuple(points)


def latencies(rng):
    """Return samples of both arms."""
    samples = []
    for arm, speed in ((Arm.BASELINE, 1.0), (Arm.CANDIDATE, 0.62)):
        for _ in range(160):
            tpot = 0.011 * speed * rng.lognormvariate(0, 0.22)
            ttft = 0.034 * rng.lognormvariate(0, 0.35)
            samples.append(model.LatencySample(arm=arm, ttft_s=ttft, tpot_s=tpot, e2e_s=ttft + tpot * rng.randint(30, 90)))
    return tuple(samples)


def decision(second, step, action, result, n, reason, **numbers):
    """Return one verdict."""
    return model.DecisionLine(
        at=T0 + timedelta(seconds=second), step=step, action=action, result=result, n=n, reason=reason, **numbers
    )


def decisions():
    """Return a walk from shadow to rollback."""
    kind, act, res = StepKind, ActionKind, Result
    lines = [
        decision(
            s,
            kind.SHADOW,
            act.HOLD,
            res.PENDING,
            2 * s,
            "acceptance: not enough evidence yet",
            estimate=0.7,
            low=0.5,
            high=0.85,
            e_value=1.2,
            threshold=200.0,
        )
        for s in range(1, 18)
    ]
    lines += [
        decision(
            19,
            kind.SHADOW,
            act.ADVANCE,
            res.PASS,
            60,
            "acceptance 0.71 above 0.55",
            estimate=0.71,
            low=0.6,
            high=0.8,
            e_value=0.02,
            threshold=200.0,
        ),
        *[decision(20 + s, kind.CANARY, act.HOLD, res.PASS, 60 + s * 6, "12 of 40 requests") for s in range(1, 9)],
        decision(
            31,
            kind.CANARY,
            act.ADVANCE,
            res.PASS,
            130,
            "acceptance 0.71 above 0.55",
            estimate=0.71,
            low=0.63,
            high=0.78,
            e_value=0.01,
            threshold=200.0,
        ),
        decision(
            42,
            kind.WATCH,
            act.PROMOTE,
            res.PASS,
            200,
            "acceptance 0.71 above 0.55",
            estimate=0.71,
            low=0.65,
            high=0.77,
            e_value=0.01,
            threshold=200.0,
        ),
        *[decision(43 + s, kind.WATCH, act.HOLD, res.PASS, 200 + s * 6, "last step, watching") for s in range(10)],
        decision(
            55.4,
            kind.WATCH,
            act.ROLL_BACK,
            res.FAIL,
            FOUND,
            "acceptance 0.35 below 0.55",
            estimate=0.35,
            low=0.24,
            high=0.47,
            e_value=318.0,
            threshold=200.0,
        ),
    ]
    return tuple(lines)


@pytest.fixture(scope="session")
def report_data():
    """Return a full report: three releases, a collapse at request 240, caught at 271, rolled back."""
    rng = random.Random(7)
    nodes, edges = graph()
    line = model.EvaluationLine
    return model.ReportData(
        title="Rollout of draft-k4 past target-plain",
        created_at=T0 + timedelta(minutes=2),
        goal="Cut time per output token by a quarter on story prompts, without changing a single token of greedy output.",
        releases=releases(),
        nodes=nodes,
        edges=edges,
        evaluation=(
            line(
                metric="time per output token",
                unit="ms",
                baseline=11.2,
                candidate=7.1,
                ratio=0.634,
                low=0.60,
                high=0.67,
                n=200,
                better="lower",
            ),
            line(
                metric="time to first token",
                unit="ms",
                baseline=34.0,
                candidate=35.1,
                ratio=1.03,
                low=0.96,
                high=1.11,
                n=200,
                better="lower",
            ),
            line(
                metric="tokens per second",
                unit="1/s",
                baseline=81,
                candidate=127,
                ratio=1.57,
                low=1.49,
                high=1.65,
                n=200,
                better="higher",
            ),
            line(
                metric="peak memory",
                unit="MB",
                baseline=410,
                candidate=455,
                ratio=1.11,
                low=1.09,
                high=1.13,
                n=5,
                better="lower",
            ),
        ),
        equality=model.Equality(equal=200, compared=200),
        positions=tuple(
            model.PositionLine(position=i, drafted=1000 - 4 * i, accepted=int(1000 * 0.84**i)) for i in range(1, 5)
        ),
        acceptance=acceptance(rng),
        acceptance_limit=0.55,
        shift_index=SHIFT,
        detection_index=FOUND,
        reaction_s=0.083,
        latencies=latencies(rng),
        weights=(
            model.WeightPoint(t_s=0, weight=0, mirror=0.5, label="shadow: half of the requests mirrored"),
            model.WeightPoint(t_s=19, weight=0.1, mirror=0, label="canary 10%"),
            model.WeightPoint(t_s=31, weight=0.5, mirror=0, label="canary 50%"),
            model.WeightPoint(t_s=42, weight=1, mirror=0, label="promoted, watching"),
            model.WeightPoint(t_s=55.5, weight=0, mirror=0, label="rolled back"),
        ),
        decisions=decisions(),
        policy=model.PolicyText(
            name="acceptance-guard",
            digest=digest("9e"),
            text="version: 1\nname: acceptance-guard\nchecks:\n  - name: acceptance\n",
            checks=(
                model.CheckLine(
                    name="acceptance",
                    metric="acceptance_rate",
                    rule="mean >= 0.55, alpha 0.005",
                    owner="inference-oncall",
                    source="break-even of k=4 on this machine",
                ),
                model.CheckLine(
                    name="tail",
                    metric="e2e_s p95",
                    rule="<= 1.25 × baseline",
                    owner="inference-oncall",
                    source="service level objective",
                ),
            ),
        ),
        alerts=(
            model.AlertLine(
                at=T0 + timedelta(seconds=55.5),
                name="SpecopsCheckFailed",
                severity="critical",
                summary="rollout r-1 is rolled_back: acceptance says FAIL",
                owner="inference-oncall",
                delivered=True,
            ),
        ),
        audit=model.AuditSeal(
            checkpoint="specops.example/log\n41\nq83vEjRWeJA=\n\n— specops AbCd1234\n",
            size=41,
            root=digest("5f"),
            public_key="MCowBQYDK2VwAyEA0000000000000000000000000000000000000000000=",
        ),
        operations=model.Operations(baseline_peak_memory_mb=410, candidate_peak_memory_mb=455),
        environment=(("python", "3.11"), ("torch", "2.13.0"), ("cpu", "2 cores"), ("attention kernel", "SDPA math")),
        limits=("No GPU took part.", "One language, one prompt family.", "Concurrency above 4 was not tried."),
    )


@pytest.fixture
def empty_data():
    """Return a report of which nothing was measured."""
    return model.ReportData(title="Nothing yet", created_at=T0, goal="", releases=())


@pytest.fixture
def hostile_data(report_data):
    """Return texts that try to be markup."""
    bad = "<script>alert(1)</script>"
    node = replace(report_data.nodes[0], label=bad)
    point = replace(report_data.weights[0], label=bad)
    return replace(report_data, title=bad, nodes=(node, *report_data.nodes[1:]), weights=(point, *report_data.weights[1:]))
