"""The emitted law equals the target's: every outcome of chance is walked, so nothing is sampled and nothing is approximate."""

import itertools
from collections import defaultdict
from dataclasses import replace

import pytest

from specops.core.trace import Rule
from specops.decoding.draft import ModelDraft
from specops.decoding.lookup import NgramDraft
from specops.decoding.loop import generate
from specops.decoding.request import Request
from tests.decoding.enumeration import EXACT, ask, distance, law_after, off_target, target_law_of

RULES = [Rule.TOKEN, Rule.BLOCK]
SETTINGS = [{}, {"temperature": 0.7}, {"top_k": 2}, {"top_p": 0.8}, {"top_k": 3, "top_p": 0.9, "temperature": 1.3}]
SHAPED = [
    {"min_p": 0.3}, {"repetition_penalty": 1.7}, {"presence_penalty": 1.5}, {"frequency_penalty": -1.2},
    {"logit_bias": ((0, 2.0), (3, -4.0))}, {"min_tokens": 3, "stop_ids": (2,)},
    {"repetition_penalty": 0.6, "presence_penalty": 0.7, "frequency_penalty": 0.4, "logit_bias": ((1, 1.0),), "min_p": 0.05,
     "top_k": 3, "top_p": 0.95, "temperature": 0.8},
]  # fmt: skip


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("settings", SETTINGS)
def test_a_soft_draft_keeps_the_targets_law(every_path, toy, soft_draft, settings, rule):
    """Whatever temperature, top-k and top-p, one round emits exactly the target's law."""
    assert off_target(every_path, toy, soft_draft(toy(4, 8), 2), ask(**settings, rule=rule)) <= EXACT


@pytest.mark.parametrize("rule", RULES)
def test_three_proposals_keep_the_targets_law(every_path, toy, soft_draft, rule):
    """The rule holds at every depth of the block."""
    assert off_target(every_path, toy, soft_draft(toy(4, 8), 3), ask(rule=rule), k=3) <= EXACT


@pytest.mark.parametrize("rule", RULES)
def test_six_tokens_keep_the_targets_law(every_path, toy, soft_draft, rule):
    """A vocabulary of six, the largest that is walked."""
    assert off_target(every_path, toy, soft_draft(toy(6, 8), 2), ask(rule=rule), vocab=6) <= EXACT


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("draft", ["model", "greedy model", "lookup"])
@pytest.mark.parametrize("settings", SHAPED)
def test_every_setting_holds_at_every_position(every_path, toy, settings, draft, rule):
    """Bias, penalties, minimum length and min-p see each proposal's own text so far, whatever proposes."""
    drafts = {"model": ModelDraft(toy(4, 8), 2), "greedy model": ModelDraft(toy(4, 8), 2, greedy=True)}
    assert off_target(every_path, toy, drafts.get(draft, NgramDraft(2, 2, 1)), ask(**settings, rule=rule)) <= EXACT


@pytest.mark.parametrize("settings", [s for s in SHAPED if "min_p" not in s])
def test_greedy_rounds_take_what_plain_decoding_takes(toy, settings):
    """Temperature 0: the same tokens with and without a draft, and they are the largest of the definitions."""
    target, request = toy(4, 7), ask(**settings, temperature=0.0)
    plain = [t for s in generate(target, None, request) for t in s.tokens]
    speculative = [t for s in generate(target, ModelDraft(toy(4, 8), 2), request) for t in s.tokens]

    assert speculative == plain
    warm = replace(request, temperature=1.0)
    assert plain == [int(law_after(target, warm, tuple(plain[:i])).argmax()) for i in range(len(plain))]


@pytest.mark.parametrize("greedy", [True, False])
@pytest.mark.parametrize("settings", SETTINGS[:4])
def test_a_model_draft_keeps_the_targets_law(every_path, toy, settings, greedy):
    """The real model draft, soft and one-hot, with its own cache."""
    assert off_target(every_path, toy, ModelDraft(toy(5, 8), 2, greedy=greedy), ask(**settings), vocab=5) <= EXACT


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("settings", SETTINGS)
def test_a_lookup_keeps_the_targets_law(every_path, toy, settings, rule):
    """Prompt lookup proposes without chance; its one-hot law is kept out of the text all the same."""
    assert off_target(every_path, toy, NgramDraft(2, 2, 1), ask(**settings, rule=rule)) <= EXACT


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("draft", ["model", "lookup"])
def test_rounds_in_a_row_keep_the_targets_law(every_path, toy, draft, rule):
    """Four tokens over several rounds, through rewinds and the two-token feed after a full accept."""
    target, request = toy(3, 7), Request(prompt_ids=(1, 2, 0, 1), max_tokens=4, temperature=1.0, rule=rule)
    proposer = ModelDraft(toy(3, 8), 2) if draft == "model" else NgramDraft(2, 2, 1)
    got = defaultdict(float)

    for weight, text in every_path(
        lambda chance: tuple(itertools.chain(*(s.tokens for s in generate(target, proposer, request, chance=chance)))),
    ):
        got[text] += weight

    assert distance(got, target_law_of(target, request, 4)) <= EXACT
