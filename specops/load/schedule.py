"""When requests are meant to be sent: arrival times fixed before the first one, whatever the server does.

Pure; the clock and the sockets are in `load.generator`. One seeded generator draws all gaps, so the achieved process can be
checked against the asked one (facts: a load tool whose workers share a seed delivered 1.5 times the rate).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from specops.errors import InvalidInput


class Arrivals(StrEnum):
    """How gaps between requests are distributed."""

    CONSTANT = "constant"
    POISSON = "poisson"


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Arrival times in seconds from the start, in order."""

    times_s: tuple[float, ...]

    def __post_init__(self) -> None:
        """Check order."""
        if (
            any(late < early for early, late in zip(self.times_s, self.times_s[1:], strict=False))
            or min(self.times_s, default=0) < 0
        ):
            raise InvalidInput("arrival times must be in order and not negative")

    @property
    def rate_per_s(self) -> float | None:
        """Achieved rate: gaps per second; None with fewer than two arrivals or no time between them."""
        if len(self.times_s) < 2 or self.times_s[-1] == self.times_s[0]:  # noqa: PLR2004
            return None
        return (len(self.times_s) - 1) / (self.times_s[-1] - self.times_s[0])

    @property
    def variation(self) -> float | None:
        """Coefficient of variation of the gaps: 0 for constant, near 1 for Poisson; None with fewer than two gaps."""
        gaps = np.diff(np.asarray(self.times_s))
        if gaps.size < 2 or gaps.mean() == 0:  # noqa: PLR2004
            return None
        return float(gaps.std() / gaps.mean())


def gaps_s(arrivals: Arrivals, rate_per_s: float, rng: np.random.Generator) -> Iterator[float]:
    """Yield gaps between arrivals without end.

    Args:
        arrivals: constant gaps, or exponential ones (Poisson process).
        rate_per_s: mean arrivals per second, above 0.
        rng: draws the gaps; unused for constant ones.

    Raises:
        InvalidInput: the rate is not above 0.
    """
    if not rate_per_s > 0:
        raise InvalidInput(f"rate must be above 0 requests per second, got {rate_per_s}")
    while True:
        yield 1 / rate_per_s if arrivals is Arrivals.CONSTANT else float(rng.exponential(1 / rate_per_s))


def make_schedule(arrivals: Arrivals, *, rate_per_s: float, count: int, rng: np.random.Generator) -> Schedule:
    """Return `count` arrivals: the first one gap after the start for Poisson, at the start for constant.

    Raises:
        InvalidInput: the rate is not above 0, or the count is negative.
    """
    if count < 0:
        raise InvalidInput(f"count must not be negative, got {count}")
    gaps = gaps_s(arrivals, rate_per_s, rng)
    if arrivals is Arrivals.CONSTANT:
        next(gaps)  # checks the rate
        return Schedule(times_s=tuple(index / rate_per_s for index in range(count)))
    return Schedule(times_s=tuple(float(at) for at in np.cumsum([next(gaps) for _ in range(count)])))
