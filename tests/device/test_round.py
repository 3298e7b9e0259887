"""A forward and a round whose shapes depend on nothing: what they compute, and that neighbours do not matter."""

import pytest
import torch

from specops.decoding.draft import ModelDraft
from specops.decoding.loop import generate
from specops.decoding.request import Request
from specops.device.round import DeviceRound, spare
from specops.transformer.model import KVCache

K = 3


@pytest.mark.parametrize("shape", [{}, {"kv_heads": 4}, {"kv_heads": 1}])
def test_a_fixed_forward_gives_the_logits_of_a_plain_one(make_model, shape):
    """Rows at different positions of one pool, with more reach than they use."""
    model = make_model(**shape)
    pool, texts = model.new_pool(3, 40), ([1, 2, 3, 4, 5], [6, 7], [8, 9, 10])
    for slot, text in enumerate(texts):
        model.forward(text, KVCache(pool, slot, 40))

    found = model.forward_fixed(torch.tensor([[11, 12]] * 3), torch.tensor([5, 2, 3]), pool, 32)

    for row, text in zip(found, texts, strict=True):
        fresh = model.forward([*text, 11, 12], model.new_cache())
        torch.testing.assert_close(row, fresh[-2:], rtol=1e-4, atol=1e-4)


def test_what_lies_beyond_the_pool_lands_on_its_last_position(make_model):
    """Rows that do not run write there and nowhere else."""
    model = make_model()
    pool = model.new_pool(2, 20)

    model.forward_fixed(torch.tensor([[1, 2], [3, 4]]), torch.tensor([0, 99]), pool, 16)

    assert pool[:, 0, :, :, :2].abs().sum() > 0
    assert pool[:, 1, :, :, :-1].abs().sum() == 0


def start(pair, slots=4):
    """Return rounds over an empty pool."""
    target, draft = pair
    pool = target.new_pool(slots, target.config.max_len + spare(K))
    return DeviceRound(target, draft, K, pool), pool


def prefill(pair, rounds, pool, slot, request):
    """Put a request into a slot behind its prefill, and return its text."""
    target, draft = pair
    logits = target.forward(request.prompt_ids, KVCache(pool, slot, target.config.max_len), last_only=True)
    draft.forward(request.prompt_ids, KVCache(rounds.draft_pool, slot, target.config.max_len), last_only=True)
    text = [*request.prompt_ids, int(logits.argmax())]
    rounds.put(slot, text, request)
    return text


def test_rounds_speak_as_the_loop_does(pair):
    """Temperature 0: accepted counts and tokens round by round, while another row is in other places."""
    rounds, pool = start(pair)
    one, two = (Request(prompt_ids=ids, max_tokens=24, ignore_eos=True) for ids in ((3, 1), (2, 9, 4, 7, 7)))
    texts = {slot: prefill(pair, rounds, pool, slot, request) for slot, request in ((0, one), (2, two))}
    expected = {
        slot: [(s.accepted, s.tokens) for s in generate(pair[0], ModelDraft(pair[1], K), request)][1:-2]
        for slot, request in ((0, one), (2, two))
    }

    found = [rounds.run({0: (), 2: ()}) for _ in range(min(map(len, expected.values())))]

    assert len(found) >= 4
    assert texts[0] != texts[2]
    for slot, steps in expected.items():
        assert [each[slot] for each in found] == steps[: len(found)]


def test_a_row_that_stopped_leaves_no_trace(pair):
    """Neither its slot nor its neighbour's changes when others go on."""
    rounds, pool = start(pair)
    request = Request(prompt_ids=(3, 1), max_tokens=24)
    prefill(pair, rounds, pool, 0, request)
    prefill(pair, rounds, pool, 1, request)
    rounds.run({0: (), 1: ()})
    rounds.take(0)
    before = pool[:, 0, :, :, :-1].clone()

    assert set(rounds.run({1: ()})) == {1}
    assert torch.equal(pool[:, 0, :, :, :-1], before)


@pytest.mark.parametrize("warm", [0.0, 1.0])
def test_narrow_programs_say_what_wide_ones_do(pair, monkeypatch, warm):
    """How many rows and positions a program covers is a matter of speed."""
    monkeypatch.setattr("specops.device.round.MIN_REACH", 8)
    request = Request(prompt_ids=(3, 1, 4), max_tokens=40, temperature=warm)
    coins = torch.rand(6, 2 * K + 1, generator=torch.Generator().manual_seed(5), dtype=torch.float64).tolist()
    said = []
    for slots, slot in ((1, 0), (8, 0), (8, 5)):
        rounds, pool = start(pair, slots)
        prefill(pair, rounds, pool, slot, request)
        said.append([rounds.run({slot: numbers})[slot] for numbers in coins])
        assert len(rounds._ready) > 1  # it outgrew its first reach

    assert said[0] == said[1] == said[2]
