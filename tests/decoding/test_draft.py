"""Drafts: proposals, their laws, and what they remember between rounds."""

import random

import pytest
import torch

from specops.decoding.draft import NOTHING, ModelDraft, NgramDraft
from specops.decoding.request import Request
from specops.decoding.sampling import Seeded, law
from specops.errors import InvalidInput

GREEDY = Request(prompt_ids=(1, 2, 3), max_tokens=20)
SOFT = Request(prompt_ids=(1, 2, 3), max_tokens=20, temperature=0.8, top_k=5)


def lookup(text, k=3, **sizes):
    """Return what a lookup proposes after a text."""
    return NgramDraft(k, **sizes).open(GREEDY, 99).propose(text, k, Seeded(0)).tokens


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


@pytest.mark.parametrize(
    ("text", "block"),
    [
        ([5, 6, 7, 8, 9, 5, 6], (7, 8, 9)),
        ([5, 6, 7, 5, 6, 8, 0, 0, 5, 6], (8, 0, 0)),
        ([1, 2, 3, 4], ()),
        ([4, 4, 4, 4], (4, 4, 4)),
        ([3, 1, 2, 1, 2], (1, 2, 1)),
        ([1], ()),
    ],
)
def test_a_lookup_copies_what_followed_the_latest_match(text, block):
    """The latest of several matches; a copy that reaches its own end goes round; no match, no proposal."""
    assert lookup(text) == block


def test_the_longest_match_wins():
    """Three tokens match earlier than two do."""
    assert lookup([1, 2, 3, 7, 0, 2, 3, 8, 1, 2, 3], k=1) == (7,)
    assert lookup([1, 2, 3, 7, 0, 2, 3, 8, 1, 2, 3], k=1, max_n=2) == (8,)


def test_the_index_grows_as_a_search_from_scratch_finds():
    """Round after round the incremental index answers like a fresh one."""
    rng, text = random.Random(4), [0]
    drafting = NgramDraft(3, 3, 1).open(GREEDY, 99)
    for _ in range(60):
        text += rng.choices(range(4), k=rng.randint(1, 3))

        assert drafting.propose(text, 3, Seeded(0)).tokens == lookup(text, max_n=3, min_n=1)


@pytest.mark.parametrize(
    "build", [lambda: NgramDraft(0), lambda: ModelDraft(None, 0), lambda: NgramDraft(2, 1, 2), lambda: NgramDraft(2, 2, 0)]
)
def test_senseless_sizes_are_refused(build):
    """A draft that cannot propose is left out instead."""
    with pytest.raises(InvalidInput, match=r"expected 1 <= min_n|leave the draft out"):
        build()
