"""Stage 1 of 5, draft. Owner: the draft.

Input: the committed tokens, k and chance; output: a proposal of at most k tokens with the law each was drawn from.
Invariant: that law is the one the token was really drawn from, under the request's settings (the minimum length apart, which
only the target keeps); between rounds a draft's cache holds a prefix of the committed tokens. A `Draft` is shared and
stateless; what it knows of a request lives in the `Drafting` it opens. Called by `loop`. Here is the draft with weights;
those without are in `lookup`. Test: tests/decoding/test_draft.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from specops.decoding.request import Request
from specops.decoding.sampling import Chance, best, law
from specops.errors import InvalidInput
from specops.transformer.model import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """Drafted tokens, and float64 [len(tokens), vocab]: the law of each; None if chosen without chance (one-hot)."""

    tokens: tuple[int, ...]
    law: Tensor | None = None


NOTHING = Proposal(tokens=())


class Drafting(Protocol):
    """A draft at work on one request."""

    def propose(self, committed: Sequence[int], k: int, chance: Chance) -> Proposal:
        """Propose at most k tokens to follow the committed ones."""

    def rewind(self, length: int) -> None:
        """Forget all positions from `length` on."""


class Draft(Protocol):
    """Whatever proposes tokens."""

    @property
    def k(self) -> int:
        """Proposals per round, unless the request asks for another number."""

    def open(self, request: Request, limit: int) -> Drafting:
        """Start on a request that will commit at most `limit` tokens, prompt included."""


@dataclass(frozen=True, slots=True)
class ModelDraft:
    """A small model with the target's vocabulary.

    Args:
        model: its weights.
        k: proposals per round, >= 1.
        greedy: propose its most likely token at any temperature (vLLM's default); exact too, but accepted less often at T > 0.
    """

    model: Model
    k: int
    greedy: bool = False

    def __post_init__(self) -> None:
        """Check k."""
        check_k(self.k)

    def open(self, request: Request, limit: int) -> "ModelDrafting":
        """Start with an empty cache."""
        return ModelDrafting(self.model, request, limit, greedy=self.greedy or request.temperature == 0)


class ModelDrafting:
    """Autoregressive proposals from a model's own cache."""

    def __init__(self, model: Model, request: Request, limit: int, *, greedy: bool) -> None:
        self.model, self.request, self.greedy = model, request, greedy
        self.cache = model.new_cache(limit)

    @torch.inference_mode()
    def propose(self, committed: Sequence[int], k: int, chance: Chance) -> Proposal:
        """Propose k tokens; fewer, or none, where the model's context ends.

        The first forward feeds what the cache lacks: usually the last committed token; after a full accept also the last
        proposal, which was never fed; after a prefill the whole prompt.
        """
        k = min(k, self.cache.capacity - len(committed) + 1)
        feed, rows = committed[self.cache.length :], []
        tokens: list[int] = []
        for _ in range(k):
            logits = self.model.forward(feed, self.cache, last_only=True)
            text = [*committed, *tokens] if self.request.has_penalties else committed
            if self.greedy:
                tokens += best(logits, self.request, text)
            else:
                rows.append(law(logits, self.request, text))
                tokens.append(chance.pick(rows[-1][0]))
            feed = tokens[-1:]
        return Proposal(tokens=tuple(tokens), law=torch.cat(rows) if rows else None)

    def rewind(self, length: int) -> None:
        """Forget all positions from `length` on."""
        self.cache.rewind(length)


def check_k(k: int) -> None:
    """Refuse a draft that could not propose.

    Raises:
        InvalidInput: k is below 1.
    """
    if k < 1:
        raise InvalidInput(f"a draft proposes at least 1 token a round, got k = {k}; leave the draft out to decode plainly")
