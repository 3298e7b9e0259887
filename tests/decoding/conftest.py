"""Builders of the decoding tests: a toy model of known law, and a chance that tries everything."""

from types import SimpleNamespace

import pytest
import torch

from specops.decoding.draft import Proposal
from specops.decoding.sampling import law
from tests.decoding.enumeration import paths
from tests.llamas import make_model, pair, write_llama  # noqa: F401  # fixtures


class Toy:
    """A second-order Markov target or draft model: logits depend on the last two tokens, so a wrong row or cache shows."""

    def __init__(self, vocab, seed, *, context=64, sharpness=1.5):
        self.config = SimpleNamespace(vocab_size=vocab, max_len=context, eos_ids=())
        self.table = (
            torch.randn(vocab, vocab, vocab, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * sharpness
        )

    def new_cache(self, capacity=None):
        """Return a cache that remembers its tokens, so that stale ones would be used if a rewind were missing."""
        return ToyCache(min(capacity or self.config.max_len, self.config.max_len))

    def forward(self, ids, cache, *, last_only=False):
        """Return logits after each id."""
        rows = []
        for token in ids:
            before = cache.tokens[cache.length - 1] if cache.length else 0
            cache.tokens[cache.length :] = [token]
            cache.length += 1
            rows.append(self.table[before, token])
        return torch.stack(rows[-1:] if last_only else rows)

    def logits_after(self, tokens):
        """Return the logits [1, vocab] after a text of at least two tokens."""
        return self.table[tokens[-2], tokens[-1]][None]


class ToyCache:
    """What `KVCache` is to a model."""

    def __init__(self, capacity):
        self.capacity, self.tokens, self.length = capacity, [], 0

    def rewind(self, length):
        """Forget positions from `length` on."""
        self.length = min(self.length, length)


@pytest.fixture
def every_path():
    """Return a function that runs something under every outcome of chance and yields (weight, result)."""
    return paths


@pytest.fixture
def toy():
    """Return the toy model's class."""
    return Toy


class ToyDraft:
    """A draft from a toy model, with its proposal built by a function that mutants replace."""

    def __init__(self, model, k, propose):
        self.model, self.k, self._propose = model, k, propose

    def open(self, request, limit):
        """Start; the toy keeps nothing."""
        self.request = request
        return self

    def propose(self, committed, k, chance):
        """Propose by the given function."""
        return self._propose(self.model, self.request, list(committed), k, chance)

    def rewind(self, length):
        """Do nothing."""


def soft(model, request, text, k, chance):
    """Draw from the draft's law and return it."""
    rows, start = [], len(text)
    for _ in range(k):
        rows.append(law(model.logits_after(text), request))
        text.append(chance.pick(rows[-1][0]))
    return Proposal(tokens=tuple(text[start:]), law=torch.cat(rows) if rows else None)


@pytest.fixture
def soft_draft():
    """Return a builder of soft drafts over a toy model; `propose` replaces how it proposes."""
    return lambda model, k, propose=soft: ToyDraft(model, k, propose)
