"""The arithmetic under every wealth: many stakes that are multiplied sample after sample, for ever, without logarithms.

Used by `wealth` (bets on one arm), `two_sample` and `attribution` (bets between arms); nobody else. A stake is a double times
`2**exponent`, one exponent for all. Only multiplication, addition and exact powers of two are used, all fixed to the last bit
by IEEE 754, so evidence is the same on every machine; logarithms and exponentials of a C library are not.

The sum of the doubles is kept between 2**-100 and 2**600. A stake that falls 2**974 times behind the sum is lost: it becomes 0,
which can only lower a wealth, never break a guarantee. Cost: about 2 us for twelve stakes.
"""

import math
from collections.abc import Sequence
from enum import StrEnum
from operator import mul

from specops.errors import InvalidRecord

MAX_LOG = 700.0  # exp(710) overflows a double; beyond 1e304 nobody counts
MAX_VALUE = math.exp(MAX_LOG)
_LOW, _HIGH, _HOME = 2.0**-100, 2.0**600, 250  # a factor is at most about 2**53, so a product stays below 2**1023
_FAR = 2**53  # more than any number of samples reaches
_DEEP = 900  # an exponent beyond it leaves nothing of a fresh coin


class Mode(StrEnum):
    """What the wealth may be used for.

    STEADY: an e-process from the first sample on. CHANGE: an e-process that spreads its first coin over the sample at which
    trouble may begin, so that a healthy start does not bury a later collapse. MONITOR: the e-SR detector, for after promotion.
    """

    STEADY = "steady"
    CHANGE = "change"
    MONITOR = "monitor"


_STEADY, _CHANGE, _MONITOR = Mode.STEADY, Mode.CHANGE, Mode.MONITOR  # a look-up in an enum costs as much as a product


def opening(mode: Mode, count: int) -> tuple[float, ...]:
    """Return the stakes before any sample: all in play for STEADY; none yet for the others, who take in coins as they go."""
    return (1.0 if mode is Mode.STEADY else 0.0,) * count


def grow(
    mode: Mode, n: int, stakes: Sequence[float], exponent: int, factors: Sequence[float]
) -> tuple[tuple[float, ...], int, float]:
    """Return (stakes, exponent, wealth) after sample number `n`, which multiplied stake i by `factors[i]` >= 0.

    The coin that joins at sample n is 1 for MONITOR (M_n = (M_{n-1} + 1) e_n; Shin, Ramdas, Rinaldo, arXiv 2203.03532) and
    w_n for CHANGE, w_1 = 1/2 and w_n = 1 / (2 n (n - 1)): they sum to 1, what is still to come after n is 1 / (2 n).
    """
    # stakes and factors are equally long by construction; zip's own check would cost a quarter of the time
    if mode is _STEADY:
        grown = tuple(map(mul, stakes, factors))
    else:
        coin = 1.0 if mode is _MONITOR else 0.5 / (n * (n - 1) or 1)
        if exponent:
            coin = math.ldexp(coin, -exponent) if abs(exponent) < _DEEP else 0.0
        grown = tuple([(stake + coin) * factor for stake, factor in zip(stakes, factors)])  # noqa: B905
    total = math.fsum(grown)
    if exponent == 0 and _LOW < total < _HIGH:  # as `worth`, without its branches: nearly every sample comes this way
        mean = total / len(grown)
        return grown, 0, mean + 0.5 / n if mode is _CHANGE else mean
    if not _LOW < total < _HIGH and total > 0.0:
        shift = _HOME - math.frexp(total)[1]
        grown, exponent, total = tuple([math.ldexp(g, shift) for g in grown]), exponent - shift, math.ldexp(total, shift)
    return grown, exponent, worth(mode, n, total / len(grown), exponent)


def worth(mode: Mode, n: int, mean: float, exponent: int) -> float:
    """Return the wealth in [0, e**700] of stakes with this mean; CHANGE adds the coins still to come."""
    if exponent:
        mean = MAX_VALUE if mean > 0.0 and math.frexp(mean)[1] + exponent > 1010 else math.ldexp(mean, exponent)  # noqa: PLR2004  # 2**1010 > e**700
    value = mean + (0.5 / n if n else 1.0) if mode is _CHANGE else mean
    return min(value, MAX_VALUE)


def log_worth(mode: Mode, n: int, stakes: Sequence[float], exponent: int) -> float:
    """Return the natural logarithm of the wealth, without the limits of a double; -inf where it is 0."""
    mean = math.fsum(stakes) / len(stakes)
    if mode is Mode.CHANGE and exponent < _HOME:  # otherwise the coins still to come are beyond the last bit
        return math.log(worth(mode, n, mean, exponent))
    return math.log(mean) + exponent * math.log(2.0) if mean > 0.0 else -math.inf


def merged(one: Sequence[float], exponent: int, other: Sequence[float], other_exponent: int) -> tuple[tuple[float, ...], int]:
    """Return stake by stake products, brought back into range: STEADY wealth over two streams at once."""
    lift, other_lift = (math.frexp(max(stakes))[1] for stakes in (one, other))  # to at most 1 each, so no product overflows
    pairs = zip(one, other, strict=True)
    products = [math.ldexp(a, -lift) * math.ldexp(b, -other_lift) for a, b in pairs]
    return tuple(products), exponent + other_exponent + lift + other_lift


def from_logs(mode: Mode, n: int, logs: Sequence[float]) -> tuple[tuple[float, ...], int]:
    """Return (stakes, exponent) of a record of the first version, which kept logarithms (log(1 + M) >= 0 for MONITOR).

    Raises:
        InvalidRecord: a logarithm is not a number in range.
    """
    least = 0.0 if mode is Mode.MONITOR else -_FAR
    if not all(least <= log <= _FAR for log in logs):
        raise InvalidRecord(f"stored evidence has logarithms out of range: {logs!r:.60}; replay it")
    if mode is Mode.CHANGE and n == 0:
        return opening(mode, len(logs)), 0
    exponent = round(max(logs) / math.log(2.0)) if max(logs) > MAX_LOG / 2 or max(logs) < -MAX_LOG / 20 else 0
    stakes = [math.exp(max(-MAX_LOG, log - exponent * math.log(2.0))) for log in logs]
    return tuple(max(0.0, s - math.ldexp(1.0, -exponent) if mode is Mode.MONITOR else s) for s in stakes), exponent


def checked(stakes: Sequence[object], exponent: object, count: int, family: str) -> tuple[tuple[float, ...], int]:
    """Return stored stakes as floats, and their exponent.

    Raises:
        InvalidRecord: another number of stakes than there are bets, one that is negative or not finite, or no whole exponent.
    """
    if len(stakes) != count:
        raise InvalidRecord(f"stored evidence has {len(stakes)} stakes, {family} {count}; replay it")
    values = tuple(float(s) for s in stakes if isinstance(s, int | float))
    if len(values) != count or not all(0.0 <= v < math.inf for v in values):
        raise InvalidRecord(f"evidence of {family} has stakes that are no finite numbers >= 0: {stakes!r:.60}; replay it")
    if not isinstance(exponent, int) or abs(exponent) > _FAR:
        raise InvalidRecord(f"evidence of {family} has exponent {exponent!r:.40}, not a whole number in range; replay it")
    return values, exponent
