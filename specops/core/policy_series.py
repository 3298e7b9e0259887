"""Series of values in one line of text, for policy tests: what each request of a made-up rollout measures.

Called by `core.policy_test_file`. Modelled on the series of promtool's unit tests, with generators for chance; here `x50` means
50 values, where promtool's means 50 more. Chance comes from the `rng` that is passed in, so a seed gives the same values again.

    0.7x50            fifty times 0.7                 beta(0.70,0.12)x100     mean and standard deviation
    0.7-0.01x20       0.7, 0.69, ... (20 values)      bernoulli(0.02)x300     1 with probability 0.02, else 0
    _x10              no value for ten requests       lognormal(0.3,0.5)x100  median and sigma of the logarithm
    timeout           an error of that class          restart                 the control process restarts here

A series of one value without a count stands for as many requests as there are.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from specops.core.policy_fields import ERROR_CLASSES
from specops.core.policy_kinds import shown
from specops.errors import PolicyError

MAX_VALUES = 100_000  # of one series; more is a mistake, or an attack
RESTART = "restart"
Value = float | str | None
"""A number, the class of an error, or None where a request carries no value."""

_NUMBER = r"[-+]?(?:\d{1,9}(?:\.\d{0,12})?|\.\d{1,12})(?:e[-+]?\d{1,2})?"
_COUNT = r"(?:x(?P<count>\d{1,9}))?"
_PLAIN = re.compile(rf"(?P<start>{_NUMBER})(?:(?P<step>[-+]{_NUMBER.removeprefix('[-+]?')}))?{_COUNT}")
_DRAWN = re.compile(rf"(?P<law>[a-z]+)\((?P<numbers>{_NUMBER}(?:,{_NUMBER})*)\){_COUNT}")
_WORD = re.compile(rf"(?P<word>_|{'|'.join(ERROR_CLASSES)}){_COUNT}")


@dataclass(frozen=True, slots=True)
class _Part:
    """`count` values in a row; `draw` returns the one at a place."""

    count: int
    draw: Callable[[int, Random], Value]


@dataclass(frozen=True, slots=True)
class Series:
    """A parsed series. `restarts`: numbers of values after which the control process restarts. `constant`: it never ends."""

    parts: tuple[_Part, ...]
    restarts: tuple[int, ...]
    is_constant: bool

    @property
    def length(self) -> int:
        """Number of values."""
        return sum(part.count for part in self.parts)

    def values(self, rng: Random, length: int) -> list[Value]:
        """Return `length` values, drawn in order.

        Args:
            rng: the source of chance; its state decides the values.
            length: as many as the series has, or any number for a constant one.
        """
        if self.is_constant:
            return [self.parts[0].draw(0, rng) for _ in range(length)]
        return [part.draw(place, rng) for part in self.parts for place in range(part.count)]


def parse_series(text: object, where: str) -> Series:
    """Return the series that a text, or a lone number, writes down.

    Raises:
        PolicyError: a part is not understood, a law has parameters out of range, or there are no or too many values.
    """
    if isinstance(text, int | float) and not isinstance(text, bool):
        text = f"{text!r}"
    if not isinstance(text, str) or len(text) > MAX_VALUES:
        raise PolicyError(f"{where} must be a series such as '0.7x50 beta(0.6,0.1)x100', got {shown(text)}")
    parts: list[_Part] = []
    restarts: list[int] = []
    words = re.sub(r"\s*,\s*", ",", text).split()
    for word in words:
        if word == RESTART:
            restarts.append(sum(part.count for part in parts))
            continue
        parts.append(_part(word, where))
    series = Series(tuple(parts), tuple(restarts), is_constant=len(words) == 1 and "x" not in words[0].rpartition(")")[2])
    if not 0 < series.length <= MAX_VALUES:
        raise PolicyError(f"{where} has {series.length} values; write 1 to {MAX_VALUES}")
    return series


def _part(word: str, where: str) -> _Part:
    if (found := _WORD.fullmatch(word)) is not None:
        value = None if found["word"] == "_" else found["word"]
        return _Part(_count(found), lambda _place, _rng: value)
    if (found := _PLAIN.fullmatch(word)) is not None:
        start, step = float(found["start"]), float(found["step"] or 0.0)
        return _Part(_count(found), lambda place, _rng: start + step * place)
    if (found := _DRAWN.fullmatch(word)) is not None and found["law"] in _LAWS:
        return _Part(_count(found), _LAWS[found["law"]]([float(n) for n in found["numbers"].split(",")], f"{where}: {word}"))
    raise PolicyError(
        f"{where}: {shown(word)} is no part of a series; write 0.7x50, 0.7-0.01x20, _x10, restart, the class of an error, "
        f"or {', '.join(f'{law}(...)x50' for law in _LAWS)}"
    )


def _count(found: re.Match[str]) -> int:
    return int(found["count"] or 1)


def _beta(numbers: Sequence[float], where: str) -> Callable[[int, Random], float]:
    """Return draws in [0, 1] with this mean and standard deviation."""
    mean, sd = _two(numbers, where, "beta(mean,sd)")
    room = mean * (1.0 - mean)
    if not (0.0 < mean < 1.0 and sd > 0.0 and sd * sd < room):
        raise PolicyError(f"{where}: beta needs a mean in (0, 1) and a standard deviation below {max(room, 0.0) ** 0.5:.3g}")
    size = room / (sd * sd) - 1.0
    return lambda _place, rng: rng.betavariate(mean * size, (1.0 - mean) * size)


def _bernoulli(numbers: Sequence[float], where: str) -> Callable[[int, Random], float]:
    if len(numbers) != 1 or not 0.0 <= numbers[0] <= 1.0:
        raise PolicyError(f"{where}: bernoulli needs one probability in [0, 1]")
    return lambda _place, rng: float(rng.random() < numbers[0])


def _lognormal(numbers: Sequence[float], where: str) -> Callable[[int, Random], float]:
    median, sigma = _two(numbers, where, "lognormal(median,sigma)")
    if not (median > 0.0 and 0.0 <= sigma <= 10.0):  # noqa: PLR2004  # e**10 is 22026: no latency
        raise PolicyError(f"{where}: lognormal needs a median above 0 and a sigma in [0, 10]")
    return lambda _place, rng: median * rng.lognormvariate(0.0, sigma)


def _two(numbers: Sequence[float], where: str, form: str) -> tuple[float, float]:
    if len(numbers) != 2:  # noqa: PLR2004
        raise PolicyError(f"{where}: got {len(numbers)} numbers; write {form}")
    return numbers[0], numbers[1]


_LAWS = {"beta": _beta, "bernoulli": _bernoulli, "lognormal": _lognormal}
