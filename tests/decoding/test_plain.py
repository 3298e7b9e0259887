"""Plain decoding, the reference of everything else."""

import pytest
import torch

from specops.decoding.loop import Request, generate
from specops.decoding.sampling import Seeded, law


def plain(model, **request):
    """Return the steps of plain decoding."""
    return list(generate(model, None, Request(**request)))


def test_greedy_tokens_are_the_argmax_of_fresh_forwards(make_model):
    """No cache, no loop: each token is what the model says of the text so far."""
    model, text = make_model(), [1, 2, 3]

    for step in plain(model, prompt_ids=tuple(text), max_tokens=15):
        assert step.tokens == (int(model.forward(text, model.new_cache(), last_only=True).argmax()),)
        text += step.tokens


def test_sampled_tokens_follow_the_law_of_fresh_forwards(make_model):
    """The same coins drawn from freshly computed laws give the same text."""
    model, text, chance = make_model(), [1, 2, 3], Seeded(11)
    request = {"temperature": 0.9, "top_k": 10, "top_p": 0.95, "seed": 11}

    for step in plain(model, prompt_ids=tuple(text), max_tokens=15, **request):
        logits = model.forward(text, model.new_cache(), last_only=True)
        assert step.tokens == (chance.pick(law(logits, Request(prompt_ids=(0,), max_tokens=1, **request))[0]),)
        text += step.tokens


def test_steps_carry_no_speculation(make_model):
    """One token each, nothing drafted; only the last has an ending."""
    steps = plain(make_model(), prompt_ids=(5,), max_tokens=6)

    assert [(len(s.tokens), s.drafted, s.accepted, s.trace) for s in steps] == [(1, 0, 0, None)] * 6
    assert [s.finish for s in steps] == [None] * 5 + ["length"]


def test_the_context_ends_an_answer(make_model):
    """Prompt and answer fill the context exactly."""
    assert len(plain(make_model(context=10), prompt_ids=(5, 6, 7), max_tokens=99)) == 7


def test_a_stop_token_ends_an_answer_and_is_emitted(make_model):
    """The token at which a longer answer passes by is the last."""
    model = make_model()
    tokens = [s.tokens[0] for s in plain(model, prompt_ids=(5,), max_tokens=8)]
    first = tokens.index(tokens[3])

    steps = plain(model, prompt_ids=(5,), max_tokens=8, stop_ids=(tokens[3],))

    assert [s.tokens[0] for s in steps] == tokens[: first + 1]
    assert steps[-1].finish == "stop"


def test_generation_leaves_no_torch_mode_behind(make_model):
    """Between two steps the caller's autograd is as before: a suspended generator must not hold inference mode."""
    steps = generate(make_model(), None, Request(prompt_ids=(5,), max_tokens=4))
    next(steps)

    assert not torch.is_inference_mode_enabled()


@pytest.mark.parametrize("k", [0, None])
def test_k_of_zero_is_plain_decoding(make_model, soft_draft, toy, k):
    """A request may switch its draft off; only then nothing is drafted."""
    steps = list(
        generate(make_model(), soft_draft(toy(48, 1), 2), Request(prompt_ids=(5, 6), max_tokens=5, temperature=1.0, k=k))
    )

    assert any(s.drafted for s in steps) is (k is None)
