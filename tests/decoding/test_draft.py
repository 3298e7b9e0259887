"""Drafts: proposals, their laws, and what they remember between rounds."""

import pytest
import torch

from specops.decoding.draft import NOTHING, ModelDraft
from specops.decoding.request import Request
from specops.decoding.sampling import Seeded, law
from specops.errors import InvalidInput

GREEDY = Request(prompt_ids=(1, 2, 3), max_tokens=20)
SOFT = Request(prompt_ids=(1, 2, 3), max_tokens=20, temperature=0.8, top_k=5)


def test_a_greedy_proposal_is_the_drafts_own_continuation(make_model):
    """Each token is the most likely after the one before, and the law is one-hot."""
    model, text = make_model(), [1, 2, 3]

    proposal = ModelDraft(model, 3).open(GREEDY, 30).propose(text, 3, Seeded(0))

    for token in proposal.tokens:
        assert token == int(model.forward(text, model.new_cache(), last_only=True).argmax())
        text.append(token)
    assert proposal.law is None


def test_a_soft_proposal_carries_the_law_it_was_drawn_from(make_model):
    """Row i is the request's law after the text and the proposals before i."""
    model, text = make_model(), [1, 2, 3]

    proposal = ModelDraft(model, 3).open(SOFT, 30).propose(text, 3, Seeded(0))

    for token, row in zip(proposal.tokens, proposal.law, strict=True):
        fresh = law(model.forward(text, model.new_cache(), last_only=True), SOFT)[0]
        assert torch.allclose(row, fresh, atol=1e-5)
        assert row[token] > 0
        text.append(token)


@pytest.mark.parametrize("kept", [0, 1, 2, 3])
def test_a_rewound_draft_goes_on_as_a_fresh_one(make_model, kept):
    """Whatever prefix was accepted, the cache is a prefix of the text; after a full accept two tokens are fed."""
    model, text = make_model(), [1, 2, 3]
    drafting = ModelDraft(model, 3).open(GREEDY, 30)
    block = drafting.propose(text, 3, Seeded(0)).tokens

    text += [*block[:kept], 9]
    drafting.rewind(len(text) - 1)
    again = drafting.propose(text, 3, Seeded(0))

    assert again == ModelDraft(model, 3).open(GREEDY, 30).propose(text, 3, Seeded(0))


def test_a_short_context_shortens_the_proposal(make_model):
    """A draft with less context than the target proposes what fits, then nothing."""
    drafting = ModelDraft(make_model(context=6), 4).open(GREEDY, 30)

    assert len(drafting.propose([1, 2, 3, 4, 5], 4, Seeded(0)).tokens) == 2
    assert drafting.propose([1] * 7, 4, Seeded(0)) == NOTHING


def test_a_draft_that_cannot_propose_is_refused():
    """It is left out instead."""
    with pytest.raises(InvalidInput, match="leave the draft out"):
        ModelDraft(None, 0)
