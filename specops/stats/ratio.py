"""Ratio of two sums over requests, such as all accepted over all drafted tokens: the figure that throughput depends on.

For reports only (`core.window`, `report`). Its interval is a fixed-n approximation and must not be used to stop early;
decisions use the mean of the per-request rates (`betting`). The two differ when long requests are accepted at another rate
than short ones.
Source: delta method over requests as clusters, Deng, Knoblich, Lu, arXiv 1803.06336.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist

from specops.errors import InvalidInput
from specops.stats.frozen import trusted


@dataclass(frozen=True, slots=True)
class RatioSums:
    """Count and the five sums of (numerator, denominator) pairs, one pair per request."""

    n: int = 0
    top: float = 0.0
    bottom: float = 0.0
    top_top: float = 0.0
    top_bottom: float = 0.0
    bottom_bottom: float = 0.0

    def update(self, top: float, bottom: float) -> "RatioSums":
        """Return the sums with one more request."""
        return _sums(
            self.n + 1,
            self.top + top,
            self.bottom + bottom,
            self.top_top + top * top,
            self.top_bottom + top * bottom,
            self.bottom_bottom + bottom * bottom,
        )

    def merge(self, other: "RatioSums") -> "RatioSums":
        """Return the sums over both sets of requests."""
        return RatioSums(
            self.n + other.n,
            self.top + other.top,
            self.bottom + other.bottom,
            self.top_top + other.top_top,
            self.top_bottom + other.top_bottom,
            self.bottom_bottom + other.bottom_bottom,
        )


_sums = trusted(RatioSums)


def ratio_of_sums(sums: RatioSums, alpha: float = 0.05) -> tuple[float, float, float] | None:
    """Return (ratio, low, high), the interval by the delta method at fixed n, coverage about 1 - alpha for n >= 30.

    Returns:
        None when the denominators sum to 0 or there are fewer than two requests.

    Raises:
        InvalidInput: alpha is not in (0, 1).
    """
    if not 0.0 < alpha < 1.0:
        raise InvalidInput(f"alpha must be in (0, 1), got {alpha}; 0.05 gives a 95% interval")
    if sums.n < 2 or sums.bottom <= 0.0:  # noqa: PLR2004  # a variance needs two
        return None
    r = sums.top / sums.bottom
    residuals = max(0.0, sums.top_top - 2.0 * r * sums.top_bottom + r * r * sums.bottom_bottom)  # sum of (top - r bottom)**2
    half = NormalDist().inv_cdf(1.0 - alpha / 2.0) * math.sqrt(residuals * sums.n / (sums.n - 1)) / sums.bottom
    return r, r - half, r + half
