"""Offline paired evaluation: the same held-out prompts on both arms, in turn, in one run (M3, M11).

Each prompt goes to both arms, the order swapping from prompt to prompt (A B, B A, ...), so that drift of the machine falls on
both alike. Greedy text is compared token by token. Called by the quickstart; what to conclude is
left to the policy.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Protocol

from specops.core.outcome import Acceptance, Arm, Finish, Kind, Outcome
from specops.stats.paired import PairedRatio, paired_ratio


class Answer(Protocol):
    """What an arm returned for one prompt; `engines.client.Completion` fits."""

    @property
    def token_ids(self) -> tuple[int, ...]:
        """Output token ids."""
        ...

    @property
    def finish(self) -> str:
        """Why it ended: stop or length."""
        ...

    @property
    def ttft_s(self) -> float | None:
        """Seconds to the first token."""
        ...

    @property
    def e2e_s(self) -> float:
        """Seconds to the last token."""
        ...

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompt."""
        ...

    @property
    def completion_tokens(self) -> int:
        """Tokens of the answer."""
        ...

    @property
    def acceptance(self) -> Acceptance | None:
        """Counts of the speculation; None on a plain arm."""
        ...


Complete = Callable[[str], Answer]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A prompt whose greedy tokens differ: index of the prompt and of the first differing token."""

    prompt: int
    token: int
    baseline: tuple[int, ...]
    candidate: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Paired ratios are baseline / candidate of the metric: for seconds the candidate's speed-up, for tokens/s its inverse."""

    prompts: int
    ratios: dict[str, PairedRatio]
    acceptance: Acceptance
    differences: tuple[Difference, ...]
    outcomes: tuple[Outcome, ...]

    def to_record(self) -> dict[str, Any]:
        """Return JSON-ready values without the outcomes."""
        return {
            "prompts": self.prompts,
            "ratios": {k: asdict(v) for k, v in self.ratios.items()},
            "acceptance": asdict(self.acceptance),
            "acceptance_rate": self.acceptance.rate,
            "acceptance_length": self.acceptance.length,
            "differences": [asdict(d) for d in self.differences],
        }


def evaluate(
    prompts: Sequence[str],
    arms: Mapping[Arm, Complete],
    releases: Mapping[Arm, str],
    *,
    clock: Callable[[], datetime],
    on_prompt: Callable[[int], None] = lambda _: None,
) -> Evaluation:
    """Send every prompt to both arms and compare.

    Args:
        prompts: held-out prompts, at least 2.
        arms: a function per arm that completes a prompt at temperature 0.
        releases: release id per arm, for the outcomes.
        clock: UTC now.
        on_prompt: called with the number of prompts done.
    """
    answers: dict[Arm, list[Answer]] = {arm: [] for arm in arms}
    outcomes: list[Outcome] = []
    order = (Arm.BASELINE, Arm.CANDIDATE)
    for index, prompt in enumerate(prompts):
        for arm in order if index % 2 == 0 else reversed(order):
            answer = arms[arm](prompt)
            answers[arm].append(answer)
            outcomes.append(_outcome(index, arm, releases[arm], answer, clock()))
        on_prompt(index + 1)
    return Evaluation(
        prompts=len(prompts),
        ratios=_ratios(outcomes),
        acceptance=_pool(outcomes),
        outcomes=tuple(outcomes),
        differences=tuple(_differences(answers[Arm.BASELINE], answers[Arm.CANDIDATE])),
    )


def _outcome(index: int, arm: Arm, release: str, answer: Answer, now: datetime) -> Outcome:
    return Outcome(
        request_id=f"offline-{index:04d}",
        arm=arm,
        kind=Kind.OFFLINE,
        release_id=release,
        at=now,
        finish=Finish(answer.finish),
        e2e_s=answer.e2e_s,
        ttft_s=answer.ttft_s,
        prompt_tokens=answer.prompt_tokens,
        completion_tokens=answer.completion_tokens,
        acceptance=answer.acceptance,
    )


def _ratios(outcomes: Sequence[Outcome]) -> dict[str, PairedRatio]:
    metrics: dict[str, Callable[[Outcome], float | None]] = {
        "ttft_s": lambda o: o.ttft_s,
        "tpot_s": lambda o: o.tpot_s,
        "e2e_s": lambda o: o.e2e_s,
        "tokens_per_s": lambda o: o.completion_tokens / o.e2e_s if o.e2e_s else None,
    }
    by_id: dict[str, dict[Arm, Outcome]] = {}
    for outcome in outcomes:
        by_id.setdefault(outcome.request_id, {})[outcome.arm] = outcome
    ratios = {}
    for name, of in metrics.items():
        pairs = [(of(p[Arm.BASELINE]), of(p[Arm.CANDIDATE])) for p in by_id.values()]
        known = [(b, c) for b, c in pairs if b and c]
        if len(known) >= 2:  # noqa: PLR2004  # an interval needs two pairs
            ratios[name] = paired_ratio([b for b, _ in known], [c for _, c in known])
    return ratios


def _pool(outcomes: Sequence[Outcome]) -> Acceptance:
    counts = [o.acceptance for o in outcomes if o.arm is Arm.CANDIDATE and o.acceptance is not None]
    whole = all(c.histogram or not c.accepted for c in counts)  # a histogram of some requests would not add up to the counts
    width = max((len(c.histogram) for c in counts), default=0) if whole else 0
    return Acceptance(
        rounds=sum(c.rounds for c in counts),
        drafted=sum(c.drafted for c in counts),
        accepted=sum(c.accepted for c in counts),
        histogram=tuple(sum(c.histogram[i] for c in counts if i < len(c.histogram)) for i in range(width)),
    )


def _differences(baseline: Sequence[Answer], candidate: Sequence[Answer]) -> list[Difference]:
    found = []
    for index, (b, c) in enumerate(zip(baseline, candidate, strict=True)):
        if b.token_ids != c.token_ids:
            first = next(
                (i for i, (x, y) in enumerate(zip(b.token_ids, c.token_ids, strict=False)) if x != y),
                min(len(b.token_ids), len(c.token_ids)),
            )
            found.append(Difference(prompt=index, token=first, baseline=b.token_ids, candidate=c.token_ids))
    return found
