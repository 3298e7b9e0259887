"""The engine of every sequential test on one arm: a gambler's wealth against a null hypothesis.

`betting` and `bernoulli` choose the bets; `core.window` keeps one `Wealth` per check and side and never looks inside; whether
the wealth is large enough to act on is for `core.judge`. One bet `s` on a sample `x` multiplies its stake by
`1 + s * (x - limit)`.
Under the null each factor has conditional mean <= 1, whatever the dependence between samples, so no iid is assumed: only that
the mean of the next sample, given all before it, is within the null. The arithmetic is in `stakes`.

Sources: Waudby-Smith & Ramdas, arXiv 2010.09686 (betting); Shin, Ramdas, Rinaldo, arXiv 2203.03532 (e-SR and its ARL bound).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import fsum
from typing import Any, Self

from specops.errors import InvalidInput
from specops.stats.frozen import trusted
from specops.stats.stakes import MAX_LOG, Mode, checked, from_logs, grow, log_worth, merged, opening, worth

__all__ = ["MAX_LOG", "Bets", "Mode", "Null", "Wealth", "within"]
_MARGIN = 1e-6  # share of a stake that no sample can take


class Null(StrEnum):
    """The hypothesis that is bet against: the conditional mean is at least, or at most, the limit."""

    AT_LEAST = "at_least"
    AT_MOST = "at_most"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bets:
    """A fixed mixture of bets, in equal parts. `family` names the module that chose the slopes."""

    family: str
    null: Null
    limit: float
    slopes: tuple[float, ...]
    at_zero: tuple[float, ...] = field(init=False, repr=False, compare=False)  # factors of the commonest samples, computed once
    at_one: tuple[float, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "at_zero", tuple([1.0 + slope * (0.0 - self.limit) for slope in self.slopes]))
        object.__setattr__(self, "at_one", tuple([1.0 + slope * (1.0 - self.limit) for slope in self.slopes]))


def within(slope: float, limit: float) -> float:
    """Return the slope, reduced where a sample of 0 or 1 could ruin its stake: 1 + slope * (x - limit) stays > 0."""
    return max(-(1.0 - _MARGIN) / (1.0 - limit), min((1.0 - _MARGIN) / limit, slope))


@dataclass(frozen=True, slots=True)
class Wealth:
    """Wealth after `n` samples; every update returns a new value. State: one number per bet and four more.

    Guarantees, at every stopping time and with a look after every sample:

    - STEADY and CHANGE: P(e_value ever >= 1/alpha) <= alpha under the null (Ville's inequality).
    - MONITOR: the mean number of samples until e_value >= A is at least A under the null (average run length).

    `peak` is the largest e_value so far: acting on it makes a decision independent of how often one looks.
    Mode CHANGE with prior w_1 = 1/2, w_k = 1 / (2 k (k - 1)): a collapse at sample k costs a factor 2 k (k - 1), not the
    exponentially many lost stakes of the healthy samples before it. The prior mass of starts to come, 1 / (2 n), stays cash.
    A stake is `stakes[i] * 2**exponent`.
    """

    bets: Bets
    mode: Mode
    n: int
    peak: float
    stakes: tuple[float, ...]
    exponent: int = 0

    @classmethod
    def start(cls, bets: Bets, mode: Mode) -> Self:
        """Return the wealth before any sample: 1 for an e-process, 0 for the detector."""
        return cls(bets, mode, 0, 0.0 if mode is Mode.MONITOR else 1.0, opening(mode, len(bets.slopes)))

    def update(self, x: float) -> "Wealth":
        """Return the wealth after one more sample in [0, 1].

        Raises:
            InvalidInput: the sample is outside [0, 1] or not a number.
        """
        if not 0.0 <= x <= 1.0:
            raise InvalidInput(f"a sample of a bounded test must be in [0, 1], got {x}; check the metric's unit")
        bets, mode, n = self.bets, self.mode, self.n + 1
        factors: Sequence[float]
        if x == 0.0:
            factors = bets.at_zero
        elif x == 1.0:
            factors = bets.at_one
        else:
            gap = x - bets.limit
            factors = [1.0 + slope * gap for slope in bets.slopes]
        stakes, exponent, value = grow(mode, n, self.stakes, self.exponent, factors)
        return _grown(bets, mode, n, value if value > self.peak else self.peak, stakes, exponent)  # noqa: FURB136  # a call costs more

    def merge(self, other: "Wealth") -> "Wealth":
        """Return the STEADY wealth over both streams of samples, as if they had been fed one after the other in any order.

        Valid when each sample's mean, given everything before it in both streams, is within the null: two replicas that serve
        different requests. The largest value on the way is not known any more, so `peak` begins anew at the present one.
        CHANGE and MONITOR depend on the order of samples and cannot be merged: fold the outcomes in one order instead.

        Raises:
            InvalidInput: the two were started with other bets, or in a mode that depends on the order.
        """
        if self.bets != other.bets or not self.mode is other.mode is Mode.STEADY:
            got = " and ".join(f"{w.mode} {w.bets.family} {w.bets.null} {w.bets.limit:g}" for w in (self, other))
            raise InvalidInput(f"only steady wealths of the same bets can be merged, got {got}; fold the outcomes in one order")
        stakes, exponent = merged(self.stakes, self.exponent, other.stakes, other.exponent)
        both = Wealth(self.bets, Mode.STEADY, self.n + other.n, 1.0, stakes, exponent)
        return Wealth(both.bets, both.mode, both.n, max(1.0, both.e_value), stakes, exponent)

    @property
    def e_value(self) -> float:
        """The wealth now, at most e**700."""
        return worth(self.mode, self.n, fsum(self.stakes) / len(self.stakes), self.exponent)

    @property
    def log_e(self) -> float:
        """Natural logarithm of the wealth now, also where `e_value` left the range of a double; -inf for a wealth of 0."""
        return log_worth(self.mode, self.n, self.stakes, self.exponent)

    def to_record(self) -> dict[str, Any]:
        """Return JSON-ready values; the slopes are rebuilt from family, null and limit."""
        bets = {"family": self.bets.family, "null": self.bets.null.value, "limit": self.bets.limit}
        counts = {"mode": self.mode.value, "n": self.n, "peak": self.peak}
        return bets | counts | {"stakes": list(self.stakes), "exponent": self.exponent}

    @classmethod
    def from_record(cls, record: dict[str, Any], bets: Bets) -> Self:
        """Build a wealth from `to_record` values and the bets its family chose; records of the first version hold "logs".

        Raises:
            InvalidRecord: the record holds another number of stakes than there are bets, or stakes that are no numbers.
        """
        mode, n = Mode(record["mode"]), record["n"]
        if "logs" in record:
            raw, power = from_logs(mode, n, record["logs"])
        else:
            raw, power = record["stakes"], record["exponent"]
        stakes, exponent = checked(raw, power, len(bets.slopes), bets.family)
        return cls(bets, mode, n, record["peak"], stakes, exponent)


_grown = trusted(Wealth)
