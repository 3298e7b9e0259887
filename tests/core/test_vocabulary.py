"""What a draft's vocabulary is to its target's is proved from the entries; sizes alone prove nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specops.core.tokenizer_file import parse_tokenizer
from specops.core.vocabulary import (
    Entry,
    Relation,
    VocabularyMap,
    VocabularyRelation,
    compare,
    first_difference,
    side_differences,
)
from specops.errors import IncompatibleRelease, InvalidRecord
from tests.tokenizer_files import END, bpe, changed_model, unigram


def parse(raw):
    """Parse a file."""
    return parse_tokenizer(raw, "tokenizer.json")


TARGET = parse(bpe())


def test_equal_entries_in_equal_sizes_are_identical():
    """Padding is the same on both sides, and named."""
    relation = compare(TARGET, parse(bpe()), target_size=64, draft_size=64)

    assert (relation.kind, relation.real_size, relation.padded_ids) == (Relation.IDENTICAL, 7, 57)
    assert "7 tokens, each the same" in relation.message


def test_a_padded_vocabulary_names_real_and_padded_sizes():
    """Equal tokens, unequal rows: the ids in between must never be proposed."""
    relation = compare(TARGET, parse(bpe()), target_size=8, draft_size=16)

    assert (relation.kind, relation.padded_ids) == (Relation.PADDED, 9)
    assert "8 rows, the draft 16; ids from 7 on are padding and must never be proposed" in relation.message


def test_a_method_without_a_model_has_no_draft_vocabulary():
    """n-gram and suffix copy the target's own tokens."""
    relation = compare(TARGET, None, target_size=8)

    assert relation.kind is Relation.NONE
    assert "no draft vocabulary" in relation.message


@pytest.mark.parametrize(("draft", "entry"), [
    (changed_model(vocab=bpe()["model"]["vocab"] | {"b": 3, "Ã": 1}), ("token 1", "b'b'", r"b'\xc3'")),
    (bpe(added_tokens=[END, END | {"id": 7, "content": "<tool>"}]), ("token 7", "absent", "b'<tool>'")),
    (changed_model(merges=[["a", "b"], ["Ġ", "a"]]), ("merge 1", "('Ġ', 'ab')", "('Ġ', 'a')")),
    (changed_model(merges=[["a", "b"]]), ("merge 1", "('Ġ', 'ab')", "absent")),
    (bpe(added_tokens=[END | {"special": False}]), ("added token 6", "True", "False")),
    (changed_model(bpe(added_tokens=[]), vocab=bpe()["model"]["vocab"] | {"<|end|>": 6}),
     ("added token 6", "<|end|>", "absent")),
    (changed_model(type="WordPiece"), ("model type", "BPE", "WordPiece")),
    (changed_model(unk_token="a"), ("model setting unk_token", "absent", "'a'")),
    (bpe(normalizer={"type": "NFC"}), ("normalizer", "absent", "{'type': 'NFC'}")),
    (bpe(pre_tokenizer=bpe()["pre_tokenizer"] | {"add_prefix_space": True}), ("pre_tokenizer", "False", "True")),
])  # fmt: skip
def test_one_entry_that_differs_is_a_mismatch_and_is_shown(draft, entry):
    """Where it is, what the target has there and what the draft."""
    relation = compare(TARGET, parse(draft), target_size=64, draft_size=64)

    what, left, right = entry
    assert (relation.kind, relation.entry.what) == (Relation.MISMATCHED, what)
    assert left in relation.entry.target
    assert right in relation.entry.draft
    with pytest.raises(IncompatibleRelease, match="use a draft trained with the target's tokenizer"):
        relation.require_match()


def test_scores_are_compared():
    """A Unigram model splits by them."""
    other = unigram(model=unigram()["model"] | {"vocab": [["<unk>", 0.0], ["<0x0A>", -1], ["▁a", -2.6]]})

    assert first_difference(parse(unigram()), parse(other)) == Entry(what="score of token 2", target="-2.5", draft="-2.6")


def test_what_only_frames_or_prints_text_is_a_side_difference():
    """Post-processor and decoder never touch a proposal."""
    draft = parse(bpe(post_processor={"type": "TemplateProcessing"}))

    assert first_difference(TARGET, draft) is None
    assert [entry.what for entry in side_differences(TARGET, draft)] == ["post_processor"]


@pytest.mark.parametrize(("sizes", "why"), [
    ((6, 6), "6 rows for 7 tokens"),
    ((64, 6), "6 rows without t2d and d2t"),
])  # fmt: skip
def test_fewer_rows_than_tokens_is_a_mismatch(sizes, why):
    """A size in config.json that was edited by hand (vllm#10913) is found."""
    relation = compare(TARGET, parse(bpe()), target_size=sizes[0], draft_size=sizes[1])

    assert relation.kind is Relation.MISMATCHED
    assert why in relation.message


def test_a_mapped_vocabulary_is_proved_from_its_tables():
    """d2t[i] + i is the target id, and t2d marks just those."""
    mapping = VocabularyMap(d2t=(1, 1, 4), t2d=(False, True, True, False, False, False, True, False))

    relation = compare(TARGET, None, target_size=8, draft_size=3, mapping=mapping)

    assert (mapping.targets, relation.kind, relation.beyond_real) == ((1, 2, 6), Relation.MAPPED, 0)
    assert (relation.map_sha256, relation.padded_ids) == (mapping.digest, 1)
    assert "3 draft ids map to as many" in relation.message


def test_mapped_ids_in_the_padding_are_counted():
    """Wasted, not wrong: the target's own law decides whether such an id is accepted."""
    assert compare(TARGET, None, target_size=8, draft_size=1, mapping=VocabularyMap(d2t=(7,))).beyond_real == 1


@pytest.mark.parametrize(("d2t", "t2d", "why"), [
    ((1, 1), None, "size of d2t"),
    ((1, 1, 6), None, "d2t of draft id 2 is ids 0 to 7 in the target and id 8"),
    ((-1, 1, 4), None, "d2t of draft id 0"),
    ((2, 1, 4), None, "d2t of draft id 1 is each id once in the target and id 2, as draft id 0"),
    ((1, 1, 4), (True,) * 7, "size of t2d"),
    ((1, 1, 4), (True, True, True, False, False, False, True, False), "t2d of target id 0 is known by t2d"),
    ((1, 1, 4), (False, False, True, False, False, False, True, False), "t2d of target id 1 is unknown by t2d"),
])  # fmt: skip
def test_a_table_that_lies_is_a_mismatch(d2t, t2d, why):
    """Range, each target id once, and both tables of one mind."""
    relation = compare(TARGET, None, target_size=8, draft_size=3, mapping=VocabularyMap(d2t=d2t, t2d=t2d))

    assert relation.kind is Relation.MISMATCHED
    assert why in relation.message


def test_a_table_without_entries_is_refused():
    """It maps nothing."""
    with pytest.raises(InvalidRecord, match="d2t must have"):
        VocabularyMap(d2t=())


@pytest.mark.parametrize("relation", [
    compare(TARGET, TARGET, target_size=8, draft_size=9),
    compare(TARGET, parse(changed_model(merges=[])), target_size=8, draft_size=8),
])  # fmt: skip
def test_a_relation_round_trips_through_its_record(relation):
    """Stored with the pair."""
    assert VocabularyRelation.from_record(relation.to_record()) == relation


def test_a_match_names_no_entry_and_is_not_refused():
    """And a record that says otherwise is none."""
    relation = compare(TARGET, TARGET, target_size=8, draft_size=8)
    relation.require_match()

    with pytest.raises(InvalidRecord, match="names one"):
        VocabularyRelation.from_record(relation.to_record() | {"kind": "mismatched"})


@given(st.lists(st.integers(0, 99), min_size=1, max_size=20, unique=True))
def test_any_true_map_is_proved_and_any_moved_entry_is_found(ids):
    """Injective and in range is enough; one entry sent to another's id is not."""
    d2t = tuple(goal - number for number, goal in enumerate(ids))
    mask = tuple(number in ids for number in range(100))
    moved = (*d2t[:-1], ids[0] - len(ids) + 1) if len(ids) > 1 else (100,)

    def kind(table):
        return compare(TARGET, None, target_size=100, draft_size=len(ids), mapping=VocabularyMap(d2t=table, t2d=mask)).kind

    assert (kind(d2t), kind(moved)) == (Relation.MAPPED, Relation.MISMATCHED)


@given(st.integers(0, 5), st.sampled_from(["x", "yy"]))
def test_any_renamed_token_is_the_first_difference(number, name):
    """Whatever the id."""
    vocab = {text: at for text, at in bpe()["model"]["vocab"].items() if at != number} | {name: number}

    assert first_difference(TARGET, parse(changed_model(vocab=vocab))).what == f"token {number}"
