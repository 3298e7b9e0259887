"""Stage 5 of 5, repeat. Owner: the loop; and the only entry for engines: `generate`.

Input: target, draft and request; output: one `Step` per prefill or round, each from the state the last one accepted.
Invariants after every step: the target's cache holds all committed tokens but the last; the draft's cache holds a prefix of
them; a round emits its accepted prefix plus exactly one token, unless a stop token or the limit cuts it.
All state lives in the `Speculation`, so requests may be interleaved round by round, or their forwards run together: `draft`
and `finish` are a round without its forward. Plain decoding, the baseline and the fallback, is the loop without a draft.
Vocabulary checks of the draft belong to `engines`. Test: tests/decoding/test_loop.py, tests/decoding/test_plain.py.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from specops.core.trace import Alternative, Rule
from specops.decoding.accept import accept, accept_block, accept_greedy
from specops.decoding.draft import NOTHING, Draft, Proposal
from specops.decoding.request import Ending, Request, Step, TokenLogprob, cut
from specops.decoding.resample import resample
from specops.decoding.sampling import Chance, Seeded, best, choose, law, shaped, token_logprobs
from specops.decoding.score import score
from specops.decoding.trace import Recorder, Verdict, alternatives
from specops.errors import InvalidInput
from specops.transformer.model import KVCache, Model

__all__ = ["Ending", "Request", "Speculation", "Step", "generate"]


def generate(target: Model, draft: Draft | None, request: Request, *, chance: Chance | None = None) -> Iterator[Step]:
    """Generate tokens whose law is the target's, whatever the draft.

    Args:
        target: whose law is kept.
        draft: what proposes; None decodes plainly.
        request: prompt, limits and sampling.
        chance: replaces the source seeded by the request; for tests that enumerate.

    Returns:
        An iterator of steps; the first comes from the prefill, the last has a `finish`. No forward runs until it is advanced.

    Raises:
        InvalidInput: the prompt has an unknown token or leaves no room in the target's context.
    """
    return Speculation(target, draft, request, chance).steps()


class Speculation:
    """One request being decoded; `committed`, `cache` and `drafting` are its whole state.

    Args:
        target: whose law is kept.
        draft: what proposes; None decodes plainly.
        request: prompt, limits and sampling.
        chance: replaces the source seeded by the request.
        cache: the target's, empty; None allocates one. A batch gives a slot of its own, and after `draft` feeds it
            `committed[-1]` and the proposal's tokens.
    """

    def __init__(
        self, target: Model, draft: Draft | None, request: Request, chance: Chance | None = None, cache: KVCache | None = None
    ) -> None:
        _check_ids(target, request)
        self.target, self.request, self.chance = target, request, chance or Seeded(request.seed)
        self.limit = min(len(request.prompt_ids) + request.max_tokens, target.config.max_len)  # tokens, prompt included
        self.stop_ids = frozenset(request.stop_ids if request.ignore_eos else (*request.stop_ids, *target.config.eos_ids))
        self.committed = list(request.prompt_ids)
        self.cache = cache or target.new_cache(self.limit)
        self.k = 0 if draft is None else draft.k if request.k is None else request.k
        self.drafting = draft.open(request, self.limit) if draft and self.k else None
        # instance attributes: tests put mutants here
        self.resample, self.accept = resample, accept_block if request.rule is Rule.BLOCK else accept
        self.recorder = Recorder() if request.trace else None
        self.asked = 0

    def steps(self) -> Iterator[Step]:
        """Yield the prefill's step, then rounds, until one of them finishes."""
        step = self.prefill()
        yield step
        while step.finish is None:
            step = self.round()
            yield step

    def prefill(self) -> Step:
        """Commit the first token, straight from the target."""
        return self.start(self.target.forward(self.committed, self.cache, last_only=self.request.prompt_logprobs is None))

    def round(self) -> Step:
        """Draft, score, accept, resample; commit the result and bring both caches back to it."""
        proposal = self.draft()
        return self.finish(proposal, score(self.target, self.cache, self.committed[-1], proposal.tokens))

    @torch.inference_mode()
    def start(self, logits: Tensor) -> Step:
        """Commit the first token from the target's logits in the prompt: the last row, or all for their log probabilities."""
        depth, prompt = self.request.prompt_logprobs, self.committed[1:]
        token = choose(logits[-1:], self.request, self.chance, self.committed, self.stop_ids)
        tokens, finish = cut((token,), self.stop_ids, self.limit - len(self.committed))
        self.committed += tokens
        return Step(
            tokens=tokens,
            finish=finish,
            first_alternatives=self._first(logits[-1:]) if self.recorder else (),
            logprobs=self._logprobs(logits[-1:], tokens),
            prompt_logprobs=None if depth is None else token_logprobs(logits, prompt, depth),
        )

    def _first(self, logits: Tensor) -> tuple[Alternative, ...]:
        prompt = self.committed[: len(self.request.prompt_ids)]
        if self.request.temperature == 0:
            return alternatives(shaped(logits, self.request, prompt, self.stop_ids).softmax(-1, dtype=torch.float64))[0]
        return alternatives(law(logits, self.request, prompt, self.stop_ids))[0]

    def _logprobs(self, logits: Tensor, tokens: Sequence[int]) -> tuple[TokenLogprob, ...] | None:
        return None if self.request.logprobs is None else token_logprobs(logits, tokens, self.request.logprobs)

    @torch.inference_mode()
    def draft(self, most: int | None = None) -> Proposal:
        """Return stage 1's proposal: never more than can be emitted beside the round's own token, nor than `most`."""
        room = self.limit - len(self.committed) - 1
        self.asked = min(self.k, room) if most is None else min(self.k, room, most)
        if self.recorder:
            self.recorder.begin(self, most, room)
        proposal = self.drafting.propose(self.committed, self.asked, self.chance) if self.drafting else NOTHING
        self._lap()
        return proposal

    def _lap(self) -> None:
        if self.recorder:
            self.recorder.lap()

    @torch.inference_mode()
    def finish(self, proposal: Proposal, logits: Tensor) -> Step:
        """Run stages 3 to 5 on the target's logits [1 + len(proposal.tokens), vocab] after the last token and each."""
        self._lap()  # 2 score is over
        verdict = self._judge(proposal, logits)  # 3 accept, 4 resample
        self._lap()
        # 5 repeat from the accepted state
        block = (*proposal.tokens[: verdict.ruling.accepted], verdict.token)
        tokens, finish = cut(block, self.stop_ids, self.limit - len(self.committed))
        self.committed += tokens
        self.cache.rewind(len(self.committed) - 1)
        if self.drafting:
            self.drafting.rewind(len(self.committed) - 1)
        return Step(
            tokens=tokens,
            drafted=len(proposal.tokens),
            accepted=verdict.ruling.accepted,
            finish=finish,
            logprobs=self._logprobs(logits, tokens),
            trace=self.recorder.round(self, proposal, logits, verdict, asked=self.asked, emitted=tokens, finish=finish)
            if self.recorder
            else None,
        )

    def _judge(self, proposal: Proposal, logits: Tensor) -> Verdict:
        """Accept and resample."""
        drafted = proposal.tokens
        text = [*self.committed, *drafted] if drafted else self.committed
        if self.request.temperature == 0:
            choices = best(logits, self.request, text, self.stop_ids)
            ruling = accept_greedy(drafted, choices)
            self._lap()
            return Verdict(ruling=ruling, token=choices[ruling.accepted], laws=None)
        laws = law(logits, self.request, text, self.stop_ids)
        ruling = self.accept(drafted, proposal.law, laws, self.chance)
        self._lap()
        token = self.resample(ruling.accepted, drafted, proposal.law, laws, self.chance, ruling.scale)
        return Verdict(ruling=ruling, token=token, laws=laws)


def _check_ids(target: Model, request: Request) -> None:
    ids, vocab, context = request.prompt_ids, target.config.vocab_size, target.config.max_len
    if min(ids) < 0 or max(ids) >= vocab:
        wrong = f"prompt has token ids from {min(ids)} to {max(ids)}, the target's vocabulary has {vocab}"
        raise InvalidInput(f"{wrong}; encode it with the target's tokenizer")
    named = (*request.stop_ids, *(token for token, _ in request.logit_bias))
    if min(named, default=0) < 0 or max(named, default=0) >= vocab:
        wrong = f"stop tokens or logit_bias name ids from {min(named)} to {max(named)}, the target's vocabulary has {vocab}"
        raise InvalidInput(f"{wrong}; leave them out")
    if len(ids) >= context:
        raise InvalidInput(f"prompt has {len(ids)} tokens, the target's context is {context}; shorten the prompt")
