"""Is an endpoint's output still the target's? Fold tokens into evidence, and judge it.

Fed with `Rows` (the tokens an endpoint emitted and the laws of the trusted path), window by window; the evidence is the same
however windows are cut, and can be saved and resumed. Scoring, sampling and reports are left to others.

A test of one endpoint at level alpha spends half of it on "not lossless" and half on the bound of the leak. A bound says how
much of the *draft's* law may have leaked in; it does not bound a distortion in another direction.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import numpy as np

from specops.core.fidelity_laws import Rows, distance, log_bets, stakes_for
from specops.errors import InvalidInput
from specops.stats.mixture import BINS, FLOOR, Array, Detector, Leak, Wealth
from specops.stats.multiple import e_bh

GREEDY_TAU: Mapping[str, float] = {"float32": 1e-3, "float16": 0.1, "bfloat16": 0.5}
"""Largest gap to the argmax, in nats, that is put down to rounding.

bfloat16: 1,536 greedy tokens of the demo pair's target lay at most 0.064 below the argmax of a prefill; a model of 135 M
parameters shifts log probabilities by up to 0.25 between decoding and prefill. 0.5 is twice that. float32: the shift is about
1e-6; 1e-3 leaves room for other kernels. float16 was not measured: it rounds 8 times finer than bfloat16.
"""
_CHUNK = 2_000  # tokens computed at once, so that memory stays small
_MOST = 700.0  # exp of more does not fit a double


class Verdict(StrEnum):
    """What can be said of an endpoint."""

    NOT_LOSSLESS = "NOT LOSSLESS"
    LOSSLESS_WITHIN = "LOSSLESS WITHIN"
    INCONCLUSIVE = "INCONCLUSIVE"
    ERROR = "ERROR"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is tested: level alpha in (0, 1), tolerance in total variation per token in (0, 1), strata by position in block."""

    alpha: float = 1e-3
    tolerance: float = 0.01
    positions: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.alpha < 1 or not 0 < self.tolerance < 1 or self.positions < 0:
            raise InvalidInput(
                f"alpha {self.alpha}, tolerance {self.tolerance}, positions {self.positions}; alpha and tolerance are between 0"
                " and 1, positions at least 0"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that was learnt of one endpoint; `wealth` is None before the first token, `leak` counts nothing without a draft."""

    plan: Plan
    wealth: Wealth | None = None
    leak: Leak = field(default_factory=Leak)
    ranks: tuple[float, ...] = (0.0,) * BINS

    def fold(self, rows: Rows) -> tuple["Evidence", Array]:
        """Take in tokens in order; return the new evidence and the log e-value after each token.

        Raises:
            InvalidInput: what is known of these tokens differs from the tokens before (a draft, filters came or went).
        """
        stakes = stakes_for(rows)
        wealth, leak, ranks = self.wealth or Wealth.new(stakes, self.plan.positions), self.leak, self.ranks
        _same(wealth.names, tuple(stakes))
        paths = [np.zeros(0)]
        for part in _parts(rows):
            ratios, ranks = log_bets(part, ranks)
            wealth, path = wealth.fold(ratios, part.position)
            paths.append(path)
            if part.q is not None:
                known = part.pick(part.is_whole)  # a bound needs p itself
                assert known.q is not None
                at = np.arange(len(known.token))
                coarse = known.q[at, known.token] / np.maximum(known.p[at, known.token], FLOOR)
                ratio = coarse if known.ratio is None else known.ratio
                leak = leak.fold(ratio, distance(known), self.plan.alpha / 2)
        return Evidence(plan=self.plan, wealth=wealth, leak=leak, ranks=ranks), np.concatenate(paths)

    @property
    def is_fired(self) -> bool:
        """Whether the tokens were rejected at some time."""
        return self.wealth is not None and self.wealth.peak >= math.log(2 / self.plan.alpha)

    def to_record(self) -> dict[str, Any]:
        """Return JSON-ready values that `from_record` reads back to the bit."""
        leak, plan = self.leak, self.plan
        return {
            "plan": {"alpha": plan.alpha, "tolerance": plan.tolerance, "positions": plan.positions},
            "wealth": self.wealth.to_record() if self.wealth else None,
            "leak": {"logs": list(leak.logs), "tokens": leak.tokens, "distance": leak.distance, "upper": leak.upper},
            "ranks": list(self.ranks),
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "Evidence":
        """Read what `to_record` wrote.

        Raises:
            InvalidInput: the record is not of that form.
        """
        try:
            leak = dict(record["leak"]) | {"logs": tuple(float(one) for one in record["leak"]["logs"])}
            wealth = Wealth.from_record(record["wealth"]) if record["wealth"] else None
            ranks = tuple(float(one) for one in record["ranks"])
            found = cls(plan=Plan(**record["plan"]), wealth=wealth, leak=Leak(**leak), ranks=ranks)
        except (KeyError, TypeError, ValueError) as exc:
            raise InvalidInput(f"this is no saved evidence ({exc!r}); start the verification anew") from exc
        if len(found.leak.logs) != len(Leak().logs) or len(ranks) != BINS:
            raise InvalidInput("the saved evidence is of another version; start the verification anew")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Continuous mode: the same bets, started anew at every token, so that a bug that begins late is found as soon.

    Guarantee: on average at least `run_length` tokens of a sound endpoint pass before a false alarm.
    """

    run_length: float
    positions: int = 0
    detector: Detector | None = None
    ranks: tuple[float, ...] = (0.0,) * BINS

    def fold(self, rows: Rows) -> tuple["Watch", Array]:
        """Take in tokens in order; return the new state and the log of the detector after each."""
        stakes = stakes_for(rows)
        detector, ranks = self.detector or Detector.new(self.run_length, stakes, self.positions), self.ranks
        _same(detector.names, tuple(stakes))
        paths = [np.zeros(0)]
        for part in _parts(rows):
            ratios, ranks = log_bets(part, ranks)
            detector, path = detector.fold(ratios, part.position)
            paths.append(path)
        return replace(self, detector=detector, ranks=ranks), np.concatenate(paths)

    @property
    def alarm_at(self) -> int | None:
        """The token of the alarm, None while there is none."""
        return self.detector.alarm_at if self.detector else None

    def to_record(self) -> dict[str, Any]:
        """Return JSON-ready values that `from_record` reads back to the bit."""
        kept = {"run_length": self.run_length, "positions": self.positions, "ranks": list(self.ranks)}
        return kept | {"detector": self.detector.to_record() if self.detector else None}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "Watch":
        """Read what `to_record` wrote.

        Raises:
            InvalidInput: the record is not of that form.
        """
        try:
            ranks = tuple(float(one) for one in record["ranks"])
            detector = Detector.from_record(record["detector"]) if record["detector"] else None
            run_length, positions = float(record["run_length"]), int(record["positions"])
        except (KeyError, TypeError, ValueError) as exc:
            raise InvalidInput(f"this is no saved watch ({exc!r}); start the watch anew") from exc
        if len(ranks) != BINS:
            raise InvalidInput("the saved watch is of another version; start the watch anew")
        return cls(run_length=run_length, positions=positions, detector=detector, ranks=ranks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Controls:
    """The two controls of a job: evidence of the plain endpoint, and of a mutant replayed on the same rows; None if not run."""

    plain: Evidence | None = None
    mutant: Evidence | None = None

    def problems(self) -> tuple[str, ...]:
        """Return why nothing may be concluded; empty when the plain endpoint was quiet and the mutant fired."""
        found = []
        if self.plain is None or self.plain.wealth is None:
            found.append("the plain endpoint was not tested")
        elif self.plain.is_fired:
            found.append("the plain endpoint, without speculation, is rejected too: the scoring path or its settings differ")
        if self.mutant is None or self.mutant.wealth is None:
            found.append("no mutant was replayed")
        elif not self.mutant.is_fired:
            found.append("a replayed mutant was not rejected: there are too few tokens, or the laws carry no information")
        return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A verdict with its figures.

    `log_e` is the largest log e-value so far, `diagnosis` the law that explains the tokens best and `position` its stratum
    (only when NOT LOSSLESS). `tv_bound` is 1 where no draft's law was given. `tokens_needed` is an estimate, or None.
    """

    verdict: Verdict
    tokens: int
    log_e: float
    tv_bound: float
    diagnosis: str | None = None
    position: int | None = None
    tokens_needed: int | None = None
    problems: tuple[str, ...] = ()

    @property
    def e_value(self) -> float:
        """The e-value itself, capped where a double ends."""
        return math.exp(min(self.log_e, _MOST))


def judge(evidence: Evidence, controls: Controls) -> Finding:
    """Return the verdict: ERROR unless both controls behaved, whatever the evidence says.

    Guarantee: an endpoint whose tokens follow the target's law is called NOT LOSSLESS with probability at most alpha / 2, and
    one that leaks more than the tolerance towards the draft LOSSLESS with at most alpha / 2, at any time of looking.
    """
    wealth, plan = evidence.wealth, evidence.plan
    tokens, peak = (wealth.tokens, wealth.peak) if wealth else (0, 0.0)
    bound = evidence.leak.tv_bound if evidence.leak.tokens else 1.0
    problems = controls.problems()
    verdict, diagnosis, position, needed = Verdict.INCONCLUSIVE, None, None, None
    if wealth and evidence.is_fired:
        verdict, (diagnosis, position) = Verdict.NOT_LOSSLESS, wealth.winner
    elif bound <= plan.tolerance:
        verdict = Verdict.LOSSLESS_WITHIN
    else:
        needed = evidence.leak.tokens_needed(plan.tolerance, plan.alpha / 2)
    return Finding(
        verdict=Verdict.ERROR if problems else verdict,
        tokens=tokens,
        log_e=peak,
        tv_bound=bound,
        diagnosis=diagnosis,
        position=position,
        tokens_needed=needed,
        problems=problems,
    )


def rejected(findings: Sequence[Evidence], alpha: float) -> tuple[int, ...]:
    """Return which of several endpoints are not lossless, such that the false discovery rate is at most alpha.

    Uses the e-values now, not their peaks: stopped together they are e-values, a peak is not.
    """
    return e_bh([math.exp(min(one.wealth.log_e, _MOST)) if one.wealth else 1.0 for one in findings], alpha)


@dataclass(frozen=True, slots=True, kw_only=True)
class GreedyFinding:
    """Greedy tokens against the argmax of the trusted path: tokens beyond tau, and flips that rounding explains."""

    tokens: int
    beyond: tuple[int, ...]
    flips: int
    largest_gap: float
    tau: float

    @property
    def flip_rate(self) -> float:
        """Share of tokens that are not the argmax but within tau."""
        return self.flips / self.tokens if self.tokens else 0.0


def judge_greedy(chosen: Array, best: Array, dtype: str) -> GreedyFinding:
    """Compare greedy tokens, fed to the trusted path as they are, with its argmax at each place.

    Args:
        chosen: log probability of each emitted token on the trusted path, nats [tokens].
        best: largest log probability at the same place [tokens].
        dtype: what the endpoint computes in; see `GREEDY_TAU`.

    Raises:
        InvalidInput: shapes disagree, a value is not a number, or the dtype has no tau.
    """
    if dtype not in GREEDY_TAU:
        raise InvalidInput(f"no tolerance is known for dtype {dtype!r}; use one of {', '.join(GREEDY_TAU)}")
    if chosen.shape != best.shape or np.isnan(chosen).any() or not np.isfinite(best).all():
        raise InvalidInput(f"log probabilities {chosen.shape} and {best.shape} must have equal shapes and be numbers")
    gaps, tau = best - chosen, GREEDY_TAU[dtype]
    return GreedyFinding(
        tokens=len(gaps),
        beyond=tuple(int(one) for one in np.flatnonzero(gaps > tau)),
        flips=int(((gaps > 0) & (gaps <= tau)).sum()),
        largest_gap=float(gaps.max(initial=0.0)),
        tau=tau,
    )


def _parts(rows: Rows) -> Iterator[Rows]:
    return (rows.cut(start, start + _CHUNK) for start in range(0, len(rows.token), _CHUNK))


def _same(names: tuple[str, ...], now: tuple[str, ...]) -> None:
    if names != now:
        gone = sorted(set(names) ^ set(now))
        raise InvalidInput(f"the laws tested changed in the middle of a test ({', '.join(gone)}); start a new one")
