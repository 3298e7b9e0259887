"""Two traces side by side: what each cost and produced, and the first token at which they part.

Called by `core.trace_why` (against plain decoding), by `engines.rerun` (the changed run) and by `specops trace compare`.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from typing import Any

from specops.core.trace import STAGES, Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The numbers of one trace.

    Attributes:
        tokens: emitted, the prefill's included.
        rounds: without the prefill.
        drafted, accepted: in all rounds, counted before any cut.
        tokens_per_pass: emitted tokens per forward of the target, the prefill left out; None without a round.
        acceptance_rate: accepted / drafted; None if nothing was drafted.
        acceptance_length: 1 + accepted / rounds; None without a round.
        stage_s: seconds of draft, score, accept and resample, each over all rounds.
        queue_s, prefill_s: seconds.
        round_tokens: emitted by the rounds.
    """

    tokens: int
    rounds: int
    drafted: int
    accepted: int
    tokens_per_pass: float | None
    acceptance_rate: float | None
    acceptance_length: float | None
    stage_s: tuple[float, ...]
    queue_s: float
    prefill_s: float
    round_tokens: int

    @property
    def rounds_s(self) -> float:
        """Seconds of all rounds."""
        return sum(self.stage_s)

    @property
    def total_s(self) -> float:
        """Seconds of queue, prefill and rounds."""
        return self.queue_s + self.prefill_s + self.rounds_s

    @property
    def token_s(self) -> float | None:
        """Seconds per token that the rounds emitted; None if they emitted nothing."""
        return self.rounds_s / self.round_tokens if self.round_tokens else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Where two answers part: token index `at` from 0, and what each has there; None where an answer has ended."""

    at: int
    first: int | None
    second: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two traces.

    Attributes:
        request_ids: of both.
        first, second: their figures.
        same_prompt: they were asked the same tokens.
        changed: the settings and engine facts in which they differ, by name, with both values.
        difference: the first token at which the answers part; None if they are equal.
    """

    request_ids: tuple[str, str]
    first: Figures
    second: Figures
    same_prompt: bool
    changed: dict[str, tuple[Any, Any]]
    difference: Difference | None

    @property
    def speedup(self) -> float | None:
        """Seconds per token of the first over those of the second: above 1 the second is faster; None if not measured."""
        ours, theirs = self.first.token_s, self.second.token_s
        return ours / theirs if ours and theirs else None

    def to_record(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return asdict(self) | {"speedup": self.speedup}


def figures(trace: Trace) -> Figures:
    """Return the numbers of a trace."""
    rounds, drafted, accepted = len(trace.rounds), trace.drafted, trace.accepted
    emitted = sum(len(line.emitted) for line in trace.rounds)
    return Figures(
        tokens=len(trace.emitted),
        rounds=rounds,
        drafted=drafted,
        accepted=accepted,
        tokens_per_pass=emitted / rounds if rounds else None,
        acceptance_rate=accepted / drafted if drafted else None,
        acceptance_length=1 + accepted / rounds if rounds else None,
        stage_s=tuple(sum(line.stage_s[i] for line in trace.rounds) for i in range(len(STAGES))),
        queue_s=trace.queue_s,
        prefill_s=trace.prefill_s,
        round_tokens=emitted,
    )


def first_difference(first: Sequence[int], second: Sequence[int]) -> Difference | None:
    """Return where two sequences part; None if they are equal."""
    for at, (one, other) in enumerate(zip_longest(first, second)):
        if one != other:
            return Difference(at=at, first=one, second=other)
    return None


def compare(first: Trace, second: Trace) -> Comparison:
    """Compare two traces, whatever they were asked."""
    facts = [{**dict(trace.engine), **dict(trace.settings)} for trace in (first, second)]
    names = sorted(facts[0].keys() | facts[1].keys())
    return Comparison(
        request_ids=(first.request_id, second.request_id),
        first=figures(first),
        second=figures(second),
        same_prompt=first.prompt_ids == second.prompt_ids,
        changed={name: (facts[0].get(name), facts[1].get(name)) for name in names if facts[0].get(name) != facts[1].get(name)},
        difference=first_difference(first.emitted, second.emitted),
    )
