"""The law of a round by enumeration: every outcome of chance is walked, and held against the settings' definitions."""

from collections import defaultdict

import torch

from specops.decoding.loop import Speculation
from specops.decoding.request import Request

EXACT = 1e-12
VISIBLE = 0.01  # the distance that most mutants show at least; sd.md's own toy saw .23 and more


class Scripted:
    """Chance that takes the listed branches, then the first ones, and notes weight and the branches not taken."""

    def __init__(self, script):
        self.script, self.taken, self.weight, self.others, self.coin = script, (), 1.0, [], None

    def _branch(self, outcomes):
        possible = [(value, p) for value, p in outcomes if p > 0]
        at = self.script[len(self.taken)] if len(self.taken) < len(self.script) else 0
        if len(self.taken) >= len(self.script):
            self.others += [(*self.taken, i) for i in range(1, len(possible))]
        self.taken = (*self.taken, at)
        self.weight *= possible[at][1]
        return possible[at][0]

    def accepts(self, probability):
        """Branch on accept and reject."""
        return self._branch([(True, min(1.0, probability)), (False, 1.0 - min(1.0, probability))])

    def pick(self, law):
        """Branch on every token."""
        return self._branch(list(enumerate(law.tolist())))


def paths(run):
    """Run something under every outcome of chance and yield (weight, result)."""
    waiting = [()]
    while waiting:
        chance = Scripted(waiting.pop())
        result = run(chance)
        yield chance.weight, result
        waiting += chance.others


def law_after(target, request, answer):
    """Return the law of the next token of an answer, from the definitions of the settings and nothing else."""
    text = [*request.prompt_ids, *answer]
    logits = target.logits_after(text)[0].double().clone()
    if len(answer) < request.min_tokens:
        logits[list(request.stop_ids)] = -torch.inf
    for token, bias in request.logit_bias:
        logits[token] += bias
    for token in set(text):
        logits[token] *= request.repetition_penalty if logits[token] < 0 else 1 / request.repetition_penalty
    for token in answer:
        logits[token] -= request.frequency_penalty
    for token in set(answer):
        logits[token] -= request.presence_penalty
    probs = (logits / request.temperature).softmax(-1)
    probs[probs < request.min_p * probs.max()] = 0.0
    if request.top_k:
        probs[probs < probs.sort(descending=True).values[request.top_k - 1]] = 0.0
    probs /= probs.sum()
    order, kept = sorted(range(len(probs)), key=lambda x: -float(probs[x])), 0.0
    for token in order:  # the fewest tokens whose mass reaches top_p
        if kept >= request.top_p:
            probs[token] = 0.0
        kept += float(probs[token])
    return probs / probs.sum()


def target_law_of(target, request, length, start=()):
    """Return {text: probability} for all texts of this length that may follow the prompt, given how the answer starts."""
    laws = {start: 1.0}
    for _ in range(length - len(start)):
        laws = {
            (*text, x): weight * p
            for text, weight in laws.items()
            for x, p in enumerate(law_after(target, request, text).tolist())
            if p > 0
        }
    return laws


def distance(got, want):
    """Return the total variation distance."""
    return 0.5 * sum(abs(got.get(x, 0.0) - want.get(x, 0.0)) for x in got.keys() | want.keys())


def law_of_a_round(every_path, target, draft, request, *, k, mutate=None):
    """Return {text: probability} over prefill and one round, shorter texts continued by the target's own law."""
    got = defaultdict(float)

    def run(chance):
        spec = Speculation(target, draft, request, chance)
        if mutate:
            mutate(spec)
        return (*spec.prefill().tokens, *spec.round().tokens)

    for weight, text in every_path(run):
        for whole, p in target_law_of(target, request, k + 2, text).items():
            got[whole] += weight * p
    return got


def ask(**settings):
    """Return a request with a prompt in which the tokens repeat, so that a lookup finds something."""
    return Request(prompt_ids=(1, 2, 3, 1, 2), max_tokens=12, **({"temperature": 1.0} | settings))


def off_target(every_path, toy, draft, request, *, vocab=4, k=2, mutate=None):
    """Return the distance between one round's law and the target's."""
    target = toy(vocab, 7)
    return distance(
        law_of_a_round(every_path, target, draft, request, k=k, mutate=mutate), target_law_of(target, request, k + 2)
    )
