"""Endpoints in memory for the fidelity job: the real decoding code over toy models, sound or with one rule replaced."""

import itertools
import math

import numpy as np
import torch

from specops.core.fidelity_atoms import Scored
from specops.core.fidelity_sample import Sample
from specops.decoding.accept import Ruling, accept
from specops.decoding.draft import Proposal
from specops.decoding.loop import Request, Speculation, generate
from specops.decoding.resample import resample
from specops.decoding.sampling import Seeded, _nucleus, law
from specops.errors import InvalidInput
from tests.decoding.conftest import Toy, ToyDraft, soft


def always(drafted, draft_law, target_law, chance):
    """Accept every proposal."""
    return Ruling(accepted=len(drafted), target_probs=(), draft_probs=(), accept_probs=(), coins=())


def leaking(share):
    """Accept every proposal of this share of rounds; the tokens then follow the draft."""

    def rule(drafted, draft_law, target_law, chance):
        return (always if chance.uniform() < share else accept)(drafted, draft_law, target_law, chance)

    return rule


def from_target(accepted, drafted, draft_law, target_law, chance, scale=1.0):
    """Resample from p after a rejection, not from the residual."""
    return chance.pick(target_law[accepted])


def greedy_soft(model, request, text, k, chance):
    """Propose the most likely token, and return the soft law as if it had been drawn from."""
    proposal = soft(model, request, list(text), 0, chance)
    rows, start = [], len(text)
    for _ in range(k):
        rows.append(law(model.logits_after(text), request))
        text.append(int(rows[-1][0].argmax()))
    return Proposal(tokens=tuple(text[start:]), law=torch.cat(rows)) if rows else proposal


class Memory:
    """An endpoint; `rules` replace attributes of `Speculation`, `ask` changes a request before it is decoded."""

    def __init__(self, model, draft=None, *, facts=None, rules=None, ask=None, encode=None, lies_nats=0.0):
        self.url = "memory"
        self._model, self._draft, self._facts, self._rules = model, draft, facts or {}, rules or {}
        self._ask, self._encode, self._lies_nats = ask or (lambda request: request), encode, lies_nats
        self.sampled = 0

    def facts(self):
        """Return the facts given."""
        return self._facts

    def encode(self, text):
        """Return letters as ids."""
        if self._encode:
            return self._encode(text)
        return tuple(ord(letter) % self._model.config.vocab_size for letter in text)

    def sample(self, asks, concurrency):
        """Decode each."""
        return [self._one(ask) for ask in asks]

    def _one(self, ask):
        settings = {} if ask.sampling is None else ask.sampling.to_record()
        request = self._ask(Request(prompt_ids=ask.prompt_ids, max_tokens=ask.max_tokens, seed=ask.seed, **settings))
        if self._draft is None:
            steps = list(generate(self._model, None, request))
        else:
            run = Speculation(self._model, self._draft, request, Seeded(request.seed))
            for name, rule in self._rules.items():
                setattr(run, name, rule)
            steps = list(run.steps())
        tokens = tuple(itertools.chain.from_iterable(step.tokens for step in steps))
        self.sampled += len(tokens)
        logs = self.score([ask.prompt_ids + tokens], 2, 1)[0].chosen[len(ask.prompt_ids) - 1 :] if self._lies_nats else ()
        return Sample(
            prompt_ids=ask.prompt_ids,
            token_ids=tokens,
            blocks=tuple(len(step.tokens) for step in steps),
            logs=tuple(float(one) - self._lies_nats for one in logs),
        )

    def score(self, texts, top, concurrency):
        """Score each by one forward."""
        found = []
        for text in texts:
            if max(text) >= self._model.config.vocab_size:
                raise InvalidInput("unknown token")
            with torch.inference_mode():
                logs = self._model.forward(list(text[:-1]), self._model.new_cache(len(text))).double().log_softmax(-1)
            best = logs.topk(min(top, logs.shape[1]), dim=-1)
            chosen = logs[torch.arange(len(logs)), torch.tensor(text[1:])]
            found.append(Scored(ids=best.indices.numpy(), logs=best.values.numpy(), chosen=chosen.numpy()))
        return found


def toys(*, vocab=24, k=3, noise=1.5, context=160):
    """Return a toy target, and a soft draft that is the target with noise on its logits."""
    target, draft = Toy(vocab, 1, context=context), Toy(vocab, 1, context=context)
    draft.table = target.table + noise * torch.randn(
        target.table.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64
    )
    return target, ToyDraft(draft, k, soft)


LOG_BAR = math.log(2e3)
PROMPTS = tuple("".join(chr(97 + (i * 7 + j * j) % 26) for j in range(5)) for i in range(12))
ZERO = np.zeros(0)


class Blended:
    """An endpoint that samples token by token from a law built of p, q and the row before: bugs of a known distance."""

    def __init__(self, target, draft, blend):
        self.url, self._memory, self._draft, self._blend = "blended", Memory(target), draft, blend
        self._model = target

    def facts(self):
        """Return none."""
        return {}

    def sample(self, asks, concurrency):
        """Decode each."""
        return [self._one(ask) for ask in asks]

    @torch.inference_mode()
    def _one(self, ask):
        request = Request(prompt_ids=ask.prompt_ids, max_tokens=ask.max_tokens, seed=ask.seed, **ask.sampling.to_record())
        chance, text, room = Seeded(ask.seed), list(ask.prompt_ids), len(ask.prompt_ids) + ask.max_tokens
        caches = [(model, model.new_cache(room)) for model in (self._model, self._draft)]
        before = None
        for _ in range(ask.max_tokens):
            p, q = (law(model.forward(text[cache.length :], cache, last_only=True), request)[0] for model, cache in caches)
            text.append(chance.pick(self._blend(p, q, p if before is None else before)))
            before = p
        return Sample(prompt_ids=ask.prompt_ids, token_ids=tuple(text[len(ask.prompt_ids) :]))


def leak_of(share):
    """Blend this share of the draft in."""
    return lambda p, q, before: (1 - share) * p + share * q


def one_percent(p, q, before):
    """Move exactly 1% of total variation towards the draft, where the two are that far apart."""
    share = min(0.01 / max(float((p - q).abs().sum()) / 2, 0.01), 1.0)
    return (1 - share) * p + share * q


def old_row(p, q, before):
    """Take one token in ten from the row before."""
    return 0.9 * p + 0.1 * before


def bonus_filtered(top_p):
    """Return the rule that applies the nucleus to the bonus token only: the verified ones are unfiltered."""

    def rule(accepted, drafted, draft_law, target_law, chance, scale=1.0):
        if accepted < len(drafted):
            return resample(accepted, drafted, draft_law, target_law, chance)
        return chance.pick(_nucleus(target_law[accepted][None], top_p)[0])

    return rule


def typical_rule(drafted, draft_law, target_law, chance):
    """Accept what is not much less likely than the law's entropy allows, both thresholds 0.3."""
    accepted = 0
    for i, token in enumerate(drafted):
        row = target_law[i]
        entropy = float(-(row * row.clamp_min(1e-300).log()).sum())
        if row[token] <= min(0.3, 0.3 * math.exp(-entropy)):
            break
        accepted += 1
    return Ruling(accepted=accepted, target_probs=(), draft_probs=(), accept_probs=(), coins=())


def best_of_target(accepted, drafted, draft_law, target_law, chance, scale=1.0):
    """After typical acceptance: the target's most likely token."""
    return int(target_law[accepted].argmax())


def block_rule(drafted, draft_law, target_law, chance):
    """Accept as a block (Sun et al., arXiv 2403.10444, algorithm 2); with the token-level residual after it, a bug."""
    reach, accepted = 1.0, 0
    for i, token in enumerate(drafted):
        ratio = float(target_law[i, token] / draft_law[i, token])
        reach = min(reach * ratio, 1.0)
        if i + 1 < len(drafted):
            left = float((reach * target_law[i + 1] - draft_law[i + 1]).clamp_min(0).sum())
            keep = left / (left + 1 - reach) if left + 1 - reach > 0 else 1.0
        else:
            keep = reach
        accepted = i + 1 if chance.accepts(keep) else accepted
    return Ruling(accepted=accepted, target_probs=(), draft_probs=(), accept_probs=(), coins=())


def one_hot_draft(model, request, text, k, chance):
    """Propose the most likely token as what it is: chosen without chance."""
    start = len(text)
    for _ in range(k):
        text.append(int(model.logits_after(text)[0].argmax()))
    return Proposal(tokens=tuple(text[start:]))


def stale_draft(model, request, text, k, chance):
    """Propose from a law of an older text, and return that law: slower, and exact."""
    rows, tokens = [], []
    for i in range(k):
        rows.append(law(model.logits_after(text[: max(len(text) - 2 - i, 2)]), request))
        tokens.append(chance.pick(rows[-1][0]))
    return Proposal(tokens=tuple(tokens), law=torch.cat(rows) if rows else None)


def confident_draft(model, request, text, k, chance):
    """Stop proposing after a token that is unsure; the token itself is kept."""
    proposal = soft(model, request, list(text), k, chance)
    if proposal.law is None:
        return proposal
    sure = [bool(row[token] >= 0.3) for row, token in zip(proposal.law, proposal.tokens, strict=True)]
    kept = sure.index(False) + 1 if False in sure else k
    return Proposal(tokens=proposal.tokens[:kept], law=proposal.law[:kept])
