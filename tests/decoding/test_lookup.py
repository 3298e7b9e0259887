"""Drafts without weights: what they propose, what they index, and that whatever they propose is exact."""

import random
from itertools import chain, pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from specops.core.trace import Rule
from specops.decoding.draft import NOTHING, ModelDraft, Proposal
from specops.decoding.lookup import NgramDraft, ReplayDraft, SuffixDraft
from specops.decoding.loop import Speculation, generate
from specops.decoding.request import Request
from specops.decoding.sampling import Seeded
from specops.errors import InvalidInput
from tests.decoding.enumeration import EXACT, ask, off_target

GREEDY = Request(prompt_ids=(1, 2, 3), max_tokens=20)


def lookup(text, k=3, **sizes):
    """Return what a lookup proposes after a text."""
    return NgramDraft(k, **sizes).open(GREEDY, 99).propose(text, k, Seeded(0)).tokens


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


def suffix(text, k=8, **settings):
    """Return what suffix decoding proposes after a text."""
    return SuffixDraft(k, **settings).open(GREEDY, 99).propose(text, k, Seeded(0)).tokens


@pytest.mark.parametrize(
    ("text", "block"),
    [
        ([5, 6, 7, 8, 9, 5, 6], (7, 8)),  # as many as the match is long
        ([5, 6, 7, 5, 6, 8, 5, 6, 8, 0, 5, 6], (8, 5)),  # 8 followed twice, 7 once; then 5 before 0, which tie
        ([1, 2, 3, 4], ()),
        ([4, 4, 4, 4], (4, 4, 4)),
        ([1], ()),
    ],
)
def test_a_suffix_draft_proposes_the_most_frequent_continuation(text, block):
    """Of the longest suffix that occurred before."""
    assert suffix(text) == block


def test_the_factor_and_the_least_probability_bound_a_proposal():
    """Half as long; and none where three continuations are equally frequent."""
    assert suffix([5, 6, 7, 8, 9, 5, 6], factor=0.5) == (7,)
    assert suffix([5, 6, 7, 8, 9, 5, 6], k=1) == (7,)
    assert suffix([5, 1, 5, 2, 5, 3, 5], min_prob=0.34) == ()
    assert suffix([5, 1, 5, 2, 5, 3, 5], min_prob=0.33) == (1,)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=60), st.integers(1, 5), st.data())
def test_a_suffix_index_grows_as_one_from_scratch(text, depth, data):
    """However the rounds cut the text; and every proposal did follow its context somewhere."""
    drafting = SuffixDraft(4, depth, 2.0, 0.0).open(GREEDY, 99)
    for end in sorted(data.draw(st.sets(st.integers(1, len(text)), max_size=6)) | {len(text)}):
        grown = drafting.propose(text[:end], 4, Seeded(0)).tokens

        assert grown == suffix(text[:end], k=4, max_depth=depth, factor=2.0, min_prob=0.0)
        seen = set(pairwise(text[:end]))
        assert all(pair in seen for pair in zip([text[end - 1], *grown], grown, strict=False))


@pytest.mark.parametrize("rule", [Rule.TOKEN, Rule.BLOCK])
@pytest.mark.parametrize(
    "draft",
    [
        SuffixDraft(2, 4, 1.0, 0.0),
        ReplayDraft(2, (1, 2, 3, 1, 2, 0), {6: Proposal(tokens=(3, 1))}),
        ReplayDraft(
            2, (1, 2, 3, 1, 2, 0),
            {6: Proposal(tokens=(3, 1), law=torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.6, 0.2, 0.1, 0.1]], dtype=torch.float64))},
        ),
    ],
)  # fmt: skip
def test_whatever_they_propose_the_law_is_the_targets(every_path, toy, draft, rule):
    """By enumeration: also where a replay's redraw leaves the record, and where the text was another."""
    assert off_target(every_path, toy, draft, ask(rule=rule)) <= EXACT


class Recorder(ModelDraft):
    """A model draft that keeps what it proposed."""

    __slots__ = ("kept",)

    def open(self, request, limit):
        """Open, and listen."""
        drafting = super().open(request, limit)
        ask_model = drafting.propose

        def propose(committed, k, chance):
            self.kept[len(committed)] = ask_model(committed, k, chance)
            return self.kept[len(committed)]

        drafting.propose = propose
        return drafting


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_replay_with_the_recorded_seed_is_the_recorded_answer(make_model, temperature):
    """Round by round the same proposals, the same verdicts, and the draft model is not needed."""
    target = make_model("target")
    request = Request(prompt_ids=(1, 2, 3), max_tokens=30, temperature=temperature, seed=5)
    recorder = Recorder(make_model("draft"), 3)
    object.__setattr__(recorder, "kept", {})
    first = list(generate(target, recorder, request))
    text = (*request.prompt_ids, *chain(*(step.tokens for step in first)))

    again = list(generate(target, ReplayDraft(3, text, recorder.kept), request))

    assert again == first
    assert sum(step.drafted for step in again) > 0


def test_a_replay_is_silent_once_the_text_is_another():
    """Nothing is known of a text that was not recorded."""
    draft = ReplayDraft(2, (1, 2, 3, 4), {3: Proposal(tokens=(4, 5))})

    assert draft.propose([1, 2, 3], 1, Seeded(0)).tokens == (4,)
    assert draft.propose([1, 2, 0], 2, Seeded(0)) == NOTHING
    assert draft.propose([1, 2], 2, Seeded(0)) == NOTHING


def test_nothing_of_one_request_is_proposed_to_another(make_model):
    """A shared draft keeps no text."""
    draft, target = SuffixDraft(4), make_model("target")
    list(generate(target, draft, Request(prompt_ids=(1, 2, 1, 2, 1, 2), max_tokens=10)))

    fresh = Speculation(target, draft, Request(prompt_ids=(1, 2), max_tokens=10))

    assert fresh.drafting.followers == {}


@pytest.mark.parametrize(
    "build",
    [
        lambda: NgramDraft(0), lambda: NgramDraft(2, 1, 2), lambda: NgramDraft(2, 2, 0), lambda: SuffixDraft(0),
        lambda: SuffixDraft(1, 0), lambda: SuffixDraft(1, 2, 0.0), lambda: SuffixDraft(1, 2, 1.0, 1.1),
        lambda: ReplayDraft(0, (), {}),
    ],
)  # fmt: skip
def test_senseless_settings_are_refused(build):
    """A draft that cannot propose is left out instead."""
    with pytest.raises(InvalidInput, match=r"expected 1 <= min_n|leave the draft out|expected max_depth"):
        build()
