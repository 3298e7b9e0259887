"""What a pair must agree on is refused when it does not, the rest becomes remarks; the pair's digest binds the proof."""

import pytest

from specops.core.pair import Need, Pair, Side, need_of
from specops.core.pair_proof import prove
from specops.core.tokenizer_file import parse_tokenizer
from specops.core.vocabulary import Relation, VocabularyMap
from specops.errors import IncompatibleRelease, InvalidRecord
from tests.tokenizer_files import END, bpe, changed_model

CONFIG = {"vocab_size": 8, "hidden_size": 16, "num_hidden_layers": 2, "max_position_embeddings": 128}
HEAD = {
    "architectures": ["Eagle3Speculator"], "draft_vocab_size": 3, "target_hidden_size": 16, "max_position_embeddings": 128,
    "eagle_aux_hidden_state_layer_ids": [0, 2], "hidden_size": 99,
}  # fmt: skip
MAP = VocabularyMap(d2t=(1, 1, 4))


def side(digest="t", *, raw=None, **changes):
    """Return a model's folder."""
    tokenizer = parse_tokenizer(raw or bpe(), "tokenizer.json")
    return Side(**({"digest": digest, "config": CONFIG, "tokenizer": tokenizer} | changes))


def head(mapping=MAP, tokenizer=None, **config):
    """Return an EAGLE-3 head's folder."""
    return side("h", tokenizer=tokenizer, config=HEAD | config, mapping=mapping)


def draft(**config):
    """Return a draft model's folder."""
    return side("d", config=CONFIG | config)


def remarked(pair):
    """Return the remarks by what they are about."""
    return {remark.what: remark for remark in pair.remarks}


def test_a_pair_that_fits_has_no_remarks():
    """Same tokens, same sizes, same context."""
    pair = prove(side(), draft(), method="draft_model")

    assert (pair.vocabulary.kind, pair.special_tokens_equal, pair.remarks) == (Relation.IDENTICAL, True, ())
    assert pair.components == ("t", "d", pair.target_tokenizer)
    assert not pair.is_stale


@pytest.mark.parametrize(("raw", "entry"), [
    (changed_model(merges=[["a", "b"], ["Ġ", "a"]]), r"merge 1 is \('Ġ', 'ab'\) in the target and \('Ġ', 'a'\)"),
    (bpe(added_tokens=[END, END | {"id": 7, "content": "<tool>"}]), "token 7 is absent in the target and b'<tool>'"),
])  # fmt: skip
def test_one_merge_or_one_added_token_is_refused_and_shown(raw, entry):
    """Same sizes: an engine would start."""
    with pytest.raises(IncompatibleRelease, match=entry):
        prove(side(), side("d", raw=raw), method="draft_model")


def test_a_padded_vocabulary_in_config_json_alone_is_named():
    """Tampering with `vocab_size` changes the proof and says both sizes."""
    fits, padded = (prove(side(), draft(vocab_size=size), method="draft_model") for size in (8, 16))

    assert (padded.vocabulary.kind, padded.vocabulary.real_size) == (Relation.PADDED, 7)
    assert "ids from 7 on must never be proposed" in remarked(padded)["padded vocabulary"].message
    assert fits.digest != padded.digest


def test_a_head_is_proved_by_its_map_and_hidden_states():
    """It reads the target's tokens, so it needs no tokenizer."""
    pair = prove(side(), head(), method="eagle3")

    assert (pair.vocabulary.kind, pair.draft_hidden_size, pair.aux_layers) == (Relation.MAPPED, 16, (0, 2))
    assert (pair.draft_tokenizer, pair.special_tokens_equal, pair.remarks) == (None, None, ())


def test_a_head_without_a_map_has_the_targets_rows():
    """An MTP or EAGLE head shares the target's output layer."""
    folder = head(None, draft_vocab_size=None, vocab_size=8)

    assert prove(side(), folder, method="eagle3").vocabulary.kind is Relation.IDENTICAL


def test_a_map_says_its_size_where_config_json_does_not():
    """The first EAGLE-3 heads had no draft_vocab_size."""
    assert prove(side(), head(draft_vocab_size=None), method="eagle3").vocabulary.draft_size == 3


def test_mapped_padding_is_a_remark():
    """Harmless, but wasted."""
    pair = prove(side(), head(VocabularyMap(d2t=(1, 1, 5))), method="eagle3")

    assert "1 ids beyond" in remarked(pair)["mapped vocabulary"].message


@pytest.mark.parametrize(("folder", "method", "why"), [
    (head(target_hidden_size=32), "eagle3", "width 32, the target's have 16"),
    (head(eagle_aux_hidden_state_layer_ids=[0, 3]), "eagle3", "reads layer 3, the target has 2 layers"),
    (head(eagle_aux_hidden_state_layer_ids=[-1]), "eagle3", "reads layer -1"),
    (head(eagle_aux_hidden_state_layer_ids=[1, 1]), "eagle3", "names an auxiliary layer twice"),
    (head(eagle_aux_hidden_state_layer_ids="all"), "eagle3", "must be whole numbers"),
    (head(eagle_aux_hidden_state_layer_ids=[True]), "eagle3", "must be whole numbers"),
    (head(VocabularyMap(d2t=(1, 1, 40))), "eagle3", "d2t of draft id 2"),
    (head(None), "eagle3", "3 rows without t2d and d2t"),
    (head(None, draft_vocab_size=None), "eagle3", "the draft's config.json states no vocab_size"),
    (head(), "eagle", "is a eagle3 head, the method is eagle"),
    (head(), "draft_model", "cannot run alone; set method eagle3"),
    (side("d", tokenizer=None), "draft_model", "the draft has no tokenizer.json"),
    (draft(), "ngram", "leave the draft out"),
    (None, "eagle3", "needs a draft"),
    (draft(), "telepathy", "'telepathy' is not known"),
])  # fmt: skip
def test_what_does_not_fit_is_refused_with_its_reason(folder, method, why):
    """Each names what it found."""
    with pytest.raises(IncompatibleRelease, match=why):
        prove(side(), folder, method=method)


@pytest.mark.parametrize(("target", "why"), [
    (side(tokenizer=None), "the target has no tokenizer.json"),
    (side(config={"hidden_size": 4}), "the target's config.json states no vocab_size"),
])  # fmt: skip
def test_a_target_that_says_too_little_proves_nothing(target, why):
    """Nothing is guessed."""
    with pytest.raises(IncompatibleRelease, match=why):
        prove(target, None, method="ngram")


def test_a_method_without_weights_needs_only_the_target():
    """Its own rows must still hold its tokens."""
    pair = prove(side(), None, method="ngram")

    assert (pair.draft, pair.vocabulary.kind) == (None, Relation.NONE)
    with pytest.raises(IncompatibleRelease, match="6 rows for 7 tokens"):
        prove(side(config=CONFIG | {"vocab_size": 6}), None, method="suffix")


def test_layers_inside_the_target_need_no_draft():
    """MTP, under its old and its new names."""
    assert {prove(side(), None, method=name).method for name in ("mtp", "deepseek_mtp", "NEXTN")} == {"mtp"}


def test_methods_go_by_vllms_names():
    """SGLang's are understood."""
    assert need_of("STANDALONE") == ("draft_model", Need.MODEL)
    assert need_of("ngram") == ("ngram", Need.NOTHING)


def test_special_tokens_are_compared_by_content():
    """An object and its plain text are the same token; another one is a remark."""
    more = ["x", {"content": "y"}, ["z"]]
    mine = side(tokenizer_config={"eos_token": {"content": "<|end|>"}, "additional_special_tokens": more})
    same = side("d", tokenizer_config={"eos_token": "<|end|>", "additional_special_tokens": ["x", "y"]})
    other = side("d", tokenizer_config={"eos_token": 5, "additional_special_tokens": ["x", "y"]})

    assert prove(mine, same, method="draft_model").special_tokens_equal
    assert "target '<|end|>', draft '5'" in remarked(prove(mine, other, method="draft_model"))["eos_token"].message


def test_other_templates_and_side_rules_are_remarks():
    """They cost acceptance or nothing; they are no mismatch."""
    other = side("d", raw=bpe(post_processor={"type": "TemplateProcessing"}), chat_template="2" * 64)

    pair = prove(side(chat_template="1" * 64), other, method="draft_model")

    assert set(remarked(pair)) == {"post_processor", "chat template"}
    assert (pair.chat_templates_equal, prove(side(), other, method="draft_model").chat_templates_equal) == (False, None)


def test_a_shorter_draft_says_what_people_would_see():
    """Not an error: speed ends where the draft's context ends."""
    remark = remarked(prove(side(), draft(max_position_embeddings=64), method="draft_model"))["context length"]

    assert "past 64 tokens answers come without drafts" in remark.message


@pytest.mark.parametrize("config", [
    {"n_positions": 128}, {"text_config": {"max_position_embeddings": 128}}, {"transformer_layer_config": {"n_positions": 128}},
])  # fmt: skip
def test_a_context_is_found_under_every_name(config):
    """Models nest and name it differently."""
    assert side(config=config).context == 128


@pytest.mark.parametrize("value", [None, "128", 0, True])
def test_a_context_that_is_no_number_is_not_stated(value):
    """A remark asks to look at the server."""
    pair = prove(side(), draft(max_position_embeddings=None, n_positions=value), method="draft_model")

    assert "draft not stated" in remarked(pair)["context length"].message


def test_a_head_that_says_little_is_remarked():
    """Neither its kind nor its width is known, so neither was checked."""
    folder = side("h", tokenizer=None, config={"vocab_size": 8, "max_position_embeddings": 128}, holds_head=True)

    assert set(remarked(prove(side(), folder, method="medusa"))) == {"hidden size", "kind of draft"}


@pytest.mark.parametrize("method", ["eagle", "eagle3", "medusa", "mtp"])
def test_a_model_of_its_own_is_no_head(method):
    """An engine would take its weights for a head's."""
    with pytest.raises(IncompatibleRelease, match=f"method {method} needs a head, but the draft is a model of its own"):
        prove(side(), draft(), method=method)


@pytest.mark.parametrize("changes", [
    {"mapping": MAP}, {"config": CONFIG | {"draft_vocab_size": 3}}, {"holds_head": True}, {"config": HEAD},
])  # fmt: skip
def test_a_head_is_known_by_what_it_holds(changes):
    """Many published configs name none."""
    assert side("h", **changes).is_head


def test_a_target_that_states_no_layers_leaves_them_unchecked():
    """The width is still compared."""
    target = side(config={"vocab_size": 8, "max_position_embeddings": 128})

    assert set(remarked(prove(target, head(eagle_aux_hidden_state_layer_ids=[7]), method="eagle3"))) == {"hidden size"}


def test_an_mlp_speculator_states_its_width_as_emb_dim():
    """Its own key."""
    folder = side("h", tokenizer=None, config={"model_type": "mlp_speculator", "vocab_size": 8, "emb_dim": 15})

    with pytest.raises(IncompatibleRelease, match="width 15"):
        prove(side(), folder, method="mlp_speculator")


def test_another_teacher_makes_the_pair_stale():
    """And its digest another one."""
    fresh, stale = (prove(side(), draft(), method="draft_model", teacher=teacher) for teacher in ("t", "u"))

    assert (fresh.is_stale, stale.is_stale) == (False, True)
    assert "distilled from another model" in remarked(stale)["teacher"].message
    assert fresh.digest != stale.digest


def test_an_added_layer_of_nesting_is_no_crash():
    """A config.json that is no object is refused by its name."""
    with pytest.raises(InvalidRecord, match="must be a JSON object"):
        prove(side(config=[]), None, method="ngram")


@pytest.mark.parametrize("pair", [
    prove(side(), draft(max_position_embeddings=64), method="draft_model"), prove(side(), head(), method="eagle3"),
    prove(side(), None, method="ngram"),
])  # fmt: skip
def test_a_pair_round_trips_through_its_record(pair):
    """Remarks too, though the digest leaves their words out."""
    again = Pair.from_record(pair.to_record())

    assert again == pair
    assert Pair.from_record(pair.to_record() | {"remarks": []}).digest == pair.digest


def test_a_record_of_a_newer_version_is_refused():
    """A field that is not understood may be part of the proof."""
    with pytest.raises(InvalidRecord, match="'colour'"):
        Pair.from_record(prove(side(), None, method="ngram").to_record() | {"colour": 1})


def test_a_mismatch_cannot_call_itself_a_pair():
    """Not even from a record."""
    record = prove(side(), draft(), method="draft_model").to_record()
    entry = {"what": "token 0", "target": "a", "draft": "b"}

    with pytest.raises(InvalidRecord, match="is none: token 0"):
        Pair.from_record(record | {"vocabulary": record["vocabulary"] | {"kind": "mismatched", "entry": entry}})
