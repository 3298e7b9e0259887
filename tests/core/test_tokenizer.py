"""A tokenizer is what its entries say, however the file spells them; a broken file is refused by the entry's name."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specops.core.canonical import digest_of
from specops.core.tokenizer import Model, Tokenizer, shown
from specops.core.tokenizer_file import MAX_NESTING, MAX_TOKEN, parse_tokenizer
from specops.errors import InvalidRecord
from tests.tokenizer_files import BYTE_LEVEL, END, bpe, changed_model, unigram


def parse(raw):
    """Parse a file."""
    return parse_tokenizer(raw, "tokenizer.json")


def test_byte_level_entries_are_bytes():
    """The sign for a space is a space, and half a UTF-8 character is one byte; an added token is plain text."""
    tokenizer = parse(bpe())

    assert tokenizer.vocabulary == {0: b"a", 1: b"b", 2: b" ", 3: b"\xc3", 4: b"ab", 5: b" ab", 6: b"<|end|>"}
    assert (tokenizer.size, tokenizer.special, tokenizer.model) == (7, ("<|end|>",), Model.BPE)


def test_an_entry_outside_the_byte_alphabet_is_plain_text():
    """Some files keep special tokens among the model's own."""
    raw = changed_model(vocab={"a": 0, "<｜x｜>": 1}, merges=[])

    assert parse(raw).vocabulary[1] == "<｜x｜>".encode()


def test_a_byte_fallback_entry_is_its_byte_and_the_sign_is_a_space():
    """As in SentencePiece: <0x0A> for a newline, a low block for a space."""
    tokenizer = parse(unigram())

    assert tokenizer.pieces == (b"<unk>", b"\n", b" a")
    assert tokenizer.scores == (0.0, -1.0, -2.5)


@pytest.mark.parametrize(("decoder", "piece"), [
    ({"type": "Metaspace", "replacement": "_"}, b"\xe2\x96\x81a"),
    ({"type": "Metaspace", "replacement": "▁"}, b" a"),
    (None, b"\xe2\x96\x81a"),
])  # fmt: skip
def test_the_sign_for_a_space_is_the_files_own(decoder, piece):
    """Without a rule that replaces it, the sign is a letter like others."""
    assert parse(unigram(normalizer=None, decoder=decoder)).pieces[2] == piece


def test_spelling_does_not_change_the_digest():
    """Key order, the old form of merges, truncation and padding are no content."""
    old = changed_model(dict(reversed(bpe().items())), merges=["a b", "Ġ ab"]) | {"truncation": {"max_length": 5}}

    assert parse(old).digest == parse(bpe()).digest


def test_the_digest_is_that_of_the_whole_content():
    """The fast writer of the long lists gives RFC 8785 bytes."""
    raw = changed_model(vocab={'a"\\\n\x01\x7f\u2028€😀': 0, "b": 1, "ab": 4}, merges=[["a", "b"]])
    tokenizer = parse(raw)

    assert tokenizer.digest == digest_of(
        {
            "tokens": [list(t) for t in tokenizer.tokens],
            "merges": [list(m) for m in tokenizer.merges],
            "added": [[t.id, t.flags] for t in tokenizer.added],
            "rules": {"model": tokenizer.settings, **tokenizer.rules},
        }
    )


def test_every_part_of_the_content_moves_the_digest():
    """One merge, one flag, one rule, one score."""
    digests = [
        parse(raw).digest
        for raw in (
            bpe(), changed_model(merges=[["a", "b"]]), bpe(added_tokens=[END | {"lstrip": True}]),
            bpe(normalizer={"type": "NFC"}), changed_model(byte_fallback=True), unigram(),
            unigram(model=unigram()["model"] | {"vocab": [["<unk>", 0.0], ["<0x0A>", -1], ["▁a", -2.6]]}),
        )
    ]  # fmt: skip

    assert len(set(digests)) == len(digests)


def test_rules_have_digests_of_their_own():
    """So that a report can say which rule differs."""
    left, right = parse(bpe()).rule_digests, parse(bpe(normalizer={"type": "NFC"})).rule_digests

    assert {name for name in left if left[name] != right[name]} == {"normalizer"}


def test_the_vocabulary_hash_is_over_ids_and_bytes():
    """Merges and flags are other content; an id that moves is not."""
    base = parse(bpe()).vocabulary_sha256

    assert parse(changed_model(merges=[])).vocabulary_sha256 == base
    assert parse(changed_model(vocab=bpe()["model"]["vocab"] | {"a": 1, "b": 0})).vocabulary_sha256 != base


def test_a_file_of_an_old_version_names_no_model():
    """A list is Unigram, an object BPE."""
    for raw, kind in ((bpe(), Model.BPE), (unigram(), Model.UNIGRAM)):
        del raw["model"]["type"]
        assert parse(raw).model is kind


def test_missing_merges_and_added_tokens_are_none():
    """Word-level files have neither."""
    raw = bpe(added_tokens=None, model={"type": "WordLevel", "vocab": {"a": 0}}, pre_tokenizer=None, decoder=None)

    assert (parse(raw).merges, parse(raw).added, parse(raw).pieces) == ((), (), (b"a",))


NEST = {"type": "Sequence"}
for _ in range(MAX_NESTING + 1):
    NEST = {"type": "Sequence", "normalizers": [NEST]}


@pytest.mark.parametrize(("raw", "why"), [
    ([], "must be a JSON object"),
    ({}, "model must be a JSON object"),
    (changed_model(type="LSTM"), "'LSTM' is not known"),
    (changed_model(type=["BPE"]), "is not known"),
    (changed_model(vocab=[["a", 0]]), "must be a object"),
    (unigram(model={"type": "Unigram", "vocab": {"a": 0}}), "must be a list"),
    (unigram(model={"type": "Unigram", "vocab": [["a"]]}), r"vocab entry 0 must be \[token, score\]"),
    (unigram(model={"type": "Unigram", "vocab": [["a", "x"]]}), "score must be a finite number"),
    (unigram(model={"type": "Unigram", "vocab": [["a", float("nan")]]}), "score must be a finite number"),
    (changed_model(vocab={"a": 0, "b": 0}), "id 0 stands for 'a' and for 'b'"),
    (changed_model(vocab={"a": -1}), "token 'a' must have an id"),
    (changed_model(vocab={"a": True}), "token 'a' must have an id"),
    (changed_model(vocab={"a": 2**22}), "token 'a' must have an id"),
    (changed_model(vocab={"a\ud800": 0}), "token 0 is not valid Unicode"),
    (changed_model(vocab={"a" * (MAX_TOKEN + 1): 0}), "at most 16384 characters"),
    (changed_model(vocab={}) | {"added_tokens": []}, "needs tokens"),
    (changed_model(merges={}), "merges must be a list"),
    (changed_model(merges=["a b c"]), "merge 0 must join two"),
    (changed_model(merges=[["a", 1]]), "merge 0 must be text"),
    (bpe(added_tokens={}), "added_tokens must be a list"),
    (bpe(added_tokens=[1]), "added token 0 must be a JSON object"),
    (bpe(added_tokens=[END, END]), "id 6 is taken by"),
    (bpe(added_tokens=[END | {"content": None}]), "added token 0 must be text"),
    (bpe(added_tokens=[END | {"special": "yes"}]), "special must be true or false"),
    (bpe(normalizer=NEST), "nested more than 24 deep"),
    (bpe(normalizer={"type": "NFC", "x": float("nan")}), "not canonical JSON"),
])  # fmt: skip
def test_a_broken_file_is_refused_by_the_entrys_name(raw, why):
    """Never a traceback, and a person finds the entry."""
    with pytest.raises(InvalidRecord, match=why):
        parse(raw)


class Endless(list):
    """A list that says it has more entries than memory would hold."""

    def __len__(self):
        """Say so."""
        return 2**40


@pytest.mark.parametrize(("raw", "why"), [
    (changed_model(type="Unigram", vocab=Endless()), "at most 4194304 are read"),
    (changed_model(merges=Endless()), "list of at most 8388608"),
    (bpe(added_tokens=Endless()), "list of at most 4194304"),
    (bpe(normalizer=[None] * 2**20), "more than 1048576 values"),
])  # fmt: skip
def test_a_file_of_no_believable_size_is_refused(raw, why):
    """Before anything of its size is built."""
    with pytest.raises(InvalidRecord, match=why):
        parse(raw)


def test_a_tokenizer_without_bytes_is_none():
    """The type itself keeps both lists together."""
    with pytest.raises(InvalidRecord, match="each with its bytes"):
        Tokenizer(model=Model.BPE, tokens=((0, "a"),), pieces=())


def test_a_message_is_short_whatever_the_value():
    """Deep or long, it fits a line."""
    deep = []
    for _ in range(900):
        deep = [deep]

    assert len(shown(deep)) < 80
    assert len(shown("x" * 10_000)) < 200
    assert shown(None) == "absent"


@given(st.dictionaries(st.text(max_size=5), st.integers(0, 50), max_size=8))
def test_a_file_round_trips_through_json(vocab):
    """Reading what was written again gives the same digest, and ids are unique or refused."""
    raw = changed_model(vocab=vocab, merges=[])
    unique = len(set(vocab.values())) == len(vocab)
    try:
        digest = parse(raw).digest
    except InvalidRecord:
        assert not unique
    else:
        assert parse(json.loads(json.dumps(raw))).digest == digest


def test_rules_nest_in_lists_and_objects():
    """A ByteLevel step inside a sequence counts."""
    raw = bpe(pre_tokenizer={"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": "x"}}, BYTE_LEVEL]})

    assert parse(raw | {"decoder": None}).pieces[5] == b" ab"
