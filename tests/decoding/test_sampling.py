"""Laws by hand, and the seeded source."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specops.decoding.request import Request
from specops.decoding.sampling import Seeded, choose, entropies_nats, law, token_logprobs

LOGITS = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()


def law_of(**settings):
    """Return the law of LOGITS as a list."""
    return law(LOGITS, Request(prompt_ids=(0,), max_tokens=1, **({"temperature": 1.0} | settings)))[0].tolist()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [0.5, 0.3, 0.15, 0.05]),
        ({"temperature": 0.5}, [0.25 / 0.365, 0.09 / 0.365, 0.0225 / 0.365, 0.0025 / 0.365]),
        ({"top_k": 2}, [0.625, 0.375, 0, 0]),
        ({"top_k": 9}, [0.5, 0.3, 0.15, 0.05]),
        ({"top_p": 0.7}, [0.625, 0.375, 0, 0]),
        ({"top_p": 0.4}, [1, 0, 0, 0]),
        ({"top_k": 2, "top_p": 0.6}, [1, 0, 0, 0]),
        ({"temperature": 0.0}, [1, 0, 0, 0]),
    ],
)
def test_the_law_of_a_request(settings, expected):
    """Temperature, then top-k, then top-p over the renormalised rest: .625 alone reaches .6 once top-k cut the tail."""
    assert law_of(**settings) == pytest.approx(expected, abs=1e-7)


def test_each_row_has_its_own_law():
    """Filters act per position."""
    both = law(torch.cat((LOGITS, LOGITS.flip(1))), Request(prompt_ids=(0,), max_tokens=1, temperature=1.0, top_k=2, top_p=0.9))

    assert torch.equal(both[0], both[1].flip(0))
    assert both.dtype == torch.float64


def test_greedy_takes_the_first_of_equal_logits():
    """Law and choice agree on ties, so that rounds and plain decoding do."""
    request, tie = Request(prompt_ids=(0,), max_tokens=1), torch.tensor([[1.0, 2.0, 2.0]])

    assert choose(tie, request, Seeded(0), (0,)) == 1
    assert law(tie, request)[0].tolist() == [0, 1, 0]


def test_seeded_draws_follow_the_law():
    """20,000 draws; chi-square with 3 degrees of freedom stays below its 1e-6 quantile, 30.7."""
    chance, p = Seeded(5), torch.tensor([0.5, 0.3, 0.15, 0.05], dtype=torch.float64)
    counts = torch.bincount(torch.tensor([chance.pick(p) for _ in range(20_000)]), minlength=4)

    assert float(((counts - 20_000 * p) ** 2 / (20_000 * p)).sum()) < 30.7


def test_impossible_tokens_are_never_drawn():
    """Neither the smallest coin nor the largest reaches probability 0."""
    chance, p = Seeded(0), torch.tensor([0.0, 0.5, 0.0, 0.5, 0.0], dtype=torch.float64)
    for coin, expected in ((0.0, 1), (0.4999, 1), (0.5, 3), (1 - 2**-53, 3), (1.0, 3)):
        chance.uniform = lambda coin=coin: coin

        assert chance.pick(p) == expected


def test_seeds_repeat_and_differ():
    """The same seed gives the same coins; torch's global generator plays no part."""
    p = torch.full((50,), 0.02, dtype=torch.float64)
    first, again, other = ([chance.pick(p) for _ in range(20)] for chance in (Seeded(1), Seeded(1), Seeded(2)))

    assert first == again != other


def test_entropies_are_in_nats():
    """Uniform over 4 is ln 4; certainty is 0."""
    rows = torch.tensor([[0.0, 0.0, 0.0, 0.0], [0.0, -800.0, -800.0, -800.0]])

    assert entropies_nats(rows) == pytest.approx((1.3862943611, 0.0))


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 999), depth=st.integers(0, 9), rows=st.integers(1, 4))
def test_log_probabilities_are_the_raw_laws(seed, depth, rows):
    """Natural logarithms at temperature 1 without filters; rank 1 is the largest; the top is in falling order."""
    logits = torch.randn(rows + 1, 7, generator=torch.Generator().manual_seed(seed)) * 3
    tokens = [(seed + i) % 7 for i in range(rows)]

    for row, token, said in zip(logits.double().softmax(-1), tokens, token_logprobs(logits, tokens, depth), strict=False):
        assert (said.token, said.rank) == (token, int((row > row[token]).sum()) + 1)
        assert math.exp(said.logprob) == pytest.approx(float(row[token]))
        assert [t for t, _ in said.top] == row.argsort(descending=True)[:depth].tolist()
        assert [v for _, v in said.top] == pytest.approx(sorted(row.log().tolist(), reverse=True)[:depth])
