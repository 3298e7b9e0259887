"""Anytime-valid confidence sequences with a state of three numbers: what a verdict prints beside its e-value.

Called by `core.window` (which keeps a `Moments`) and `core.judge` (which asks for an interval). Decisions rest on `betting` and
`bernoulli`; an interval only explains them. Each covers the running average of the conditional means at all times at once with
probability >= 1 - alpha, so it may be read after every request.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from specops.errors import InvalidInput
from specops.stats.frozen import trusted

GRID = 16  # points tried on each side of the mean; the crossing is then bisected
TINY = 1e-100  # below it squares underflow; there the beta-binomial part decides
HALVINGS = 20  # to 1e-7 of the range
FRACTIONS: tuple[float, ...] = tuple(0.02 * (0.98 / 0.02) ** (i / 15) for i in range(16))
COSTS = tuple(-math.log1p(-f) - f for f in FRACTIONS)  # psi_E of Fan, Grama, Liu


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A closed range within [0, 1] with the mean of the samples in it."""

    estimate: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Moments:
    """Count, sum and sum of squares of samples in [0, 1]."""

    n: int = 0
    total: float = 0.0
    squares: float = 0.0

    def update(self, x: float) -> "Moments":
        """Return the moments with one more sample.

        Raises:
            InvalidInput: the sample is outside [0, 1].
        """
        if not 0.0 <= x <= 1.0:
            raise InvalidInput(f"a sample of a bounded mean must be in [0, 1], got {x}; check the metric's unit")
        return _moments(self.n + 1, self.total + x, self.squares + x * x)

    def merge(self, other: "Moments") -> "Moments":
        """Return the moments of both sets of samples; the order of samples never matters to an interval."""
        return Moments(self.n + other.n, self.total + other.total, self.squares + other.squares)

    @property
    def mean(self) -> float | None:
        """Mean of the samples; None without any."""
        return self.total / self.n if self.n else None


_moments = trusted(Moments)


def bounded_interval(moments: Moments, alpha: float) -> Interval | None:
    """Return the confidence sequence of a bounded mean, narrow when the samples vary little.

    For z >= -1 and 0 <= f < 1, log(1 + f z) >= f z - psi(f) z**2 with psi(f) = -log(1 - f) - f. With z = (x - m) / m, or its
    mirror image, the right side summed over samples needs only three moments, for every m at once: a lower bound of a
    betting wealth, and so is its mean with the beta-binomial wealth, which leads while samples are few. m is excluded when that
    mean reaches 1 / alpha; the true wealths are monotone in m, so everything beyond the first excluded m is excluded too.

    Source: Fan, Grama, Liu 2015, lemma 4.1; Waudby-Smith & Ramdas, arXiv 2010.09686. Assumes samples in [0, 1], nothing else.

    Returns:
        None without samples.

    Raises:
        InvalidInput: alpha is not in (0, 1).
    """
    # four equal parts: variance-adaptive bets up and down (at least one of the two is counted), beta-binomial twice
    quarter, half = math.log(0.25), math.log(0.5)
    return _search(
        moments, alpha, lambda m: _log_add(quarter + _adaptive_log_wealth(moments, m), half + _mixture_log_wealth(moments, m))
    )


def bernoulli_interval(moments: Moments, alpha: float) -> Interval | None:
    """Return the beta-binomial confidence sequence of a share, exact for samples of 0 and 1.

    m is excluded when the Beta(1, 1) mixture of likelihoods against m reaches 1 / alpha (both sides at once).
    Source: Robbins 1970; Howard et al., arXiv 1810.08240, proposition 7.

    Returns:
        None without samples.

    Raises:
        InvalidInput: alpha is not in (0, 1).
    """
    return _search(moments, alpha, lambda m: _mixture_log_wealth(moments, m))


def _search(moments: Moments, alpha: float, log_wealth: Callable[[float], float]) -> Interval | None:
    if not 0.0 < alpha < 1.0:
        raise InvalidInput(f"alpha must be in (0, 1), got {alpha}; 0.05 gives a 95% interval")
    mean = moments.mean
    if mean is None:
        return None
    bar = -math.log(alpha)
    ends = (_crossing(mean, end, lambda m: log_wealth(m) >= bar) for end in (0.0, 1.0))
    return Interval(estimate=mean, low=next(ends), high=next(ends))


def _crossing(mean: float, end: float, is_excluded: Callable[[float], bool]) -> float:
    """Return an excluded point, the first one found on the way from the mean to an end of [0, 1], or that end.

    Any excluded point is a valid bound; a coarser search only makes a wider interval.
    """
    inside = mean
    for i in range(1, GRID + 1):
        outside = mean + (end - mean) * i / GRID
        if is_excluded(outside):
            break
        inside = outside
    else:
        return end
    for _ in range(HALVINGS):
        middle = (inside + outside) / 2.0
        inside, outside = (inside, middle) if is_excluded(middle) else (middle, outside)
    return outside


def _adaptive_log_wealth(moments: Moments, m: float) -> float:
    """Return the log of the lower bound of the wealth betting that the mean lies on its own side of `m`."""
    drift = moments.total - moments.n * m
    spread = max(0.0, moments.squares - 2.0 * m * moments.total + moments.n * m * m)
    scale = m if drift > 0.0 else 1.0 - m
    if scale < TINY:
        return -math.inf
    z, zz = abs(drift) / scale, spread / (scale * scale)
    logs = [f * z - cost * zz for f, cost in zip(FRACTIONS, COSTS, strict=True)]
    top = max(logs)
    return top + math.log(sum([math.exp(log - top) for log in logs]) / len(logs))


def _mixture_log_wealth(moments: Moments, m: float) -> float:
    """Return the log of the Beta(1, 1) mixture of Bernoulli likelihoods over the likelihood at `m`."""
    hits, misses = moments.total, moments.n - moments.total
    marginal = math.lgamma(hits + 1.0) + math.lgamma(misses + 1.0) - math.lgamma(moments.n + 2.0)
    return marginal - _log_power(m, hits) - _log_power(1.0 - m, misses)


def _log_add(a: float, b: float) -> float:
    """Return log(exp(a) + exp(b)) for b > -inf."""
    top = max(a, b)
    return top if top == math.inf else top + math.log(math.exp(a - top) + math.exp(b - top))


def _log_power(base: float, exponent: float) -> float:
    """Return exponent * log(base), with 0 * log(0) = 0."""
    if exponent <= 0.0:
        return 0.0
    return exponent * math.log(base) if base > 0.0 else -math.inf
