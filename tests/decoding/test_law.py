"""The emitted law equals the target's: every outcome of chance is walked, so nothing is sampled and nothing is approximate."""

import itertools
from collections import defaultdict
from dataclasses import replace

import pytest
import torch

from specops.decoding.accept import Ruling, accept
from specops.decoding.draft import ModelDraft, NgramDraft, Proposal
from specops.decoding.loop import Speculation, generate
from specops.decoding.request import Request
from specops.decoding.resample import resample
from specops.decoding.sampling import law

EXACT = 1e-12
VISIBLE = 0.01  # the smallest distance a mutant must show; sd.md's own toy saw .23 and more


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
    plain = Request(prompt_ids=(0,), max_tokens=1, temperature=1.0, top_k=request.top_k, top_p=request.top_p)
    return law(probs.log()[None], plain)[0]


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


SETTINGS = [{}, {"temperature": 0.7}, {"top_k": 2}, {"top_p": 0.8}, {"top_k": 3, "top_p": 0.9, "temperature": 1.3}]
SHAPED = [
    {"min_p": 0.3}, {"repetition_penalty": 1.7}, {"presence_penalty": 1.5}, {"frequency_penalty": -1.2},
    {"logit_bias": ((0, 2.0), (3, -4.0))}, {"min_tokens": 3, "stop_ids": (2,)},
    {"repetition_penalty": 0.6, "presence_penalty": 0.7, "frequency_penalty": 0.4, "logit_bias": ((1, 1.0),), "min_p": 0.05,
     "top_k": 3, "top_p": 0.95, "temperature": 0.8},
]  # fmt: skip


@pytest.mark.parametrize("settings", SETTINGS)
def test_a_soft_draft_keeps_the_targets_law(every_path, toy, soft_draft, settings):
    """Whatever temperature, top-k and top-p, one round emits exactly the target's law."""
    assert off_target(every_path, toy, soft_draft(toy(4, 8), 2), ask(**settings)) <= EXACT


def test_three_proposals_keep_the_targets_law(every_path, toy, soft_draft):
    """The rule holds at every depth of the block."""
    assert off_target(every_path, toy, soft_draft(toy(4, 8), 3), ask(), k=3) <= EXACT


@pytest.mark.parametrize("draft", ["model", "greedy model", "lookup"])
@pytest.mark.parametrize("settings", SHAPED)
def test_every_setting_holds_at_every_position(every_path, toy, settings, draft):
    """Bias, penalties, minimum length and min-p see each proposal's own text so far, whatever proposes."""
    drafts = {"model": ModelDraft(toy(4, 8), 2), "greedy model": ModelDraft(toy(4, 8), 2, greedy=True)}
    assert off_target(every_path, toy, drafts.get(draft, NgramDraft(2, 2, 1)), ask(**settings)) <= EXACT


@pytest.mark.parametrize("settings", [s for s in SHAPED if "min_p" not in s])
def test_greedy_rounds_take_what_plain_decoding_takes(toy, settings):
    """Temperature 0: the same tokens with and without a draft, and they are the largest of the definitions."""
    target, request = toy(4, 7), ask(**settings, temperature=0.0)
    plain = [t for s in generate(target, None, request) for t in s.tokens]
    speculative = [t for s in generate(target, ModelDraft(toy(4, 8), 2), request) for t in s.tokens]

    assert speculative == plain
    warm = replace(request, temperature=1.0)
    assert plain == [int(law_after(target, warm, tuple(plain[:i])).argmax()) for i in range(len(plain))]


def blind(spec):
    """M7: bias and penalties at the bonus token only, as if proposals had no text before them."""
    judged = spec._judge

    def judge(proposal, logits):
        plain = replace(spec.request, logit_bias=(), presence_penalty=0.0)
        last = law(logits[-1:], spec.request, [*spec.committed, *proposal.tokens])
        spec.request, asked = plain, spec.request
        spec.resample = lambda a, d, q, p, c: resample(a, d, q, torch.cat([p[:-1], last]), c)
        try:
            return judged(proposal, logits)
        finally:
            spec.request = asked

    spec._judge = judge


@pytest.mark.parametrize("settings", [{"logit_bias": ((0, 2.0), (3, -4.0))}, {"presence_penalty": 1.5}])
def test_the_enumeration_catches_settings_at_the_bonus_token_only(every_path, toy, soft_draft, settings):
    """M7: vLLM issues 42744 and 22987."""
    assert off_target(every_path, toy, soft_draft(toy(4, 8), 2), ask(**settings), mutate=blind) > VISIBLE


@pytest.mark.parametrize("greedy", [True, False])
@pytest.mark.parametrize("settings", SETTINGS[:4])
def test_a_model_draft_keeps_the_targets_law(every_path, toy, settings, greedy):
    """The real model draft, soft and one-hot, with its own cache."""
    assert off_target(every_path, toy, ModelDraft(toy(5, 8), 2, greedy=greedy), ask(**settings), vocab=5) <= EXACT


@pytest.mark.parametrize("settings", SETTINGS)
def test_a_lookup_keeps_the_targets_law(every_path, toy, settings):
    """Prompt lookup proposes without chance; its one-hot law is kept out of the text all the same."""
    assert off_target(every_path, toy, NgramDraft(2, 2, 1), ask(**settings)) <= EXACT


@pytest.mark.parametrize("draft", ["model", "lookup"])
def test_rounds_in_a_row_keep_the_targets_law(every_path, toy, draft):
    """Four tokens over several rounds, through rewinds and the two-token feed after a full accept."""
    target, request = toy(3, 7), Request(prompt_ids=(1, 2, 0, 1), max_tokens=4, temperature=1.0)
    proposer = ModelDraft(toy(3, 8), 2) if draft == "model" else NgramDraft(2, 2, 1)
    got = defaultdict(float)

    for weight, text in every_path(
        lambda chance: tuple(itertools.chain(*(s.tokens for s in generate(target, proposer, request, chance=chance)))),
    ):
        got[text] += weight

    assert distance(got, target_law_of(target, request, 4)) <= EXACT


def always_accept(drafted, draft_law, target_law, chance):
    """M1: keep everything."""
    return Ruling(accepted=len(drafted), target_probs=(), draft_probs=(), coins=())


def no_coin(drafted, draft_law, target_law, chance):
    """M2: keep x if p >= q, without a coin."""
    kept = [bool(target_law[i, x] >= draft_law[i, x]) for i, x in enumerate(drafted)]
    return Ruling(accepted=[*kept, False].index(False), target_probs=(), draft_probs=(), coins=())


def from_target(accepted, drafted, draft_law, target_law, chance):
    """M3: after a rejection draw from p instead of the residual."""
    return chance.pick(target_law[accepted])


def row_behind(accepted, drafted, draft_law, target_law, chance):
    """M10: recover from the row behind the rejected token."""
    if accepted == len(drafted):
        return chance.pick(target_law[accepted])
    return resample(0, drafted[:1], draft_law[accepted : accepted + 1], target_law[accepted + 1 : accepted + 2], chance)


def bonus_row_before(accepted, drafted, draft_law, target_law, chance):
    """M11: take the bonus token from the row before the last."""
    if accepted == len(drafted):
        return chance.pick(target_law[accepted - 1])
    return resample(accepted, drafted, draft_law, target_law, chance)


def greedy_with_soft_law(model, request, text, k, chance):
    """M4: propose the most likely token but report the soft law."""
    rows, start = [], len(text)
    for _ in range(k):
        rows.append(law(model.logits_after(text), request))
        text.append(int(rows[-1].argmax()))
    return Proposal(tokens=tuple(text[start:]), law=torch.cat(rows) if rows else None)


def put(**parts):
    """Return a function that swaps parts of a speculation."""
    return lambda spec: [setattr(spec, name, part) for name, part in parts.items()]


MUTANTS = {
    "M1": put(accept=always_accept),
    "M2": put(accept=no_coin),
    "M3": put(resample=from_target),
    "M10": put(resample=row_behind),
    "M11": put(resample=bonus_row_before),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_the_enumeration_catches_a_wrong_rule(every_path, toy, soft_draft, name):
    """A check that cannot fail proves nothing: each known bug moves the law visibly."""
    assert off_target(every_path, toy, soft_draft(toy(4, 8), 2), ask(), mutate=MUTANTS[name]) > VISIBLE


def test_the_enumeration_catches_a_greedy_draft_with_a_soft_law(every_path, toy, soft_draft):
    """M4: the law in the ratio must be the law of the draw."""
    assert off_target(every_path, toy, soft_draft(toy(4, 8), 2, greedy_with_soft_law), ask()) > VISIBLE


def test_mutants_replace_what_they_name(every_path, toy, soft_draft):
    """Putting the right parts back by hand is exact, so the mutants differ by their bug alone."""
    assert off_target(every_path, toy, soft_draft(toy(4, 8), 2), ask(), mutate=put(accept=accept, resample=resample)) <= EXACT
