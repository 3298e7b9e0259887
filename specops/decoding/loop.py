"""Stage 5 of 5, repeat. Owner: the loop; and the only entry for engines: `generate`.

Input: target, draft and request; output: one `Step` per prefill or round, each from the state the last one accepted.
Invariants after every step: the target's cache holds all committed tokens but the last; the draft's cache holds a prefix of
them; a round emits its accepted prefix plus exactly one token, unless a stop token or the limit cuts it.
All state lives in the `Speculation`, so requests may be interleaved round by round. Vocabulary checks belong to `engines`.
Test: tests/decoding/test_loop.py.
"""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from specops.decoding.accept import Ruling, accept, accept_greedy
from specops.decoding.draft import Draft, Proposal
from specops.decoding.model import Model
from specops.decoding.plain import generate_plain, next_token
from specops.decoding.request import Ending, Request, Step, cut
from specops.decoding.resample import excess, resample
from specops.decoding.sampling import Chance, Seeded, entropies_nats, law
from specops.decoding.score import score
from specops.decoding.trace import Decided, RoundTrace, stopwatch
from specops.errors import InvalidInput

__all__ = ["Ending", "Request", "Speculation", "Step", "generate"]


def generate(target: Model, draft: Draft | None, request: Request, *, chance: Chance | None = None) -> Iterator[Step]:
    """Generate tokens whose law is the target's, whatever the draft.

    Args:
        target: whose law is kept.
        draft: what proposes; None decodes plainly.
        request: prompt, limits and sampling.
        chance: replaces the source seeded by the request; for tests that enumerate.

    Returns:
        An iterator of steps; the first comes from the prefill, the last has a `finish`. Nothing runs until it is advanced.

    Raises:
        InvalidInput: the prompt has an unknown token or leaves no room in the target's context.
    """
    _check_prompt(target, request)
    chance = chance or Seeded(request.seed)
    if draft is None or request.k == 0:
        return generate_plain(target, request, _limit(target, request), _stop_ids(target, request), chance)
    return Speculation(target, draft, request, chance).steps()


class Speculation:
    """One request being decoded; `committed`, `cache` and `drafting` are its whole state."""

    def __init__(self, target: Model, draft: Draft, request: Request, chance: Chance) -> None:
        self.target, self.request, self.chance = target, request, chance
        self.k = draft.k if request.k is None else request.k
        self.limit = _limit(target, request)
        self.stop_ids = _stop_ids(target, request)
        self.committed = list(request.prompt_ids)
        self.cache = target.new_cache(self.limit)
        self.drafting = draft.open(request, self.limit)
        self.resample, self.accept = resample, accept  # instance attributes: tests put mutants here

    def steps(self) -> Iterator[Step]:
        """Yield the prefill's step, then rounds, until one of them finishes."""
        step = self.prefill()
        yield step
        while step.finish is None:
            step = self.round()
            yield step

    def prefill(self) -> Step:
        """Commit the first token, straight from the target."""
        token = next_token(self.target, self.cache, self.committed, self.request, self.chance)
        tokens, finish = cut((token,), self.stop_ids, self.limit - len(self.committed))
        self.committed += tokens
        return Step(tokens=tokens, finish=finish)

    @torch.inference_mode()
    def round(self) -> Step:
        """Draft, score, accept, resample; commit the result and bring both caches back to it."""
        lap, laps = stopwatch(on=self.request.trace)
        room = self.limit - len(self.committed)
        # 1 draft: never more than can be emitted beside the round's own token
        proposal = self.drafting.propose(self.committed, min(self.k, room - 1), self.chance)
        lap()
        # 2 score
        logits = score(self.target, self.cache, self.committed[-1], proposal.tokens)
        lap()
        # 3 accept, 4 resample
        ruling, token, laws = self._judge(proposal, logits, lap)
        lap()
        # 5 repeat from the accepted state
        block = (*proposal.tokens[: ruling.accepted], token)
        tokens, finish = cut(block, self.stop_ids, room)
        self.committed += tokens
        self.cache.rewind(len(self.committed) - 1)
        self.drafting.rewind(len(self.committed) - 1)
        return Step(
            tokens=tokens,
            drafted=len(proposal.tokens),
            accepted=ruling.accepted,
            finish=finish,
            trace=_trace(proposal, logits, ruling, laws, emitted=tokens, laps=laps) if self.request.trace else None,
        )

    def _judge(self, proposal: Proposal, logits: Tensor, lap: Callable[[], None]) -> tuple[Ruling, int, Tensor | None]:
        """Return the ruling, the round's last token, and the target's laws (None at temperature 0, where none are built)."""
        drafted = proposal.tokens
        if self.request.temperature == 0:
            best = logits.argmax(-1).tolist()
            ruling = accept_greedy(drafted, best)
            lap()
            return ruling, best[ruling.accepted], None
        laws = law(logits, self.request)
        ruling = self.accept(drafted, proposal.law, laws, self.chance)
        lap()
        return ruling, self.resample(ruling.accepted, drafted, proposal.law, laws, self.chance), laws


def _check_prompt(target: Model, request: Request) -> None:
    ids, vocab, context = request.prompt_ids, target.config.vocab_size, target.config.max_len
    if min(ids) < 0 or max(ids) >= vocab:
        wrong = f"prompt has token ids from {min(ids)} to {max(ids)}, the target's vocabulary has {vocab}"
        raise InvalidInput(f"{wrong}; encode it with the target's tokenizer")
    if len(ids) >= context:
        raise InvalidInput(f"prompt has {len(ids)} tokens, the target's context is {context}; shorten the prompt")


def _limit(target: Model, request: Request) -> int:
    """Return how many tokens may be committed, prompt included."""
    return min(len(request.prompt_ids) + request.max_tokens, target.config.max_len)


def _stop_ids(target: Model, request: Request) -> frozenset[int]:
    return frozenset(request.stop_ids if request.ignore_eos else (*request.stop_ids, *target.config.eos_ids))


def _trace(
    proposal: Proposal, logits: Tensor, ruling: Ruling, laws: Tensor | None, *, emitted: tuple[int, ...], laps: Sequence[float]
) -> RoundTrace:
    drafted, at, mass = proposal.tokens, ruling.accepted, None
    if at < len(drafted) and laws is None:
        mass = 1.0  # p and q are one-hot on different tokens
    elif at < len(drafted) and laws is not None:
        mass = float(excess(laws[at], drafted[at] if proposal.law is None else proposal.law[at]).sum())
    return RoundTrace(
        drafted=drafted,
        draft_probs=ruling.draft_probs,
        target_probs=ruling.target_probs,
        ratios=tuple(min(1.0, p / q) for p, q in zip(ruling.target_probs, ruling.draft_probs, strict=True)),
        entropies_nats=entropies_nats(logits),
        coins=ruling.coins,
        accepted=at,
        residual_mass=mass,
        decided=Decided.RECOVERED if at < len(drafted) else Decided.BONUS if drafted else Decided.TARGET,
        emitted=emitted,
        stage_s=tuple(laps),
    )
