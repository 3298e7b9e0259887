"""The recipe's model computes what a checkpoint says, and its shortcuts change nothing."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from specops.demo import train
from specops.transformer.model import load_model


def test_the_tokenizer_gives_text_back(tokenizer, corpus):
    """Byte-level: nothing is lost, whatever the text."""
    for text in (corpus.code[0], corpus.prose[0], "naïve 日本語 \t\n"):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_a_stream_ends_each_document(tokenizer):
    """Documents are told apart by one EOS each."""
    stream = train.stream_of(tokenizer, ("abc", "def"))
    eos = tokenizer.token_to_id(train.EOS)
    assert (stream == eos).sum() == 2
    assert stream[-1] == eos


def test_cached_writing_equals_writing_without_cache(model, tokenizer, corpus, recipe):
    """`write_greedily` keeps keys and values; each token is the argmax over the whole text so far."""
    stream = train.stream_of(tokenizer, corpus.code)
    rows = train.write_greedily(model, stream, recipe, torch.Generator().manual_seed(1))
    assert rows.shape == (recipe.greedy_prompts, recipe.greedy_prompt + recipe.greedy_tokens)
    with torch.no_grad():
        for length in range(recipe.greedy_prompt, rows.shape[1]):
            assert torch.equal(model(rows[:, :length])[:, -1].argmax(-1), rows[:, length])


def test_a_checkpoint_comes_back_in_half_precision(model, tokenizer, tmp_path):
    """Save, load, save, load: the second round loses nothing more."""
    train.save(model, tokenizer, tmp_path / "one")
    once = train.load(tmp_path / "one")
    train.save(once, tokenizer, tmp_path / "two")
    twice = train.load(tmp_path / "two")
    assert once.shape == model.shape
    for (name, first), second in zip(once.state_dict().items(), twice.state_dict().values(), strict=True):
        assert torch.equal(first, second), name
        assert torch.equal(first, model.state_dict()[name].half().float()), name


def test_the_serving_model_agrees_with_the_training_model(model, tokenizer, tmp_path):
    """A checkpoint means the same to the engine that serves it."""
    train.save(model, tokenizer, tmp_path)
    serving = load_model(tmp_path, dtype="float32")
    assert (serving.config.vocab_size, serving.config.max_len) == (300, 128)
    tensors = load_file(tmp_path / "model.safetensors")
    assert "model.layers.1.mlp.down_proj.weight" in tensors
    assert {t.dtype for t in tensors.values()} == {torch.float16}


def test_growing_copies_each_layer_twice(tokenizer, corpus, recipe):
    """Before any further step the grown model has the half's layers in pairs, outputs scaled so that they do not add twice."""
    half = train.train_half(tokenizer, corpus, replace(recipe, target=replace(recipe.target, layers=4)), lambda *_: None)
    assert len(half.layers) == 2
    full = train.grow(
        half, tokenizer, corpus, replace(recipe, target=replace(recipe.target, layers=4), target_steps=0), lambda *_: None
    )
    assert len(full.layers) == 4
    for i, block in enumerate(full.layers):
        old = half.layers[i // 2]
        assert torch.equal(block.get_parameter("self_attn.q_proj.weight"), old.get_parameter("self_attn.q_proj.weight"))
        assert torch.allclose(block.get_parameter("mlp.down_proj.weight"), 0.6 * old.get_parameter("mlp.down_proj.weight"))
    assert torch.equal(full.embed_tokens.weight, half.embed_tokens.weight)


def test_training_is_repeatable(tokenizer, corpus, recipe):
    """Seed and corpus decide the weights, and every step is reported."""
    said = []
    one = train.train_half(tokenizer, corpus, recipe, lambda *line: said.append(line))
    two = train.train_half(tokenizer, corpus, recipe, lambda *_: None)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    assert [line[1] for line in said] == [1, 2]


@pytest.mark.parametrize("steps", [24])
def test_a_draft_learns_from_its_target(model, tokenizer, corpus, recipe, steps):
    """Distillation lowers the loss on the target's greedy text."""
    stream = train.stream_of(tokenizer, corpus.code)
    greedy = train.write_greedily(model, stream, recipe, torch.Generator().manual_seed(1))
    losses = []
    draft = train.distil(model, stream, greedy, recipe, steps, lambda _step, loss: losses.append(loss))
    on_greedy = [loss for turn, loss in enumerate(losses, 1) if turn % 4]
    assert on_greedy[-1] < on_greedy[0]
    assert draft.shape == recipe.draft
