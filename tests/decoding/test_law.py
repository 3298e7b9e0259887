"""The emitted law equals the target's: every outcome of chance is walked, so nothing is sampled and nothing is approximate."""

import itertools
from collections import defaultdict

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


def target_law_of(target, request, length):
    """Return {text: probability} for all texts of this length that may follow the prompt."""
    laws = {(): 1.0}
    for _ in range(length):
        laws = {
            (*text, x): weight * p
            for text, weight in laws.items()
            for x, p in enumerate(law(target.logits_after([*request.prompt_ids, *text]), request)[0].tolist())
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
        rest = Request(prompt_ids=(*request.prompt_ids, *text), max_tokens=1, **settings_of(request))
        for tail, p in target_law_of(target, rest, k + 2 - len(text)).items():
            got[text + tail] += weight * p
    return got


def settings_of(request):
    """Return the sampling settings of a request."""
    return {"temperature": request.temperature, "top_k": request.top_k, "top_p": request.top_p}


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


@pytest.mark.parametrize("settings", SETTINGS)
def test_a_soft_draft_keeps_the_targets_law(every_path, toy, soft_draft, settings):
    """Whatever temperature, top-k and top-p, one round emits exactly the target's law."""
    assert off_target(every_path, toy, soft_draft(toy(4, 8), 2), ask(**settings)) <= EXACT


def test_three_proposals_keep_the_targets_law(every_path, toy, soft_draft):
    """The rule holds at every depth of the block."""
    assert off_target(every_path, toy, soft_draft(toy(4, 8), 3), ask(), k=3) <= EXACT


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
