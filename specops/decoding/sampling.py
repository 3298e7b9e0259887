"""The law of a request: logits to probabilities, and the one source of chance that draws from them.

Called by every stage, so that target and draft go through the same code: temperature, then top-k, then top-p over what top-k
left, renormalised (vLLM's order). Laws are float64: float32 cannot reach tokens rarer than its coin's grid, and a ratio of
rounded laws is not the ratio that was sampled. Test: tests/decoding/test_sampling.py.
"""

import random
from typing import Protocol

import torch
from torch import Tensor

from specops.decoding.request import Request


class Chance(Protocol):
    """Every random decision of a request; tests replace it by one that walks through all outcomes with their weights."""

    coin: float | None
    """The uniform number behind the latest decision, None if it needed none."""

    def accepts(self, probability: float) -> bool:
        """Return True with this probability; always at >= 1, never at 0."""

    def pick(self, law: Tensor) -> int:
        """Draw an index from a law [vocab]; never one of probability 0."""


class Seeded:
    """Chance from a seed: Mersenne Twister, 53-bit numbers in [0, 1), independent of torch's global state."""

    def __init__(self, seed: int) -> None:
        self.uniform = random.Random(seed).random
        self.coin: float | None = None

    def accepts(self, probability: float) -> bool:
        """Return True with this probability; always at >= 1, never at 0."""
        if probability >= 1.0:
            self.coin = None
            return True
        self.coin = self.uniform()
        return self.coin < probability  # strict: a coin of exactly 0 must not accept probability 0

    def pick(self, law: Tensor) -> int:
        """Draw an index from a law [vocab] by inverting its distribution function; never one of probability 0."""
        edges = law.cumsum(0)
        self.coin = self.uniform()
        index = int(torch.searchsorted(edges, self.coin * edges[-1], right=True))
        return index if index < law.shape[0] else int(law.nonzero()[-1])  # the product may round up to the total


def law(logits: Tensor, request: Request) -> Tensor:
    """Return the request's law at each position.

    Args:
        logits: [positions, vocab], any float type.
        request: its temperature, top_k and top_p.

    Returns:
        float64 [positions, vocab], rows sum to 1. At temperature 0 all mass is on the first largest logit.
    """
    if request.temperature == 0:
        return torch.nn.functional.one_hot(logits.argmax(-1), logits.shape[-1]).double()
    scaled = logits.double() / request.temperature
    if 0 < request.top_k < scaled.shape[-1]:
        floor = scaled.topk(request.top_k, dim=-1).values[:, -1:]
        scaled = scaled.masked_fill(scaled < floor, -torch.inf)  # ties at the floor stay, for target and draft alike
    probs = scaled.softmax(-1)
    return probs if request.top_p >= 1 else _nucleus(probs, request.top_p)


def _nucleus(probs: Tensor, top_p: float) -> Tensor:
    ordered, order = probs.sort(dim=-1, descending=True, stable=True)
    before = ordered.cumsum(-1) - ordered
    kept = torch.zeros_like(probs).scatter_(-1, order, ordered.masked_fill(before >= top_p, 0.0))
    return kept / kept.sum(-1, keepdim=True)


def choose(logits: Tensor, request: Request, chance: Chance) -> int:
    """Choose one token from logits [vocab]: the largest at temperature 0, else a draw from the request's law."""
    if request.temperature == 0:
        return int(logits.argmax())
    return chance.pick(law(logits[None], request)[0])


def entropies_nats(logits: Tensor) -> tuple[float, ...]:
    """Return the entropy of the unfiltered law at temperature 1, in nats, per row of logits [positions, vocab]."""
    log_law = logits.double().log_softmax(-1)
    return tuple((-(log_law.exp() * log_law).sum(-1)).tolist())
