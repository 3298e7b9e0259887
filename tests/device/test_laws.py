"""The rules of the stages without a branch: number by number what the stages give, so what is exact there is exact here."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specops.decoding.accept import accept, accept_greedy
from specops.decoding.request import Request
from specops.decoding.resample import resample
from specops.decoding.sampling import law
from specops.device.laws import Settings, judge, judge_greedy, laws, pick

VOCAB, K = 6, 3
LAST = 1 - 2**-53  # the largest coin


class Given:
    """Chance that spends the coins it is given: one per proposal, whether it needs it or not, and one for the draw."""

    def __init__(self, coins):
        self.coins, self.last, self.coin = list(coins[:-1]), coins[-1], None

    def accepts(self, probability):
        """Compare the next coin."""
        self.coin = self.coins.pop(0)
        return self.coin < probability

    def pick(self, law):
        """Invert the distribution function, one token at a time."""
        edges = law.cumsum(0)
        below = [i for i in range(len(law)) if law[i] > 0 and self.last * edges[-1] < edges[i]]
        return below[0] if below else int(law.nonzero()[-1])


def asked(**options):
    """Return a request with these sampling settings."""
    return Request(prompt_ids=(1,), max_tokens=1, **options)


ASKED = [
    asked(), asked(temperature=1.0), asked(temperature=0.7, top_k=2), asked(temperature=1.0, top_p=0.6),
    asked(temperature=1.3, min_p=0.3), asked(temperature=0.8, top_k=4, top_p=0.9, min_p=0.05), asked(temperature=1.0, top_k=99),
]  # fmt: skip


def settings_of(requests):
    """Return the settings of rows that ask this."""
    rows = Settings.neutral(len(requests), torch.device("cpu"))
    for i, request in enumerate(requests):
        rows.put(i, request)
    return rows


def test_every_row_has_the_law_of_its_own_request():
    """Filters of one row do not touch its neighbours."""
    logits = torch.randn(len(ASKED), K + 1, VOCAB, generator=torch.Generator().manual_seed(2)) * 3

    found = laws(logits, settings_of(ASKED), has_filters=True)

    for row, rows, request in zip(found, logits, ASKED, strict=True):
        torch.testing.assert_close(row, law(rows, request), rtol=0, atol=1e-15)


def test_without_filters_nothing_is_sorted_and_nothing_else_changes():
    """The narrow program is the wide one where no row has a filter."""
    requests = [asked(), asked(temperature=1.0), asked(temperature=0.4)]
    logits = torch.randn(3, 2, VOCAB, generator=torch.Generator().manual_seed(4))

    wide, narrow = (laws(logits, settings_of(requests), has_filters=f) for f in (True, False))

    torch.testing.assert_close(narrow, wide, rtol=0, atol=1e-15)


coins = st.one_of(st.floats(0, LAST), st.sampled_from([0.0, 0.5, LAST]))
weights = st.lists(st.sampled_from([0.0, 0.1, 0.2, 1.0, 3.0]), min_size=VOCAB, max_size=VOCAB).filter(any)


def normal(rows):
    """Return laws [rows, vocab] from weights."""
    table = torch.tensor(rows, dtype=torch.float64)
    return table / table.sum(-1, keepdim=True)


@given(law_=weights, coin=coins)
@settings(max_examples=300, deadline=None, derandomize=True)
def test_a_draw_inverts_the_distribution_and_never_takes_a_zero(law_, coin):
    """Also with the smallest and the largest coin."""
    law_ = normal([law_])

    found = int(pick(law_, torch.tensor([coin], dtype=torch.float64)))

    assert found == Given([coin]).pick(law_[0])
    assert law_[0, found] > 0


@given(q=st.lists(weights, min_size=K, max_size=K), p=st.lists(weights, min_size=K + 1, max_size=K + 1), data=st.data())
@settings(max_examples=500, deadline=None, derandomize=True)
def test_coin_by_coin_the_verdict_is_that_of_the_stages(q, p, data):
    """Accepted prefix and last token equal accept's and resample's for every coin, so the law is theirs."""
    q, p = normal(q), normal(p)
    drafted = [data.draw(st.sampled_from([i for i in range(VOCAB) if row[i] > 0])) for row in q]
    numbers = data.draw(st.lists(coins, min_size=K + 1, max_size=K + 1))

    accepted, token = judge(torch.tensor([drafted]), q[None], p[None], torch.tensor([numbers], dtype=torch.float64))

    chance = Given(numbers)
    ruling = accept(drafted, q, p, chance)
    assert int(accepted) == ruling.accepted
    assert int(token) == resample(ruling.accepted, drafted, q, p, chance)


ids = st.integers(0, 2)


@given(drafted=st.lists(ids, min_size=K, max_size=K), best=st.lists(ids, min_size=K + 1, max_size=K + 1))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_greedy_verdicts_are_those_of_the_stage(drafted, best):
    """Equal to the target's choice, up to the first that is not."""
    accepted, token = judge_greedy(torch.tensor([drafted]), torch.tensor([best]))

    ruling = accept_greedy(drafted, best)
    assert (int(accepted), int(token)) == (ruling.accepted, best[ruling.accepted])


@pytest.mark.parametrize("wrong", ["p", "row"])
def test_the_comparison_catches_a_wrong_residual(wrong):
    """A check that cannot fail proves nothing: drawing from p, or from the row behind, differs for some coin."""
    generator, differs = torch.Generator().manual_seed(0), False
    for _ in range(200):
        q, p = (torch.rand(n, VOCAB, generator=generator, dtype=torch.float64).softmax(-1) for n in (K, K + 1))
        drafted = torch.randint(VOCAB, (K,), generator=generator).tolist()
        numbers = torch.rand(K + 1, generator=generator, dtype=torch.float64).tolist()
        accepted, token = judge(torch.tensor([drafted]), q[None], p[None], torch.tensor([numbers], dtype=torch.float64))
        at = int(accepted) if wrong == "p" else min(int(accepted) + 1, K)
        differs |= int(token) != Given(numbers).pick(p[at])
    assert differs
