"""The paired ratio answers "how much faster" on the same prompts."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from specops.errors import InvalidInput
from specops.stats.paired import paired_ratio

TIMES = st.lists(st.tuples(st.floats(0.001, 100), st.floats(0.001, 100)), min_size=2, max_size=20)


def test_twice_as_fast_on_every_prompt():
    """A constant factor is found exactly, whatever the spread between prompts."""
    result = paired_ratio([0.2, 2.0, 20.0], [0.1, 1.0, 10.0])

    assert (result.n, result.ratio, result.low, result.high) == (3, pytest.approx(2), pytest.approx(2), pytest.approx(2))


def test_the_interval_is_student_s():
    """Same limits as scipy's paired t interval of the log ratios."""
    rng = np.random.default_rng(3)
    base = rng.lognormal(size=30)
    other = base / rng.lognormal(0.4, 0.3, size=30)
    known = stats.ttest_rel(np.log(base), np.log(other)).confidence_interval(0.9)

    result = paired_ratio(base.tolist(), other.tolist(), alpha=0.1)

    assert (math.log(result.low), math.log(result.high)) == (pytest.approx(known.low), pytest.approx(known.high))


@given(pairs=TIMES)
def test_swapping_the_arms_inverts_the_ratio(pairs):
    """Twice as fast one way is half as fast the other way, interval included."""
    base, other = zip(*pairs, strict=True)
    one, back = paired_ratio(base, other), paired_ratio(other, base)

    assert math.log(one.ratio) == pytest.approx(-math.log(back.ratio), abs=1e-9)
    assert math.log(one.low) == pytest.approx(-math.log(back.high), abs=1e-6)


@pytest.mark.parametrize(
    ("base", "other", "alpha", "says"),
    [
        ([1.0], [1.0], 0.05, "at least 2"),
        ([1.0, 2.0], [1.0], 0.05, "got 2 and 1"),
        ([1.0, 0.0], [1.0, 1.0], 0.05, "positive and finite"),
        ([1.0, 1.0], [1.0, math.nan], 0.05, "positive and finite"),
        ([1.0, 1.0], [1.0, 1.0], 1.0, "alpha"),
    ],
)
def test_what_cannot_be_compared_is_refused(base, other, alpha, says):
    """Unpaired, empty or impossible measurements are errors, not numbers."""
    with pytest.raises(InvalidInput, match=says):
        paired_ratio(base, other, alpha)
