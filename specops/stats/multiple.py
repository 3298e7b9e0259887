"""Several e-values at once: who may reject what when many checks, strata or models are watched together.

Called by `core.judge` (thresholds), by `core` and `report` for tables over models and strata (`e_bh`). Pure functions of
e-values; how each e-value came about is not their business, and no independence between them is assumed anywhere here.
"""

import math
from collections.abc import Mapping, Sequence

from specops.errors import InvalidInput

_ROUNDING = 1e-9


def thresholds(alpha: float, weights: Mapping[str, float]) -> dict[str, float]:
    """Return the e-value at which each check may roll back, such that any false roll-back has probability <= alpha.

    Hypothesis: every check is fine. Guarantee: family-wise, at every stopping time (Ville per check at alpha * weight, then
    the union bound). Assumes nothing on dependence. The share of a weight of 0 is never spent: that check cannot reject.

    Args:
        alpha: probability of a false roll-back over all checks, in (0, 1).
        weights: check -> share of alpha, >= 0, summing to at most 1.

    Raises:
        InvalidInput: alpha is not in (0, 1), or the weights are negative or sum to more than 1.
    """
    _level(alpha)
    if not all(0.0 <= w <= 1.0 for w in weights.values()) or math.fsum(weights.values()) > 1.0 + _ROUNDING:
        raise InvalidInput(f"weights must be >= 0 and sum to at most 1, got {dict(weights)}; false alarms would exceed alpha")
    return {name: 1.0 / (alpha * weight) if weight > 0.0 else math.inf for name, weight in weights.items()}


def average(e_values: Sequence[float], weights: Sequence[float] | None = None) -> float:
    """Return the weighted mean of e-values: an e-value for "all of these nulls hold", whatever their dependence.

    Guarantee: of e-processes it is an e-process (at every stopping time), if the weights were fixed beforehand.
    Source: Vovk & Wang, arXiv 1912.06116, proposition 3.1: every symmetric admissible merger is essentially this one.

    Raises:
        InvalidInput: no e-values, a negative one, or weights that do not sum to 1.
    """
    _e_values(e_values)
    shares = [1.0 / len(e_values)] * len(e_values) if weights is None else list(weights)
    if len(shares) != len(e_values) or any(w < 0.0 for w in shares) or abs(math.fsum(shares) - 1.0) > _ROUNDING:
        raise InvalidInput(f"averaging {len(e_values)} e-values needs as many weights >= 0 with sum 1, got {shares}")
    return math.fsum(w * e for w, e in zip(shares, e_values, strict=True) if w > 0.0)


def e_bh(e_values: Sequence[float], alpha: float) -> tuple[int, ...]:
    """Return the indexes of rejected nulls, ascending, such that the false discovery rate is at most alpha.

    With e_(1) >= e_(2) >= ... the k largest are rejected for the largest k with k * e_(k) / m >= 1 / alpha. For reports over
    models and strata; roll-backs use `thresholds`. Guarantee: FDR <= alpha at any dependence; cost O(m log m). At one time
    chosen by a stopping rule that looks at all of them it holds too, as the values stopped together are e-values.
    Source: Wang & Ramdas, arXiv 2009.02824, theorem 5.1 (the base procedure).

    Raises:
        InvalidInput: alpha is not in (0, 1), no e-values, or a negative one.
    """
    _level(alpha)
    _e_values(e_values)
    order = sorted(range(len(e_values)), key=lambda i: (-e_values[i], i))
    passing = [k for k, i in enumerate(order, start=1) if k * e_values[i] >= len(e_values) / alpha]
    return tuple(sorted(order[: max(passing, default=0)]))


def weakest(e_values: Sequence[float]) -> float:
    """Return the smallest e-value: evidence that *none* of the nulls holds, such as "worse than the margin" on some check.

    The helper of non-inferiority: promotion needs every check proven. Null: at least one of the nulls holds. Guarantee: at
    every stopping time and with no division by weights, since a false pass needs a false pass of the null that holds.
    Source: Berger 1982 (intersection-union test).

    Raises:
        InvalidInput: no e-values (an empty proof proves nothing), or a negative one.
    """
    _e_values(e_values)
    return min(e_values)


def _level(alpha: float) -> None:
    if not 0.0 < alpha < 1.0:
        raise InvalidInput(f"alpha must be in (0, 1), got {alpha}; 0.05 allows one false rejection in twenty")


def _e_values(e_values: Sequence[float]) -> None:
    if not e_values or not all(e >= 0.0 for e in e_values):
        raise InvalidInput(f"e-values must be >= 0 and at least one, got {list(e_values)!r:.80}")
