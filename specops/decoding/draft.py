"""Stage 1 of 5, draft. Owner: the draft.

Input: the committed tokens, k and chance; output: a proposal of at most k tokens with the law each was drawn from.
Invariant: that law is the one the token was really drawn from, under the request's settings (the minimum length apart, which
only the target keeps); between rounds a draft's cache holds a prefix of the committed tokens. A `Draft` is shared and
stateless; what it knows of a request lives in the `Drafting` it opens. Called by `loop`. Test: tests/decoding/test_draft.py.
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
        _check_k(self.k)

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


@dataclass(frozen=True, slots=True)
class NgramDraft:
    """Prompt lookup: what followed the latest earlier occurrence of the last n tokens, the longest n first.

    Args:
        k: proposals per round, >= 1.
        max_n: longest suffix that is looked up.
        min_n: shortest, >= 1.
    """

    k: int
    max_n: int = 4
    min_n: int = 2

    def __post_init__(self) -> None:
        """Check k and the lengths."""
        _check_k(self.k)
        if not 1 <= self.min_n <= self.max_n:
            raise InvalidInput(f"n-gram lengths are min_n {self.min_n}, max_n {self.max_n}, expected 1 <= min_n <= max_n")

    def open(self, request: Request, limit: int) -> "NgramDrafting":  # noqa: ARG002  # the protocol's signature
        """Start with an empty index."""
        return NgramDrafting(self)


class NgramDrafting:
    """Proposals from an index of the request's own n-grams, grown as tokens are committed."""

    def __init__(self, draft: NgramDraft) -> None:
        self.sizes = range(draft.max_n, draft.min_n - 1, -1)
        self.latest: dict[tuple[int, ...], int] = {}  # n-gram -> position after its latest occurrence
        self.indexed = 0

    def propose(self, committed: Sequence[int], k: int, chance: Chance) -> Proposal:  # noqa: ARG002  # no chance in a lookup
        """Propose exactly k tokens, or none without a match.

        Where the match reaches the end of the text, copying goes on in the proposal itself, as for a repeated line.
        """
        self._index(committed)
        end = len(committed)
        start = next((at for n in self.sizes if (at := self.latest.get(tuple(committed[max(end - n, 0) :]))) is not None), None)
        if start is None or k < 1:
            return NOTHING
        period = end - start
        block = [committed[start + i % period] for i in range(k)]
        return Proposal(tokens=tuple(block))

    def _index(self, committed: Sequence[int]) -> None:
        for after in range(max(self.indexed, 1), len(committed)):
            for n in self.sizes:
                if n <= after:
                    self.latest[tuple(committed[after - n : after])] = after
        self.indexed = max(len(committed), 1)

    def rewind(self, length: int) -> None:
        """Do nothing: only committed tokens are ever indexed."""


def _check_k(k: int) -> None:
    if k < 1:
        raise InvalidInput(f"a draft proposes at least 1 token a round, got k = {k}; leave the draft out to decode plainly")
