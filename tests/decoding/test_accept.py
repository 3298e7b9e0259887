"""The token-level rule on hand-made laws."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from specops.decoding.accept import accept, accept_block, accept_greedy
from specops.decoding.sampling import Seeded
from specops.errors import InvalidInput
from tests.decoding.enumeration import paths


def rows(*values):
    """Return laws as float64."""
    return torch.tensor(values, dtype=torch.float64)


def coins(*numbers):
    """Return chance that uses these uniform numbers in turn."""
    chance = Seeded(0)
    chance.uniform = iter(numbers).__next__
    return chance


P = rows([0.5, 0.5, 0.0], [0.2, 0.8, 0.0], [1.0, 0.0, 0.0])
Q = rows([1.0, 0.0, 0.0], [0.4, 0.6, 0.0])


@pytest.mark.parametrize(("numbers", "accepted"), [((0.49, 0.49), 2), ((0.49, 0.51), 1), ((0.51,), 0)])
def test_the_prefix_ends_at_the_first_losing_coin(numbers, accepted):
    """Tokens 0, 0 have ratios .5 and .5; each examined proposal spends one coin of its own."""
    ruling = accept((0, 0), Q, P, coins(*numbers))

    assert ruling.accepted == accepted
    assert ruling.coins == numbers
    assert ruling.target_probs == (0.5, 0.2)
    assert ruling.draft_probs == (1.0, 0.4)


def test_a_ratio_of_one_or_more_needs_no_coin():
    """A p of .8 over a q of .6 is always kept."""
    assert accept((1,), Q[1:], P[1:], coins()).coins == (None,)


def test_a_coin_of_zero_does_not_accept_the_impossible():
    """Probability 0 is rejected even by the smallest coin."""
    assert accept((2,), rows([0.0, 0.0, 1.0]), P, coins(0.0)).accepted == 0


def test_without_a_law_the_proposal_is_one_hot():
    """Then q = 1: kept with probability p."""
    assert accept((0,), None, P, coins(0.49)).accepted == 1
    assert accept((0,), None, P, coins(0.5)).accepted == 0


def test_an_empty_block_accepts_nothing():
    """A round without proposals is an ordinary token."""
    assert accept((), None, P, coins()).accepted == 0


def test_a_law_that_excludes_its_own_token_is_refused():
    """Then it is not the law that was drawn from."""
    with pytest.raises(InvalidInput, match=r"drafted token 1 has probability 0\.0"):
        accept((1,), Q, P, coins())


@pytest.mark.parametrize("best", [(0, 1, 2), (0, 2, 2), (1, 1, 1)])
def test_greedy_is_the_limit_of_the_rule(best):
    """On one-hot laws the rule and its shortcut agree, coins aside."""
    one_hot = torch.nn.functional.one_hot(torch.tensor(best), 3).double()
    slow = accept((0, 1), None, one_hot, coins(0.0, 0.0))
    fast = accept_greedy((0, 1), best)

    assert (fast.accepted, fast.target_probs, fast.draft_probs) == (slow.accepted, slow.target_probs, slow.draft_probs)
    assert len(fast.coins) == len(slow.coins)


def test_the_block_rule_on_hand_made_laws():
    """P = (1/3, 2/3), q = (2/3, 1/3) everywhere, block (1, 0): the ratio of 2 makes up for the 1/2 behind it only in part."""
    p, q = rows(*[[1 / 3, 2 / 3]] * 3), rows(*[[2 / 3, 1 / 3]] * 2)

    ruling = accept_block((1, 0), q, p, coins(0.49))
    assert ruling.accept_probs == pytest.approx((1.0, 0.5))
    assert (ruling.accepted, ruling.coins, ruling.scale) == (2, (None, 0.49), pytest.approx(0.5))
    assert accept_block((1, 0), q, p, coins(0.51)).accepted == 1  # prefix 1 has p_1 = 1: no coin
    first = accept_block((0, 0), q, p, coins(0.9, 0.3))  # p_1 = 1/2, Z_1 = max(1/6 - 2/3, 0) + max(1/3 - 1/3, 0) = 0
    assert first.accept_probs == pytest.approx((0.0, 0.25))
    assert first.accepted == 0


@given(st.integers(0, 2**32 - 1), st.integers(1, 3), st.booleans())
def test_the_block_rule_keeps_no_fewer_tokens_than_the_token_rule(seed, k, one_hot):
    """Its expected prefix is the longest that any exact rule has (arXiv 2403.10444, theorem 2)."""
    rng = torch.Generator().manual_seed(seed)
    p, q = ((torch.randn(k + 1, 3, generator=rng, dtype=torch.float64) * 1.5).softmax(-1) for _ in range(2))
    means = {}
    for rule in (accept, accept_block):
        means[rule] = 0.0
        for block in [(0,) * k] if one_hot else itertools.product(range(3), repeat=k):
            weight = 1.0 if one_hot else math.prod(float(q[i, x]) for i, x in enumerate(block))
            for chance_weight, ruling in paths(lambda c, b=block, r=rule: r(b, None if one_hot else q[:k], p, c)):
                assert all(0 <= each <= 1 for each in ruling.accept_probs)
                means[rule] += weight * chance_weight * ruling.accepted

    assert means[accept_block] >= means[accept] - 1e-12


@pytest.mark.parametrize("rule", [accept, accept_block])
def test_any_rule_refuses_a_law_that_excludes_a_token(rule):
    """Whatever its place in the block."""
    with pytest.raises(InvalidInput, match=r"drafted token 1 has probability 0\.0"):
        rule((0, 1), rows([1.0, 0.0], [1.0, 0.0]), rows([0.5, 0.5], [0.5, 0.5], [0.5, 0.5]), coins(0.0, 0.0))
