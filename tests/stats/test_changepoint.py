"""The most likely split of a yes-or-no sequence, against brute force and against chance."""

import math
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specops.errors import InvalidInput
from specops.stats.changepoint import split

FLAGS = st.lists(st.booleans(), min_size=2, max_size=40)


def likelihood(flags, at):
    """Return the log likelihood of two segments, flag by flag."""
    total = 0.0
    for part in (flags[:at], flags[at:]):
        share = sum(part) / len(part)
        total += sum(math.log(share if flag else 1 - share) for flag in part)
    return total


def test_a_clean_change_is_found_where_it_is():
    """Ten of one kind, ten of the other: no chance."""
    found = split([False] * 10 + [True] * 10)

    assert (found.at, found.before, found.after) == (10, 0.0, 1.0)
    assert found.gain_nats == pytest.approx(20 * math.log(2))
    assert found.p_value == pytest.approx(19 * 2 / math.comb(20, 10), rel=1e-9)


@given(FLAGS)
def test_no_split_is_more_likely(flags):
    """Every other split's likelihood is at most the found one's."""
    found = split(flags)

    best = max(likelihood(flags, at) for at in range(1, len(flags)))
    assert likelihood(flags, found.at) == pytest.approx(best, abs=1e-9)
    assert found.before == sum(flags[: found.at]) / found.at
    assert found.after == sum(flags[found.at :]) / (len(flags) - found.at)


@given(FLAGS)
def test_mirrored_flags_split_alike(flags):
    """What counts as true does not matter."""
    found, mirrored = split(flags), split([not flag for flag in flags])

    assert found.at == mirrored.at
    assert found.p_value == pytest.approx(mirrored.p_value)
    assert found.gain_nats == pytest.approx(mirrored.gain_nats, abs=1e-9)


@given(st.booleans(), st.integers(2, 30))
def test_a_constant_sequence_has_no_change(flag, n):
    """Nothing is gained and chance explains all."""
    found = split([flag] * n)

    assert (found.gain_nats, found.p_value) == (0.0, 1.0)


@pytest.mark.parametrize("hits", [2, 3, 4])
def test_the_level_holds_over_every_order(hits):
    """Of all orders of eight flags, at most a share p have a p-value of p or less: exact, by enumeration."""
    orders = set(permutations([True] * hits + [False] * (8 - hits)))
    values = sorted(split(order).p_value for order in orders)

    for rank, value in enumerate(values, 1):
        if rank == len(values) or values[rank] > value + 1e-9:
            assert rank / len(values) <= value + 1e-9


def test_the_level_holds_on_long_random_sequences():
    """Of 500 seeded sequences without a change, no more than 1% plus three standard errors fall below 0.01."""
    rng = np.random.default_rng(3)
    alarms = sum(split(list(rng.random(200) < 0.4)).p_value <= 0.01 for _ in range(500))

    assert alarms / 500 <= 0.01 + 3 * math.sqrt(0.01 * 0.99 / 500)


def test_one_flag_has_no_split():
    """The error says how many it takes."""
    with pytest.raises(InvalidInput, match="at least 2 flags, got 1"):
        split([True])
