"""Pairs are kept once, whole, and found by digest."""

from dataclasses import replace

import pytest

from specops.core.pair import Pair
from specops.core.vocabulary import Relation, VocabularyRelation
from specops.errors import InvalidRecord

PAIR = Pair(
    target="a" * 64, method="ngram", target_tokenizer="c" * 64, vocabulary_sha256="e" * 64,
    vocabulary=VocabularyRelation(kind=Relation.NONE, real_size=7, target_size=8),
)  # fmt: skip


def test_a_pair_is_kept_once(store):
    """Proved again, it is the same row."""
    with store.begin() as unit:
        assert [unit.pairs.add(PAIR), unit.pairs.add(PAIR)] == [True, False]

    with store.read() as unit:
        assert (unit.pairs.get(PAIR.digest), unit.pairs.all()) == (PAIR, [PAIR])


def test_two_proofs_are_two_pairs(store):
    """A padded row more is another pair."""
    other = replace(PAIR, vocabulary=replace(PAIR.vocabulary, target_size=16))
    with store.begin() as unit:
        unit.pairs.add(PAIR)
        unit.pairs.add(other)

    with store.read() as unit:
        assert unit.pairs.all() == sorted([PAIR, other], key=lambda p: p.digest)


def test_an_unknown_pair_says_how_to_get_one(store):
    """By registering a release of it."""
    with store.read() as unit, pytest.raises(InvalidRecord, match="specops release register"):
        unit.pairs.get("f" * 64)
