"""Many e-values at once: budgets, averages, discoveries and the weakest link."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specops.errors import InvalidInput
from specops.stats.multiple import average, e_bh, thresholds, weakest

E_VALUES = st.lists(st.floats(0, 1e6), min_size=1, max_size=20)
GOLDEN = [1, 50, 0.2, 30, 200, 8, 90, 25, 0.9, 70.0]


def test_thresholds_share_alpha():
    """A check with half the weight needs twice the evidence; one of weight 0 can never reject."""
    assert thresholds(0.05, {"a": 0.5, "b": 0.25, "c": 0.0}) == {"a": pytest.approx(40), "b": pytest.approx(80), "c": math.inf}


@pytest.mark.parametrize(("alpha", "rejected"), [(0.05, (1, 4, 6, 9)), (0.2, (1, 3, 4, 5, 6, 7, 9))])
def test_e_bh_agrees_with_ville(alpha, rejected):
    """Golden values of ville 0.1.0, ebh."""
    assert e_bh(GOLDEN, alpha) == rejected


@given(e_values=E_VALUES, alpha=st.floats(0.001, 0.5))
def test_e_bh_rejects_the_largest(e_values, alpha):
    """What is rejected is no smaller than what is kept, and more evidence or a larger alpha never rejects less."""
    rejected = set(e_bh(e_values, alpha))
    kept = set(range(len(e_values))) - rejected

    assert not rejected or not kept or min(e_values[i] for i in rejected) >= max(e_values[i] for i in kept)
    assert rejected <= set(e_bh([2 * e for e in e_values], alpha))
    assert rejected <= set(e_bh(e_values, alpha * 1.5))


@given(e_values=E_VALUES)
def test_an_average_lies_between(e_values):
    """An average is between the weakest and the strongest; equal weights are the default."""
    mean = average(e_values)

    assert weakest(e_values) <= mean * (1 + 1e-12) + 1e-300
    assert mean <= max(e_values) * (1 + 1e-12)
    assert mean == pytest.approx(average(e_values, [1 / len(e_values)] * len(e_values)))


def test_a_weight_of_nothing_forgets_an_infinite_value():
    """0 * inf is not NaN here: what has no weight does not count."""
    assert average([math.inf, 2.0], [0.0, 1.0]) == 2.0


@pytest.mark.parametrize("call", [
    lambda: thresholds(0.0, {"a": 1.0}),
    lambda: thresholds(0.05, {"a": 0.7, "b": 0.7}),
    lambda: thresholds(0.05, {"a": -0.1}),
    lambda: average([]),
    lambda: average([1.0], [0.5]),
    lambda: average([1.0, 1.0], [1.5, -0.5]),
    lambda: average([1.0], [0.5, 0.5]),
    lambda: e_bh([], 0.05),
    lambda: e_bh([1.0, -1.0], 0.05),
    lambda: e_bh([math.nan], 0.05),
    lambda: e_bh([1.0], 1.0),
    lambda: weakest([]),
])  # fmt: skip
def test_what_makes_no_sense_is_refused(call):
    """Levels, weights and e-values outside their range are errors."""
    with pytest.raises(InvalidInput):
        call()
