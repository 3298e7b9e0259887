"""The record of one round, for people and for invariants: what was drafted, what each stage decided, and how long it took.

Made by `loop` when `Request.trace` is set and never otherwise; stored and shown by others. It holds token ids, no text.
Test: tests/decoding/test_trace.py.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum
from time import perf_counter
from typing import Any


class Decided(StrEnum):
    """Which stage chose the round's last token."""

    BONUS = "bonus"
    RECOVERED = "recovered"
    TARGET = "target"  # nothing was drafted: an ordinary token


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundTrace:
    """One round.

    Attributes:
        drafted: proposed token ids, k of them.
        draft_probs: q of each under the law it was drawn from (1 for a one-hot proposal).
        target_probs: p of each under the request's law (0 or 1 at temperature 0).
        ratios: min(1, p / q) of each.
        entropies_nats: of the target's unfiltered law at temperature 1, at each of the k + 1 positions.
        coins: uniform numbers spent on the examined proposals; None where no coin was needed.
        accepted: length of the accepted prefix; the proposal behind it, if any, was rejected.
        residual_mass: sum of max(p - q, 0) at the rejected position; None without a rejection.
        decided: the stage that chose the last token.
        emitted: the tokens that became final, after any cut.
        stage_s: seconds of draft, score, accept and resample.
    """

    drafted: tuple[int, ...]
    draft_probs: tuple[float, ...]
    target_probs: tuple[float, ...]
    ratios: tuple[float, ...]
    entropies_nats: tuple[float, ...]
    coins: tuple[float | None, ...]
    accepted: int
    residual_mass: float | None
    decided: Decided
    emitted: tuple[int, ...]
    stage_s: tuple[float, ...]

    def to_record(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return asdict(self) | {"decided": self.decided.value}


def stopwatch(*, on: bool) -> tuple[Callable[[], None], list[float]]:
    """Return a lap function and its laps in seconds; when off, the function does nothing."""
    laps: list[float] = []
    if not on:
        return (lambda: None), laps
    last = perf_counter()

    def lap() -> None:
        nonlocal last
        now = perf_counter()
        laps.append(now - last)
        last = now

    return lap, laps
