"""Arrival times: seeded, in order, at the asked rate."""

import numpy as np
import pytest

from specops.errors import InvalidInput
from specops.load.schedule import Arrivals, Schedule, make_schedule


def test_constant_arrivals_have_equal_gaps():
    """The first request leaves at once."""
    schedule = make_schedule(Arrivals.CONSTANT, rate_per_s=4, count=5, rng=np.random.default_rng(0))

    assert schedule.times_s == (0.0, 0.25, 0.5, 0.75, 1.0)
    assert (schedule.rate_per_s, schedule.variation) == (4.0, 0.0)


def test_poisson_arrivals_keep_rate_and_spread():
    """Rate within 5% and gap variation near 1 over 5000 arrivals; the same seed gives the same times."""
    one, two = (make_schedule(Arrivals.POISSON, rate_per_s=20, count=5000, rng=np.random.default_rng(3)) for _ in range(2))

    assert one == two
    assert one.rate_per_s == pytest.approx(20, rel=0.05)
    assert one.variation == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("rate", [0, -1, float("nan")])
def test_a_rate_must_be_positive(rate):
    """Zero would never send."""
    with pytest.raises(InvalidInput, match="rate must be above 0"):
        make_schedule(Arrivals.CONSTANT, rate_per_s=rate, count=1, rng=np.random.default_rng(0))


def test_times_out_of_order_are_refused():
    """An arrival cannot precede the one before."""
    with pytest.raises(InvalidInput, match="in order"):
        Schedule(times_s=(1.0, 0.5))


def test_short_schedules_have_no_rate():
    """No data is None, not zero."""
    assert Schedule(times_s=(1.0,)).rate_per_s is None
    assert Schedule(times_s=()).variation is None
