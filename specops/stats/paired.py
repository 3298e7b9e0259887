"""Paired comparison of two arms on the same prompts: the offline answer to "is it faster, and by how much".

Called by the offline evaluation and the report. Fixed n: the interval is for a run whose length was decided beforehand, and
must not be watched as it grows. Pairing removes the spread between prompts; the logarithm makes "twice as fast" and "twice
as slow" equally large.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from specops.errors import InvalidInput


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedRatio:
    """Geometric mean of baseline / candidate over pairs: above 1 the candidate needs less. Fixed-n Student interval."""

    n: int
    ratio: float
    low: float
    high: float
    alpha: float


def paired_ratio(baseline: Sequence[float], candidate: Sequence[float], alpha: float = 0.05) -> PairedRatio:
    """Return the geometric mean ratio of paired positive measurements, such as TPOT in seconds.

    Args:
        baseline: one value per prompt, > 0.
        candidate: values of the same prompts in the same order and unit, > 0.
        alpha: the interval is exp of a two-sided 1 - alpha Student interval of the mean log ratio (fixed n).

    Raises:
        InvalidInput: fewer than two pairs, unequal lengths, a value that is not positive and finite, or alpha outside (0, 1).
    """
    _check(baseline, candidate, alpha)
    from scipy.special import stdtrit  # noqa: PLC0415  # `import specops.core` must work with numpy alone

    logs = [math.log(b / c) for b, c in zip(baseline, candidate, strict=True)]
    n, mean = len(logs), math.fsum(logs) / len(logs)
    spread = math.sqrt(math.fsum([(log - mean) ** 2 for log in logs]) / (n - 1) / n)
    half = float(stdtrit(n - 1, 1.0 - alpha / 2.0)) * spread
    return PairedRatio(n=n, ratio=math.exp(mean), low=math.exp(mean - half), high=math.exp(mean + half), alpha=alpha)


def _check(baseline: Sequence[float], candidate: Sequence[float], alpha: float) -> None:
    if len(baseline) != len(candidate) or len(baseline) < 2:  # noqa: PLR2004
        raise InvalidInput(f"paired values need two equal lists of at least 2, got {len(baseline)} and {len(candidate)}")
    if not 0.0 < alpha < 1.0:
        raise InvalidInput(f"alpha must be in (0, 1), got {alpha}; 0.05 gives a 95% interval")
    bad = [v for v in (*baseline, *candidate) if not (math.isfinite(v) and v > 0.0)]
    if bad:
        raise InvalidInput(f"paired values must be positive and finite, got {bad[0]}; drop requests without a measurement")
