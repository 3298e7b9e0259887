"""The seven adoption questions, answered from the report's data alone.

Every sentence is built around a figure of `ReportData`; where the figure is missing the answer says "not measured", so a report
never claims more than was recorded.
"""

from dataclasses import dataclass

from specops.core.outcome import Arm
from specops.report.figures import (
    LATENCIES,
    NOT_MEASURED,
    latencies,
    mean_acceptance,
    number,
    quantile,
    rollback,
    seconds,
    share,
    short,
)
from specops.report.model import EvaluationLine, ReportData

QUESTIONS = {
    "goal": "What is it for?",
    "mechanism": "How does it work here?",
    "baseline": "Compared with what?",
    "evidence": "What shows that it holds?",
    "operations": "What does it cost to run?",
    "risk": "How can it fail?",
    "recovery": "What happens then?",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One question's answer: a sentence, and the figures it rests on as (name, value)."""

    topic: str
    question: str
    text: str
    figures: tuple[tuple[str, str], ...]


def adoption_answers(data: ReportData) -> tuple[Answer, ...]:
    """Return the seven answers in fixed order: goal, mechanism, baseline, evidence, operations, risk, recovery."""
    answer_of = {
        "goal": _goal,
        "mechanism": _mechanism,
        "baseline": _baseline,
        "evidence": _evidence,
        "operations": _operations,
        "risk": _risk,
        "recovery": _recovery,
    }
    return tuple(
        Answer(topic=topic, question=question, text=text, figures=figures)
        for topic, question in QUESTIONS.items()
        for text, figures in [answer_of[topic](data)]
    )


Part = tuple[str, tuple[tuple[str, str], ...]]


def _goal(data: ReportData) -> Part:
    """Give the stated goal, and the ratios that speak to it."""
    return data.goal or "no goal was stated", _ratios(data.evaluation) or (("ratio to baseline", NOT_MEASURED),)


def _mechanism(data: ReportData) -> Part:
    """Name method, draft and k of each release that speculates."""
    parts = [
        f"{r.name} drafts {r.num_speculative_tokens} tokens a round with {r.method} "
        f"({f'draft {short(r.draft)}' if r.draft else 'no draft weights'}) for target {short(r.target)}"
        for r in data.releases
        if r.method
    ]
    before, after = mean_acceptance(data)
    figures = [("acceptance rate", share(before))]
    if data.shift_index is not None:
        figures.append(("acceptance rate after the shift", share(after)))
    return "; ".join(parts) or "no release speculates", tuple(figures)


def _baseline(data: ReportData) -> Part:
    """Name the releases without a draft, and how many requests both arms answered."""
    plain = [f"{r.name} ({r.id}), target {short(r.target)}" for r in data.releases if r.role == Arm.BASELINE]
    text = f"baseline release: {'; '.join(plain)}" if plain else "no baseline release is recorded"
    samples = {arm: sum(s.arm is arm for s in data.latencies) for arm in Arm}
    offline = max((line.n for line in data.evaluation), default=None)
    return text, (
        ("offline requests, both arms", NOT_MEASURED if offline is None else number(offline)),
        ("measured requests on traffic, baseline", number(samples[Arm.BASELINE])),
        ("measured requests on traffic, candidate", number(samples[Arm.CANDIDATE])),
    )


def _evidence(data: ReportData) -> Part:
    """List equality of greedy text, confidence bounds, decisions."""
    equality = data.equality
    same = NOT_MEASURED if equality is None else f"{equality.equal} of {equality.compared} greedy texts equal"
    judged = [d for d in data.decisions if d.e_value is not None]
    text = (
        f"{len(data.decisions)} recorded verdicts under policy {data.policy.name}" if data.policy else "no policy judged this"
    )
    return text, (
        ("output equality", same),
        *_ratios(data.evaluation),
        (
            "last e-value / threshold",
            f"{number(judged[-1].e_value)} / {number(judged[-1].threshold)}" if judged else NOT_MEASURED,
        ),
        ("audit entries sealed", number(data.audit.size) if data.audit else NOT_MEASURED),
    )


def _operations(data: ReportData) -> Part:
    """List latency, memory, compute, energy, maintenance, review."""
    cost = data.operations
    figures = [
        (f"{words}, p50 / p95 {arm}", " / ".join(seconds(quantile(latencies(data, metric, arm), q)) for q in (0.5, 0.95)))
        for metric, words in LATENCIES
        for arm in Arm
    ]
    return cost.maintenance or f"maintenance: {NOT_MEASURED}", (
        *figures,
        ("peak memory, baseline / candidate", _pair(cost.baseline_peak_memory_mb, cost.candidate_peak_memory_mb, "MB")),
        (
            "compute, baseline / candidate",
            _pair(
                cost.baseline_cpu_s_per_1k_tokens,
                cost.candidate_cpu_s_per_1k_tokens,
                "CPU-s per 1,000 tokens",
            ),
        ),
        ("energy", _unit(cost.energy_j_per_1k_tokens, "J per 1,000 tokens")),
        ("review", _unit(cost.review_minutes, "minutes")),
    )


def _risk(data: ReportData) -> Part:
    """Show the acceptance limit, the precursor watched, and what was not tested."""
    limit = NOT_MEASURED if data.acceptance_limit is None else share(data.acceptance_limit)
    checks = data.policy.checks if data.policy else ()
    owners = ", ".join(sorted({check.owner for check in checks}))
    text = f"{len(checks)} checks watch for it; owners: {owners}" if checks else "no check watches for it"
    before, after = mean_acceptance(data)
    return text, (
        ("acceptance limit", limit),
        ("acceptance before / after the shift", f"{share(before)} / {share(after)}"),
        ("stated limits of this report", number(len(data.limits))),
    )


def _recovery(data: ReportData) -> Part:
    """Tell of the rollback: whether it happened, how soon, and whether somebody was told."""
    decided = rollback(data)
    text = f"rolled back at {decided.step}: {decided.reason}" if decided else "no rollback happened in this run"
    delay = None
    if data.shift_index is not None and data.detection_index is not None:
        delay = data.detection_index - data.shift_index
    return text, (
        ("requests from shift to detection", NOT_MEASURED if delay is None else number(delay)),
        ("from deciding outcome to first request on plain", seconds(data.reaction_s)),
        ("alerts delivered", f"{sum(a.delivered for a in data.alerts)} of {len(data.alerts)}"),
    )


def _ratios(lines: tuple[EvaluationLine, ...]) -> tuple[tuple[str, str], ...]:
    """Return each offline ratio with its interval."""
    return tuple(
        (
            f"{line.metric}, candidate / baseline",
            f"{number(line.ratio)} [{number(line.low)}, {number(line.high)}], n = {line.n}",
        )
        for line in lines
        if line.ratio is not None
    )


def _unit(value: float | None, unit: str) -> str:
    """Write a value with its unit."""
    return NOT_MEASURED if value is None else f"{number(value)} {unit}"


def _pair(baseline: float | None, candidate: float | None, unit: str) -> str:
    """Write both arms' values with their unit."""
    if baseline is None and candidate is None:
        return NOT_MEASURED
    return " / ".join(NOT_MEASURED if v is None else number(v) for v in (baseline, candidate)) + f" {unit}"
