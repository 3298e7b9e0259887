"""Real small folders, read as the two sides of a pair."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from specops.adapters.hf_folder import Binding
from specops.adapters.model_folder import bring, bring_registered
from specops.adapters.pair_folder import read_map, read_side
from specops.core.pair_proof import prove
from specops.core.release import ArtifactKind, EdgeKind
from specops.core.vocabulary import Relation
from specops.errors import IncompatibleRelease, InvalidInput, InvalidWeights, LineageBroken
from tests import folders


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return a pair and a head, written once; not to be changed."""
    root = tmp_path_factory.mktemp("folders")
    target, draft = folders.write_pair(root)
    return target, draft, folders.write_eagle3(root / "head")


@pytest.fixture
def llama(tmp_path):
    """Return a folder that a test may change."""
    return folders.write_llama(tmp_path / "llama")


def rewrite(path, change):
    """Change a JSON file in place."""
    raw = json.loads(path.read_text(encoding="utf-8"))
    change(raw)
    path.write_text(json.dumps(raw), encoding="utf-8")


def test_a_llama_pair_is_identical(made):
    """The same tokenizer, read from both folders."""
    pair = prove(read_side(made[0], "t"), read_side(made[1], "d"), method="draft_model")

    assert (pair.vocabulary.kind, pair.vocabulary.real_size, pair.chat_templates_equal) == (Relation.IDENTICAL, 300, True)


def test_an_eagle3_head_is_mapped(made):
    """t2d and d2t come from its weights."""
    pair = prove(read_side(made[0], "t"), read_side(made[2], "h"), method="eagle3")

    assert (pair.vocabulary.kind, pair.vocabulary.draft_size, pair.aux_layers) == (Relation.MAPPED, 40, (0, 1))


def test_one_merge_is_found_in_a_real_file(made, llama):
    """Two equal merges swapped: nothing else differs."""
    def swap(raw):
        raw["model"]["merges"][3:5] = reversed(raw["model"]["merges"][3:5])

    rewrite(llama / "tokenizer.json", swap)

    with pytest.raises(IncompatibleRelease, match="merge 3 is"):
        prove(read_side(made[0], "t"), read_side(llama, "d"), method="draft_model")


def test_one_added_token_is_found_in_a_real_file(made, tmp_path):
    """Written by the tokenizers library."""
    other = folders.write_llama(tmp_path / "other", added=("<|end|>", "<|tool|>"))

    with pytest.raises(IncompatibleRelease, match="in the draft"):
        prove(read_side(made[0], "t"), read_side(other, "d"), method="draft_model")


def test_a_vocab_size_that_the_weights_do_not_have_is_refused(made, llama):
    """Tampering with config.json alone: the embedding's rows are in the weights."""
    rewrite(llama / "config.json", lambda raw: raw.update(vocab_size=384))

    with pytest.raises(InvalidWeights, match=r"vocab_size 384, model.embed_tokens.weight in model.safetensors has 300 rows"):
        read_side(llama, "d")


def test_a_head_has_as_many_output_rows_as_its_own_vocabulary(tmp_path):
    """Its lm_head is of draft_vocab_size; packed weights say nothing about rows."""
    head = folders.write_eagle3(tmp_path / "head")
    weights = load_file(str(head / "model.safetensors"))
    rows = {40: np.float32, 41: np.uint8}
    for count, dtype in rows.items():
        save_file(weights | {"lm_head.weight": np.zeros((count, 16), dtype)}, str(head / "model.safetensors"))
        assert read_side(head, "h").is_head
    save_file(weights | {"lm_head.weight": np.zeros((41, 16), np.float32)}, str(head / "model.safetensors"))

    with pytest.raises(InvalidWeights, match=r"draft_vocab_size 40, lm_head.weight in model.safetensors has 41 rows"):
        read_side(head, "h")


def test_a_head_without_a_name_is_known_by_its_tensors(llama, made):
    """Published EAGLE heads call themselves Llama in config.json."""
    assert not read_side(llama, "d").holds_head
    save_file({"fc.weight": np.zeros((16, 32), np.float32)}, str(llama / "model.safetensors"))

    assert read_side(llama, "d").holds_head


def test_a_padded_vocab_size_is_named(made, llama):
    """The tokenizer says what is real."""
    rewrite(llama / "config.json", lambda raw: raw.update(vocab_size=384))
    save_file({"model.embed_tokens.weight": np.zeros((384, 16), np.float32)}, str(llama / "model.safetensors"))

    pair = prove(read_side(made[0], "t"), read_side(llama, "d"), method="draft_model")

    assert "the target has 300 rows, the draft 384" in pair.vocabulary.message


def test_changed_generation_defaults_alone_are_seen(llama):
    """The side's digest of them moves, and nothing else."""
    before = read_side(llama, "t")
    rewrite(llama / "generation_config.json", lambda raw: raw.update(temperature=0.1))
    after = read_side(llama, "t")

    assert before.generation_config != after.generation_config
    assert (before.tokenizer, before.config, before.chat_template) == (after.tokenizer, after.config, after.chat_template)


def test_a_template_is_its_text_wherever_it_stands(llama):
    """In tokenizer_config.json, in a JSON file, or in a file of its own."""
    inside = read_side(llama, "t").chat_template
    (llama / "chat_template.jinja").write_text("{{ messages }}", encoding="utf-8")
    alone = read_side(llama, "t").chat_template
    (llama / "chat_template.jinja").unlink()
    folders.write_json(llama / "chat_template.json", {"chat_template": "{{ messages }}"})

    assert inside == alone == read_side(llama, "t").chat_template


def test_several_templates_are_digested_together(llama):
    """A list of named templates is one value."""
    rewrite(llama / "tokenizer_config.json", lambda raw: raw.update(chat_template=[{"name": "x", "template": "y"}]))

    assert len(read_side(llama, "t").chat_template) == 64


def test_what_is_not_there_is_none(llama):
    """A head has config.json and weights, not more."""
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        (llama / name).unlink()
    side = read_side(llama, "t")

    assert (side.tokenizer, side.chat_template, side.generation_config, side.mapping) == (None, None, None, None)


@pytest.mark.parametrize(("file", "content", "why"), [
    ("tokenizer.json", b"[]", "must be a JSON object"),
    ("tokenizer_config.json", b"[]", "must hold an object"),
    ("generation_config.json", b'{"a": NaN}', "what canonical JSON cannot"),
    ("chat_template.jinja", b"\xff", "save it as UTF-8"),
    ("chat_template.jinja", b"x" * ((1 << 20) + 1), "no chat template"),
    ("config.json", b"{", "not usable JSON"),
])  # fmt: skip
def test_a_broken_file_is_refused_by_name(llama, file, content, why):
    """Each is read with limits."""
    (llama / file).write_bytes(content)

    with pytest.raises(InvalidInput, match=why):
        read_side(llama, "t")


@pytest.mark.parametrize("table", [np.zeros((2, 2), dtype=np.int64), np.zeros(3, dtype=np.float32)])
def test_a_map_that_is_no_list_of_whole_numbers_is_refused(tmp_path, table):
    """Its shape and type are believed only after a look."""
    save_file({"d2t": table}, str(tmp_path / "model.safetensors"))

    with pytest.raises(InvalidWeights, match="expected one row of whole numbers"):
        read_map(tmp_path)


def test_a_map_without_its_mask_is_read(tmp_path):
    """Some heads keep d2t alone, in 32 bits."""
    save_file({"draft.d2t": np.array([1, -1], dtype=np.int32)}, str(tmp_path / "model.safetensors"))

    mapping = read_map(tmp_path)

    assert (mapping.d2t, mapping.t2d) == ((1, -1), None)


def test_a_weight_file_that_cannot_be_opened_is_refused(tmp_path):
    """A folder of that name, say."""
    (tmp_path / "model.safetensors").mkdir()

    with pytest.raises(InvalidWeights, match="cannot read"):
        read_map(tmp_path)


def test_a_head_is_bound_to_the_target_it_was_proved_with(made):
    """Its hidden states and its map lead there."""
    model = bring(made[2], name="h", kind=ArtifactKind.DRAFT, binding=Binding(target="a" * 64))

    assert {e.kind for e in model.imported.edges} == {EdgeKind.CONDITIONED_ON, EdgeKind.MAPS_VOCAB_TO}
    assert model.side.digest == model.weights.digest


def test_a_registered_folder_keeps_its_identity(llama):
    """Registered with facts of its own, read again later."""
    model = bring(llama, name="m", kind=ArtifactKind.TARGET)
    registered = type(model.weights)(
        kind=ArtifactKind.TARGET, name="m", files=model.weights.files, facts={"licence": "x"}, location=str(llama)
    )

    again = bring_registered(registered)

    assert again.weights == registered
    assert {e.source for e in again.imported.edges if e.kind is EdgeKind.TOKENIZED_WITH} == {registered.digest}


def test_a_registered_folder_that_changed_is_refused_by_the_file(llama):
    """One byte of config.json is enough, and so is a file that is gone."""
    registered = bring(llama, name="m", kind=ArtifactKind.TARGET).weights
    rewrite(llama / "config.json", lambda raw: raw.update(vocab_size=384))

    with pytest.raises(LineageBroken, match=r"config.json of m is not what was registered"):
        bring_registered(registered)
    (llama / "model.safetensors").rename(llama / "other.safetensors")
    with pytest.raises(LineageBroken, match="registered"):
        bring_registered(registered)


def test_a_file_that_is_gone_is_named(llama):
    """The folder opens, one registered shard is missing."""
    registered = bring(llama, name="m", kind=ArtifactKind.TARGET).weights
    (llama / "extra.py").write_text("x = 1\n", encoding="utf-8")
    more = bring(llama, name="m", kind=ArtifactKind.TARGET).weights
    (llama / "extra.py").unlink()

    assert bring_registered(registered).weights == registered
    with pytest.raises(LineageBroken, match=r"extra.py of m is gone"):
        bring_registered(more)


def test_a_model_registered_elsewhere_asks_for_its_folder(llama):
    """The store knows where it was seen, not where it is."""
    registered = bring(llama, name="m", kind=ArtifactKind.TARGET).weights
    moved = llama.rename(llama.parent / "moved")

    with pytest.raises(InvalidInput, match="give the folder itself"):
        bring_registered(registered)
    assert bring(moved, name="m", kind=ArtifactKind.TARGET, registered=registered).weights == registered
