"""A tiny corpus, a tiny tokenizer and a tiny model: the recipe's code without its hours."""

from dataclasses import replace

import pytest
import torch

from specops.demo import train
from specops.demo.corpus import Corpus

SHAPE = train.Shape(layers=2, hidden=32, heads=2, intermediate=48, vocab=300, context=128)


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Compute on one thread: tiny tensors would only wait for each other, for minutes on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def corpus():
    """Return a corpus of a few hundred made-up documents."""
    code = tuple(f"def f{i}(a, b):\n    return a * {i} + b\n" * 6 for i in range(120))
    prose = tuple(f"This is sentence number {i} of a text that nobody will read. " * 6 for i in range(120))
    return Corpus(code=code[:90], code_held_out=code[90:], prose=prose[:90], prose_held_out=prose[90:])


@pytest.fixture(scope="session")
def tokenizer(corpus):
    """Return a tokenizer of 300 entries."""
    return train.train_tokenizer(corpus, SHAPE.vocab)


@pytest.fixture
def recipe():
    """Return a recipe of a few steps."""
    return train.Recipe(
        target=SHAPE, draft=replace(SHAPE, layers=1), sequence=24, batch=2, grow_steps=2, target_steps=2, draft_steps=2,
        stale_steps=2, greedy_prompt=8, greedy_prompts=4, greedy_tokens=12,
    )  # fmt: skip


@pytest.fixture
def model():
    """Return a random model; its weights are large enough that the next token is never a tie."""
    torch.manual_seed(3)
    model = train.Llama(SHAPE)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(12)
    return model.eval()
