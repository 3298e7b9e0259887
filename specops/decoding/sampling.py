"""The law of a request: logits to probabilities, and the one source of chance that draws from them.

Called by every stage, so that target and draft go through the same code, in vLLM's order (`v1/sample/sampler.py`): minimum
length, bias, penalties, temperature, min-p, top-k, then top-p over what is left, renormalised. What depends on the text so far
sees at each position of a block the text up to there, proposals included. Laws are float64: float32 cannot reach tokens rarer
than its coin's grid, and a ratio of rounded laws is not the ratio that was sampled. Test: tests/decoding/test_sampling.py.
"""

import math
import random
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Protocol

import torch
from torch import Tensor

from specops.decoding.request import Request, TokenLogprob


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
        edges = law.cumsum(0).cpu().numpy()  # numpy's search costs half of torch's
        self.coin = self.uniform()
        index = int(edges.searchsorted(self.coin * edges[-1], side="right"))
        return index if index < law.shape[0] else int(law.nonzero()[-1])  # the product may round up to the total


def shaped(logits: Tensor, request: Request, text: Sequence[int], stop_ids: Collection[int] = ()) -> Tensor:
    """Return the logits after everything that can change which one is largest.

    Args:
        logits: [positions, vocab], any float type; left as they are.
        request: its bias, penalties and minimum length.
        text: prompt, answer and proposals; the last row follows all of it, each row before one token less.
        stop_ids: excluded until the answer has `min_tokens` tokens.

    Returns:
        The same tensor where nothing applies, which costs nothing.
    """
    first = len(text) - logits.shape[0] + 1
    prompt = len(request.prompt_ids)
    is_short = bool(stop_ids) and first - prompt < request.min_tokens
    if not (is_short or request.logit_bias or request.has_penalties):
        return logits
    out = logits.clone()
    for i, row in enumerate(out):
        said = text[prompt : first + i]
        if stop_ids and len(said) < request.min_tokens:
            row[list(stop_ids)] = -torch.inf
        if request.logit_bias:
            ids, bias = zip(*request.logit_bias, strict=True)
            row[list(ids)] += torch.tensor(bias, dtype=row.dtype, device=row.device)
        if request.has_penalties:
            _penalise(row, request, text[: first + i], said)
    return out


def _penalise(row: Tensor, request: Request, text: Sequence[int], said: Sequence[int]) -> None:
    seen = torch.tensor(sorted(set(text)), device=row.device)
    known = row[seen]
    row[seen] = torch.where(known > 0, known / request.repetition_penalty, known * request.repetition_penalty)
    for token, count in Counter(said).items():
        row[token] -= request.frequency_penalty * count + request.presence_penalty


def best(logits: Tensor, request: Request, text: Sequence[int], stop_ids: Collection[int] = ()) -> list[int]:
    """Return the most likely token at each position; arguments as of `shaped`."""
    found: list[int] = shaped(logits, request, text, stop_ids).argmax(-1).tolist()
    return found


def law(logits: Tensor, request: Request, text: Sequence[int] | None = None, stop_ids: Collection[int] = ()) -> Tensor:
    """Return the request's law at each position.

    Args:
        logits: [positions, vocab], any float type.
        request: its sampling settings.
        text: as of `shaped`; None takes the request's prompt, which the last row then follows.
        stop_ids: as of `shaped`.

    Returns:
        float64 [positions, vocab], rows sum to 1. At temperature 0 all mass is on the first largest logit.
    """
    logits = shaped(logits, request, request.prompt_ids if text is None else text, stop_ids)
    if request.temperature == 0:
        return torch.nn.functional.one_hot(logits.argmax(-1), logits.shape[-1]).double()
    if request.temperature == 1 and not (request.top_k or request.min_p or request.top_p < 1):
        return logits.softmax(-1, dtype=torch.float64)  # the same law in one operation
    scaled = logits.double() / request.temperature
    if request.min_p > 0:
        scaled = scaled.masked_fill(scaled < scaled.amax(-1, keepdim=True) + math.log(request.min_p), -torch.inf)
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


def choose(logits: Tensor, request: Request, chance: Chance, text: Sequence[int], stop_ids: Collection[int] = ()) -> int:
    """Choose one token from logits [1, vocab]: the largest at temperature 0, else a draw from the request's law."""
    if request.temperature == 0:
        return best(logits, request, text, stop_ids)[0]
    return chance.pick(law(logits, request, text, stop_ids)[0])


def token_logprobs(logits: Tensor, tokens: Sequence[int], depth: int) -> tuple[TokenLogprob, ...]:
    """Return what the raw law says of each token and of the most likely ones.

    Args:
        logits: the target's, [>= len(tokens), vocab], before any setting of the request.
        tokens: one per row.
        depth: how many of the most likely tokens, >= 0; the vocabulary's size at most.
    """
    logs = logits[: len(tokens)].double().log_softmax(-1)
    given = logs.gather(-1, torch.tensor(tokens, device=logs.device)[:, None])
    ranks = (logs > given).sum(-1) + 1
    values, ids = logs.topk(min(depth, logs.shape[-1]), dim=-1)
    rows = zip(tokens, given[:, 0].tolist(), ranks.tolist(), ids.tolist(), values.tolist(), strict=True)
    return tuple(
        TokenLogprob(token=token, logprob=logprob, rank=rank, top=tuple(zip(top, tops, strict=True)))
        for token, logprob, rank, top, tops in rows
    )


def entropies_nats(logits: Tensor) -> tuple[float, ...]:
    """Return the entropy of the unfiltered law at temperature 1, in nats, per row of logits [positions, vocab]."""
    log_law = logits.double().log_softmax(-1)
    return tuple((-(log_law.exp() * log_law).sum(-1)).tolist())
