"""Break-even: the paper's formula, no model where none is needed, and a load at which speculation ends."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specops.errors import InvalidInput
from specops.stats.breakeven import (
    Costs,
    acceptance_probability_of,
    best_k,
    break_even_rate,
    geometric_tokens,
    positional_tokens,
    speculate_below,
    speedup,
)

PROBABILITY, K = st.floats(0, 1), st.integers(1, 16)


def _costs(in_flight=1, target=0.020, draft=0.002, verify=0.020, ks=range(1, 9)):
    return Costs(in_flight=in_flight, target_s=target, draft_s=draft, verify_s=dict.fromkeys(ks, verify))


@pytest.mark.parametrize(("alpha", "gamma", "c"), [(0.8, 5, 0.1), (0.5, 3, 0.05), (0.9, 8, 0.02)])
def test_speed_up_is_theorem_3_8(alpha, gamma, c):
    """(1 - a**(g+1)) / ((1 - a)(g c + 1)) of arXiv 2211.17192 when a verification costs one target pass."""
    costs = _costs(target=1.0, draft=c, verify=1.0)

    result = speedup(geometric_tokens(alpha, gamma), costs, gamma)

    assert result == pytest.approx((1 - alpha ** (gamma + 1)) / ((1 - alpha) * (gamma * c + 1)))


@given(a=PROBABILITY, k=K)
def test_expected_tokens_lie_between_one_and_k_plus_one(a, k):
    """At 0 only the recovered token, at 1 all k and the bonus."""
    assert 1 <= geometric_tokens(a, k) <= k + 1 + 1e-9
    assert (geometric_tokens(0, k), geometric_tokens(1, k)) == (1, k + 1)


@given(a=PROBABILITY, k=K)
def test_both_models_agree_on_geometric_acceptance(a, k):
    """Shares a, a**2, ... per position are the geometric model."""
    assert positional_tokens([a**j for j in range(1, k + 1)], k) == pytest.approx(geometric_tokens(a, k))


@given(a=PROBABILITY, k=K)
def test_rate_and_probability_are_inverse(a, k):
    """Accepted / drafted falls with k; the probability behind it does not."""
    rate = (geometric_tokens(a, k) - 1) / k

    assert geometric_tokens(acceptance_probability_of(rate, k), k) == pytest.approx(geometric_tokens(a, k), rel=1e-9)


@given(k=st.integers(1, 8), verify=st.floats(0.005, 0.2), gain=st.floats(0.5, 2))
def test_at_the_break_even_rate_nothing_is_gained(k, verify, gain):
    """With 1 + rate * k tokens per round the speed-up is exactly what was asked for."""
    costs = _costs(verify=verify)

    rate = break_even_rate(costs, k, gain)

    assert speedup(1 + rate * k, costs, k) == pytest.approx(gain)


def test_a_break_even_by_hand():
    """Four drafts of 2 ms and a verification of 24 ms against 20 ms: 32 / 20 = 1.6 tokens needed, 0.6 / 4 = 0.15 accepted."""
    assert break_even_rate(_costs(verify=0.024), 4) == pytest.approx(0.15)


def test_the_best_k_grows_with_acceptance_and_may_be_none():
    """A good draft deserves long proposals, a bad one none."""
    low, high = best_k(0.3, _costs()), best_k(0.95, _costs())

    assert low[0] < high[0]
    assert best_k(0.02, _costs()) == (0, 1.0)
    assert best_k(0.0, _costs(draft=0.0, verify=0.020)) == (0, 1.0)


LOADS = [_costs(in_flight=n, verify=v) for n, v in [(1, 0.020), (4, 0.022), (16, 0.040), (64, 0.150), (8, 0.030)]]


@pytest.mark.parametrize(("rate", "largest"), [(0.05, None), (0.15, 4), (0.25, 8), (0.40, 16), (1.0, 16)])
def test_speculate_only_below(rate, largest):
    """Verification gets dearer with load, so a better draft pays up to a larger load; order of measurement is no matter."""
    assert speculate_below(LOADS, rate, 4) == largest


def test_a_lucky_figure_beyond_is_not_trusted():
    """The walk ends at the first load that does not pay."""
    loads = [_costs(in_flight=n, verify=v) for n, v in [(1, 0.020), (4, 0.080), (8, 0.020)]]

    assert speculate_below(loads, 0.2, 4) == 1
    assert speculate_below(loads, 1.0, 4) == 8  # the largest that was measured, and no further


@pytest.mark.parametrize("call", [
    lambda: _costs(in_flight=0),
    lambda: _costs(target=0.0),
    lambda: _costs(draft=math.nan),
    lambda: _costs(verify=math.inf),
    lambda: _costs(ks=[]),
    lambda: _costs(ks=[65]),
    lambda: _costs().round_s(12),
    lambda: geometric_tokens(1.1, 4),
    lambda: geometric_tokens(0.5, 65),
    lambda: positional_tokens([0.5], 2),
    lambda: positional_tokens([0.5, 0.6], 2),
    lambda: positional_tokens([1.5], 1),
    lambda: positional_tokens([-0.5], 1),
    lambda: break_even_rate(_costs(), 4, 0.0),
    lambda: acceptance_probability_of(1.2, 4),
    lambda: acceptance_probability_of(0.5, 0),
    lambda: speculate_below([], 0.5, 4),
    lambda: speculate_below([_costs(), _costs()], 0.5, 4),
    lambda: speculate_below(LOADS, 1.5, 4),
])  # fmt: skip
def test_costs_and_rates_that_cannot_be_are_refused(call):
    """Not measured, not positive, or out of range."""
    with pytest.raises(InvalidInput):
        call()
