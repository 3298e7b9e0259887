"""The ratio of sums weighs requests by length; its interval is the delta method's."""

import numpy as np
import pytest

from specops.errors import InvalidInput
from specops.stats.ratio import RatioSums, ratio_of_sums


def test_a_ratio_by_hand():
    """10 of 20 and 90 of 100 make 100 of 120, not the mean of 0.5 and 0.9."""
    ratio, low, high = ratio_of_sums(RatioSums().update(10, 20).update(90, 100))

    assert ratio == pytest.approx(100 / 120)
    assert low < ratio < high


def test_the_interval_is_the_linearised_one():
    """The half width is z times the standard error of the residuals over the mean denominator."""
    rng = np.random.default_rng(7)
    bottom = rng.integers(20, 300, size=400)
    top = rng.binomial(bottom, rng.beta(7, 3, size=400))
    sums = RatioSums()
    for a, b in zip(top.tolist(), bottom.tolist(), strict=True):
        sums = sums.update(a, b)

    ratio, low, high = ratio_of_sums(sums, alpha=0.05)

    error = np.std(top - ratio * bottom, ddof=1) / np.sqrt(400) / bottom.mean()
    assert (high - low) / 2 == pytest.approx(1.959964 * error, rel=1e-6)


def test_too_little_has_no_ratio():
    """One request has no variance, no drafted tokens no ratio; an impossible level is refused."""
    assert ratio_of_sums(RatioSums().update(1, 2)) is None
    assert ratio_of_sums(RatioSums().update(0, 0).update(0, 0)) is None
    with pytest.raises(InvalidInput, match="alpha"):
        ratio_of_sums(RatioSums(), alpha=0.0)


def test_sums_merge():
    """Two replicas count together."""
    one, other = RatioSums().update(10, 20), RatioSums().update(90, 100).update(1, 4)

    assert one.merge(other) == RatioSums().update(10, 20).update(90, 100).update(1, 4)
