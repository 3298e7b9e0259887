"""The mixture of likelihood ratios: exact means, laws of folding, refusal of what is no law."""

import json
import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specops.errors import InvalidInput
from specops.stats.mixture import SHARES, Leak, Wealth, log_ratios

NULL = np.array([[0.5, 0.3, 0.2]])
OTHER = np.array([[[0.1, 0.3, 0.6]], [[0.0, 1.0, 0.0]]])


def test_every_factor_has_mean_one_under_the_null():
    """Summed over all tokens with their probabilities, each alternative's ratio is exactly a fair bet."""
    ratios = np.stack([np.exp(log_ratios(NULL, OTHER, np.array([token])))[0] for token in range(3)])

    assert NULL[0] @ ratios == pytest.approx([1.0, 1.0], abs=1e-12)


def test_a_token_that_the_null_excludes_is_strong_evidence_and_finite():
    """Zero under the null, likely under the alternative: the floor keeps the ratio a number."""
    null, other = np.array([[1.0, 0.0]]), np.array([[[0.5, 0.5]]])

    assert 25 < log_ratios(null, other, np.array([1]))[0, 0] < 30


@given(st.integers(0, 10_000), st.lists(st.integers(0, 30), max_size=4))
def test_evidence_is_the_same_however_tokens_are_cut(seed, cuts):
    """Folding in pieces gives the same state and path, to the bit."""
    rng = np.random.default_rng(seed)
    ratios, position = rng.normal(size=(30, 3)), rng.integers(-1, 3, 30)
    ratio, far = rng.exponential(size=30), rng.random(30)
    whole, path = Wealth.new(("a", "b", "c"), 2).fold(ratios, position)
    leak = Leak().fold(ratio, far, 0.05)

    state, paths, leaked = Wealth.new(("a", "b", "c"), 2), [], Leak()
    edges = [0, *sorted(cuts), 30]
    for start, stop in pairwise(edges):
        state, part = state.fold(ratios[start:stop], position[start:stop])
        paths.append(part)
        leaked = leaked.fold(ratio[start:stop], far[start:stop], 0.05)

    assert state == whole
    assert leaked == leak
    assert np.array_equal(np.concatenate(paths), path)


def test_half_of_the_stake_rides_on_all_tokens_together():
    """With strata the pooled row holds one half, each position an equal part of the other."""
    wealth, path = Wealth.new(("a",), 2).fold(np.array([[math.log(4.0)]]), np.array([1]))

    assert math.exp(path[-1]) == pytest.approx(0.5 * 4 + 0.25 * 1 + 0.25 * 4)
    assert wealth.winner == ("a", None)


def test_a_bug_at_one_position_is_located():
    """Losses elsewhere leave the stratum with the bug on top."""
    ratios = np.array([[0.5], [-1.0]] * 20)

    wealth, _ = Wealth.new(("a",), 2).fold(ratios, np.array([1, 0] * 20))

    assert wealth.winner == ("a", 1)


def test_saved_evidence_is_read_back_to_the_bit():
    """Through JSON text."""
    wealth, _ = Wealth.new(("a", "b"), 1).fold(np.array([[0.1, -0.3]]), np.array([0]))

    assert Wealth.from_record(json.loads(json.dumps(wealth.to_record()))) == wealth


@pytest.mark.parametrize("record", [{}, {"names": ["a"], "logs": [[1.0, 2.0]], "tokens": 1, "peak": 0.0}, {"names": 3}])
def test_foreign_records_are_refused(record):
    """What is not saved evidence is no evidence."""
    with pytest.raises(InvalidInput, match="start the verification anew"):
        Wealth.from_record(record)


@pytest.mark.parametrize(
    ("null", "other", "token"),
    [
        (NULL, OTHER, np.array([3])),
        (NULL, OTHER, np.array([-1])),
        (NULL * 0.9, OTHER, np.array([0])),
        (NULL, OTHER * 1.1, np.array([0])),
        (NULL, -OTHER, np.array([0])),
        (NULL, OTHER, np.array([0, 1])),
        (NULL * np.nan, OTHER, np.array([0])),
        (NULL, OTHER * np.nan, np.array([0])),
    ],
)
def test_what_is_no_law_is_refused(null, other, token):
    """An alternative with mass above one would break the guarantee."""
    with pytest.raises(InvalidInput):
        log_ratios(null, other, token)


def test_folding_refuses_wrong_shapes_and_numbers():
    """Each with its reason."""
    wealth = Wealth.new(("a",))
    with pytest.raises(InvalidInput, match="for 1 alternatives"):
        wealth.fold(np.zeros((2, 3)))
    with pytest.raises(InvalidInput, match="not finite"):
        wealth.fold(np.array([[np.inf]]))
    with pytest.raises(InvalidInput, match="at least one alternative"):
        Wealth.new(())
    with pytest.raises(InvalidInput, match="equal shapes"):
        Leak().fold(np.ones(2), np.ones(3), 0.05)


def test_a_leak_is_bounded_from_above_and_covered():
    """Two laws, a known share: the bound stays above it and comes near."""
    rng = np.random.default_rng(1)
    p, q, share = np.array([0.7, 0.2, 0.1]), np.array([0.1, 0.2, 0.7]), 0.05
    tokens = rng.choice(3, 20_000, p=(1 - share) * p + share * q)

    leak = Leak().fold((q / p)[tokens], np.full(20_000, 0.6), 0.01)

    assert share < leak.upper < 2 * share
    assert leak.tv_bound == pytest.approx(0.6 * leak.upper)


def test_tokens_needed_shrink_with_the_data_and_end_at_zero():
    """No data, no estimate; enough data, nothing needed; a real leak, no estimate."""
    p, q = np.array([0.7, 0.2, 0.1]), np.array([0.1, 0.2, 0.7])
    tokens = np.random.default_rng(2).choice(3, 30_000, p=p)
    some = Leak().fold((q / p)[tokens[:100]], np.full(100, 0.6), 0.01)
    all_ = Leak().fold((q / p)[tokens], np.full(30_000, 0.6), 0.01)

    assert Leak().tokens_needed(0.01, 0.01) is None
    assert some.tokens_needed(0.02, 0.01) > 0
    assert all_.tokens_needed(0.02, 0.01) == 0
    assert Leak().fold(np.full(50, 5.0), np.ones(50), 0.01).tokens_needed(0.01, 0.01) is None
    assert SHARES[0] == 0
