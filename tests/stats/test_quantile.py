"""The confidence sequence of a quantile: known numbers, laws, and buckets that never claim more than the samples."""

import json
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specops.errors import InvalidInput, InvalidRecord
from specops.stats.quantile import GROWTH, Buckets, counts_within, quantile_interval

SAMPLES = st.lists(st.floats(0, 1e4), min_size=1, max_size=60)


def _buckets(samples):
    buckets = Buckets()
    for x in samples:
        buckets = buckets.update(x)
    return buckets


@pytest.mark.parametrize(("n", "low", "high"), [(5000, 4927, 4969), (1000, 977, 1000)])
def test_counts_at_the_edge_of_the_mixture(n, low, high):
    """Both ends are the last with a beta-binomial log wealth below log(20); ville 0.1.0 gives 2.866898 for 4927 of 5000.

    The prior is Beta(s p, s (1 - p)) with s = 10000 / (2 log 20 + log(1 + 2 log 20)).
    """
    bar, p = math.log(20), 0.99
    s = 10_000 / (2 * bar + math.log(1 + 2 * bar))

    def log_wealth(h):
        beta = lambda a, b: math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
        return beta(s * p + h, s * (1 - p) + n - h) - beta(s * p, s * (1 - p)) - h * math.log(p) - (n - h) * math.log1p(-p)

    assert counts_within(n, p, 0.05) == (low, high)
    assert log_wealth(low) < bar <= log_wealth(low - 1)
    assert high == n or log_wealth(high) < bar <= log_wealth(high + 1)
    if n == 5000:
        assert log_wealth(low) == pytest.approx(2.8668983142158027, abs=1e-6)


@pytest.mark.parametrize(("n", "half"), [(1000, 0.011), (5000, 0.0046), (20_000, 0.0022)])
def test_half_widths_of_a_p99(n, half):
    """Within a tenth of a percentage point of the published comparison: .011, .0046, .0022 at 1000, 5000, 20000 samples."""
    low, high = counts_within(n, 0.99, 0.05)

    assert (high - low) / 2 / n == pytest.approx(half, abs=0.001)


@settings(max_examples=100, deadline=None)
@given(n=st.integers(0, 20_000), p=st.floats(0.01, 0.99), alpha=st.floats(0.001, 0.5), planned=st.integers(1, 10**6))
def test_counts_hold_the_expected_one(n, p, alpha, planned):
    """0 <= low <= n p <= high <= n, rounded, and more confidence never narrows."""
    low, high = counts_within(n, p, alpha, planned)
    wider = counts_within(n, p, alpha / 10, planned)

    assert 0 <= low <= math.ceil(n * p)
    assert math.floor(n * p) <= high <= n
    assert wider[0] <= low
    assert wider[1] >= high


@settings(max_examples=100, deadline=None)
@given(samples=SAMPLES, p=st.floats(0.05, 0.95))
def test_buckets_round_outwards(samples, p):
    """The interval of the compact state holds the exact one and is at most a bucket wider on each side."""
    exact = quantile_interval(sorted(samples), p, 0.1, planned=50)
    coarse = _buckets(samples).interval(p, 0.1, planned=50)

    assert coarse.low <= exact.low <= exact.estimate <= exact.high <= coarse.high
    assert coarse.low == -math.inf or coarse.low >= exact.low / GROWTH * (1 - 1e-9) or exact.low < 1e-5
    assert coarse.high == math.inf or coarse.high <= max(1e-6, exact.high * GROWTH * (1 + 1e-9))
    assert coarse.n == len(samples)


@settings(max_examples=50, deadline=None)
@given(one=SAMPLES, other=SAMPLES)
def test_buckets_merge_exactly_and_survive_json(one, other):
    """Two replicas count together in any order; a record restores everything."""
    merged = _buckets(one).merge(_buckets(other))

    assert merged == _buckets(other + one)
    assert Buckets.from_record(json.loads(json.dumps(merged.to_record()))) == merged


def test_few_samples_leave_a_tail_open():
    """A hundred samples say nothing about the upper end of a p99, and that is said."""
    interval = quantile_interval(sorted(random.Random(1).random() for _ in range(100)), 0.99, 0.05)

    assert interval.high == math.inf
    assert 0 < interval.low < 1
    assert quantile_interval([0.5], 0.5, 0.05).low == -math.inf


def test_no_samples_no_interval():
    """Nothing seen is nothing known."""
    assert quantile_interval([], 0.5, 0.05) is None
    assert Buckets().interval(0.5, 0.05) is None


def test_times_beyond_the_buckets_stay_bounds():
    """A request of a million years is above every edge, one of 0 below."""
    far = _buckets([0.0] * 200 + [1e14] * 200).interval(0.75, 0.05, planned=400)

    assert (far.low, far.estimate, far.high) == (0.0, math.inf, math.inf) or far.low > 1e5
    assert _buckets([0.0] * 50).interval(0.5, 0.05, planned=50).low == 0.0


@pytest.mark.parametrize("args", [(-1, 0.5, 0.05), (1, 0.0, 0.05), (1, 0.5, 1.0), (1, 0.5, 0.05, 0), (1, math.nan, 0.05)])
def test_impossible_arguments_are_refused(args):
    """Quantiles and levels lie strictly between 0 and 1."""
    with pytest.raises(InvalidInput, match="quantile"):
        counts_within(*args)


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
def test_a_time_that_cannot_be_is_refused(value):
    """A missing measurement is dropped by the caller."""
    with pytest.raises(InvalidInput, match="finite"):
        Buckets().update(value)


@pytest.mark.parametrize("spoil", [
    {"growth": 1.1}, {"counts": [[3, 1], [2, 1]]}, {"counts": [[3, 0]]}, {"counts": [[9999, 1]]},
    {"counts": 7}, {"counts": [["x", 1]]},
])  # fmt: skip
def test_a_spoilt_record_is_refused(spoil):
    """Other edges and impossible counts are errors."""
    with pytest.raises(InvalidRecord, match="replay"):
        Buckets.from_record(Buckets().to_record() | spoil)
