"""Intervals hold the mean, agree with known numbers, and rest on an inequality that is checked here."""

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specops.errors import InvalidInput
from specops.stats.confidence import COSTS, FRACTIONS, Moments, bernoulli_interval, bounded_interval

UNIT = st.floats(0, 1)


def _moments(samples):
    moments = Moments()
    for x in samples:
        moments = moments.update(x)
    return moments


def test_bernoulli_interval_agrees_with_two_other_implementations():
    """Golden value for 2118 of 3000 at 95%: a Beta(1, 1) mixture as in confseq and ville."""
    interval = bernoulli_interval(Moments(3000, 2118.0, 2118.0), 0.05)

    assert (interval.low, interval.high) == (pytest.approx(0.674580, abs=2e-6), pytest.approx(0.736165, abs=2e-6))


@pytest.mark.parametrize(("n", "hits", "alpha", "low", "high"), [
    (20, 3, 0.05, 0.01383229426146429, 0.47081794572867486),
    (20, 3, 0.01, 0.007815086250926785, 0.5283065126093787),
    (100, 45, 0.05, 0.29856749922604375, 0.6080089333462089),
    (100, 45, 0.01, 0.2781507211690222, 0.6304243721022034),
    (500, 5, 0.05, 0.0009066378102881066, 0.03787006282204303),
    (500, 5, 0.01, 0.0006399793037335697, 0.041994023455146856),
    (3000, 2118, 0.05, 0.6745799359766809, 0.7361645342230594),
    (3000, 2118, 0.01, 0.6710224171526014, 0.739428277479907),
])  # fmt: skip
def test_bernoulli_interval_agrees_with_ville(n, hits, alpha, low, high):
    """Golden values of ville 0.1.0, BernoulliCS(prior=(1, 1), intersect=False), to 1e-6."""
    interval = bernoulli_interval(Moments(n, float(hits), float(hits)), alpha)

    assert (interval.low, interval.high) == (pytest.approx(low, abs=1e-6), pytest.approx(high, abs=1e-6))


@given(one=st.lists(UNIT, max_size=10), other=st.lists(UNIT, max_size=10))
def test_moments_merge(one, other):
    """Moments of two replicas are those of all samples."""
    merged, whole = _moments(one).merge(_moments(other)), _moments(one + other)

    assert (merged.n, merged.total, merged.squares) == (whole.n, pytest.approx(whole.total), pytest.approx(whole.squares))


@given(z=st.floats(-1, 50), i=st.integers(0, 15))
def test_the_inequality_behind_the_bounded_interval(z, i):
    """Fan, Grama, Liu: log(1 + f z) >= f z - psi(f) z**2 for z >= -1."""
    assert math.log1p(FRACTIONS[i] * z) >= FRACTIONS[i] * z - COSTS[i] * z * z - 1e-12


@settings(max_examples=80, deadline=None)
@given(samples=st.lists(UNIT, min_size=1, max_size=40), alpha=st.floats(0.001, 0.5))
def test_an_interval_holds_its_mean(samples, alpha):
    """0 <= low <= mean <= high <= 1 for both families, whatever the samples."""
    moments = _moments(samples)
    for interval in (bounded_interval(moments, alpha), bernoulli_interval(moments, alpha)):
        assert 0 <= interval.low <= interval.estimate <= interval.high <= 1


def test_steady_samples_make_a_narrow_interval():
    """Rates that vary little are known better than coin flips of the same mean, from a few dozen samples on."""
    rng = random.Random(5)
    moments = _moments([rng.betavariate(9.8, 4.2) for _ in range(60)])

    bounded, bernoulli = bounded_interval(moments, 0.05), bernoulli_interval(moments, 0.05)

    assert bounded.high - bounded.low < 0.7 * (bernoulli.high - bernoulli.low)


@pytest.mark.parametrize(("x", "low", "high"), [(0.0, 0.0, 0.25), (1.0, 0.75, 1.0)])
def test_equal_samples_bound_the_other_end(x, low, high):
    """Thirty clean requests, or thirty failures, leave one end open and close the other."""
    for family in (bounded_interval, bernoulli_interval):
        interval = family(_moments([x] * 30), 0.05)
        assert low <= interval.low <= interval.high <= high


@pytest.mark.parametrize("family", [bounded_interval, bernoulli_interval])
def test_no_samples_no_interval(family):
    """Nothing seen is nothing known, and an impossible level is refused."""
    assert family(Moments(), 0.05) is None
    assert Moments().mean is None
    with pytest.raises(InvalidInput, match="alpha"):
        family(Moments(), 1.0)


@pytest.mark.parametrize("x", [-0.01, 1.01, math.nan])
def test_a_sample_outside_the_range_is_refused(x):
    """Moments of a metric in the wrong unit are refused like its bets."""
    with pytest.raises(InvalidInput, match="must be in"):
        Moments().update(x)
