"""The recipe cuts prompts from held-out text only."""

import pytest

from specops.demo import recipe
from specops.demo.corpus import Corpus
from specops.demo.recipe import PROMPT_TOKENS, PROMPTS, held_out_prompts


@pytest.fixture(scope="module")
def prompts(tokenizer, corpus):
    """Return prompts cut from the tiny corpus."""
    return held_out_prompts(tokenizer, corpus, 5)


def test_there_are_as_many_prompts_as_promised(prompts):
    """Each domain has its number."""
    assert {name: len(texts) for name, texts in prompts.items()} == PROMPTS


def test_a_prompt_is_long_enough_and_held_out(prompts, tokenizer, corpus):
    """Prompts hold 48 tokens of held-out text; documents are joined by an EOS that decoding drops."""
    for name, documents in (("code", corpus.code_held_out), ("prose", corpus.prose_held_out)):
        whole = "".join(documents)
        assert all(text in whole for text in prompts[name])
        assert max(len(tokenizer.encode(text).ids) for text in prompts[name]) <= PROMPT_TOKENS + 2


def test_the_seed_decides_the_prompts(prompts, tokenizer, corpus):
    """The same seed cuts the same prompts, another seed others."""
    assert held_out_prompts(tokenizer, corpus, 5) == prompts
    assert held_out_prompts(tokenizer, corpus, 6) != prompts


def test_training_text_has_no_part_in_the_prompts(prompts, tokenizer, corpus):
    """Another training half gives the same prompts."""
    other = Corpus(code=(), code_held_out=corpus.code_held_out, prose=(), prose_held_out=corpus.prose_held_out)
    assert held_out_prompts(tokenizer, other, 5) == prompts


def test_the_commit_is_a_commit_or_says_so():
    """The record never holds an empty commit."""
    commit = recipe._commit()
    assert len(commit) == 40 or commit == "not a git checkout"
