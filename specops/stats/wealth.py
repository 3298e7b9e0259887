"""The engine of every sequential test here: a gambler's wealth against a null hypothesis, kept in logarithms.

`betting` and `bernoulli` choose the bets; `core.window` keeps one `Wealth` per check and side and never looks inside; whether
the wealth is large enough to act on is for `core.judge`. One bet `s` on a sample `x` multiplies its stake by
`1 + s * (x - limit)`.
Under the null each factor has conditional mean <= 1, whatever the dependence between samples, so no iid is assumed: only that
the mean of the next sample, given all before it, is within the null.

Sources: Waudby-Smith & Ramdas, arXiv 2010.09686 (betting); Shin, Ramdas, Rinaldo, arXiv 2203.03532 (e-SR and its ARL bound).
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

from specops.errors import InvalidInput, InvalidRecord

MAX_LOG = 700.0  # exp(710) overflows a double; beyond 1e304 nobody counts
LOG_HALF = -math.log(2.0)


class Null(StrEnum):
    """The hypothesis that is bet against: the conditional mean is at least, or at most, the limit."""

    AT_LEAST = "at_least"
    AT_MOST = "at_most"


class Mode(StrEnum):
    """What the wealth may be used for.

    STEADY: an e-process from the first sample on. CHANGE: an e-process that spreads its first coin over the sample at which
    trouble may begin, so that a healthy start does not bury a later collapse. MONITOR: the e-SR detector, for after promotion.
    """

    STEADY = "steady"
    CHANGE = "change"
    MONITOR = "monitor"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bets:
    """A fixed mixture of bets, in equal parts. `family` names the module that chose the slopes."""

    family: str
    null: Null
    limit: float
    slopes: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Wealth:
    """Wealth after `n` samples; every update returns a new value.

    Guarantees, at every stopping time and with a look after every sample:

    - STEADY and CHANGE: P(e_value ever >= 1/alpha) <= alpha under the null (Ville's inequality).
    - MONITOR: the mean number of samples until e_value >= A is at least A under the null (average run length).

    `peak` is the largest e_value so far: acting on it makes a decision independent of how often one looks.
    Mode CHANGE with prior w_1 = 1/2, w_k = 1 / (2 k (k - 1)): a collapse at sample k costs a factor 2 k (k - 1), not the
    exponentially many lost stakes of the healthy samples before it. The prior mass of starts to come, 1 / (2 n), stays cash.
    """

    bets: Bets
    mode: Mode
    n: int
    peak: float
    logs: tuple[float, ...]

    @classmethod
    def start(cls, bets: Bets, mode: Mode) -> Self:
        """Return the wealth before any sample: 1 for an e-process, 0 for the detector."""
        return cls(bets, mode, 0, 0.0 if mode is Mode.MONITOR else 1.0, (0.0,) * len(bets.slopes))

    def update(self, x: float) -> "Wealth":
        """Return the wealth after one more sample in [0, 1].

        Raises:
            InvalidInput: the sample is outside [0, 1] or not a number.
        """
        if not 0.0 <= x <= 1.0:
            raise InvalidInput(f"a sample of a bounded test must be in [0, 1], got {x}; check the metric's unit")
        gap, log1p = x - self.bets.limit, math.log1p
        steps = [log1p(slope * gap) for slope in self.bets.slopes]
        n = self.n + 1
        logs = tuple(_stakes(self.mode, n, self.logs, steps))
        return Wealth(self.bets, self.mode, n, max(self.peak, _value(self.mode, n, logs)), logs)

    @property
    def e_value(self) -> float:
        """The wealth now, at most e**700."""
        return _value(self.mode, self.n, self.logs)

    @property
    def log_e(self) -> float:
        """Natural logarithm of the wealth now; -inf for a detector that has seen nothing."""
        value = self.e_value
        return math.log(value) if value > 0.0 else -math.inf

    def to_record(self) -> dict[str, Any]:
        """Return JSON-ready values; the slopes are rebuilt from family, null and limit."""
        bets = {"family": self.bets.family, "null": self.bets.null.value, "limit": self.bets.limit}
        return bets | {"mode": self.mode.value, "n": self.n, "peak": self.peak, "logs": list(self.logs)}

    @classmethod
    def from_record(cls, record: dict[str, Any], bets: Bets) -> Self:
        """Build a wealth from `to_record` values and the bets its family chose.

        Raises:
            InvalidRecord: the record holds another number of stakes than there are bets.
        """
        if len(record["logs"]) != len(bets.slopes):
            raise InvalidRecord(
                f"stored evidence has {len(record['logs'])} stakes, {bets.family} {len(bets.slopes)}; replay it"
            )
        return cls(bets, Mode(record["mode"]), record["n"], record["peak"], tuple(record["logs"]))


def _stakes(mode: Mode, n: int, logs: tuple[float, ...], steps: list[float]) -> list[float]:
    """Return each bet's log stake after sample `n`. A MONITOR stores log(1 + M), which starts at 0 and not at -inf."""
    pairs = zip(logs, steps, strict=True)
    if mode is Mode.STEADY:
        return [log + step for log, step in pairs]
    if mode is Mode.MONITOR:  # M_t = (M_{t-1} + 1) e_t
        return [_log_add(log + step, 0.0) for log, step in pairs]
    if n == 1:
        return [LOG_HALF + step for step in steps]
    fresh = LOG_HALF - math.log(n * (n - 1))
    return [_log_add(log, fresh) + step for log, step in pairs]


def _value(mode: Mode, n: int, logs: tuple[float, ...]) -> float:
    """Return the mean over bets, back from logarithms, with the mode's cash added or the 1 of log(1 + M) taken off."""
    top = max(logs)
    mean = math.exp(min(MAX_LOG, top + math.log(sum([math.exp(log - top) for log in logs]) / len(logs))))
    if mode is Mode.STEADY:
        return mean
    if mode is Mode.MONITOR:
        return max(0.0, mean - 1.0)
    return mean + 0.5 / n if n else 1.0


def _log_add(a: float, b: float) -> float:
    """Return log(exp(a) + exp(b)) without leaving the logarithms."""
    return max(a, b) + math.log1p(math.exp(-abs(a - b)))
