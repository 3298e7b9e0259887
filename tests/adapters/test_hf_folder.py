"""Real small folders, written by the libraries of the field, taken apart into artifacts and edges."""

import shutil

import pytest

from specops.adapters.hf_folder import Binding, import_folder
from specops.core.release import ArtifactKind, EdgeKind
from specops.errors import InvalidInput, InvalidWeights
from tests import folders


def _one(imported, kind):
    return next(a for a in imported.artifacts if a.kind is kind)


def _edges(imported):
    return {(e.source, e.kind, e.target) for e in imported.edges}


def test_a_llama_pair_shares_one_tokenizer_and_its_embeddings(tmp_path):
    """Two folders, one tokenizer artifact; equal tensors have equal digests whatever file they lie in."""
    target, draft = folders.write_pair(tmp_path)

    big = import_folder(target, name="target")
    small = import_folder(draft, name="draft", kind=ArtifactKind.DRAFT, binding=Binding(teacher=big.artifacts[0].digest))

    assert _one(big, ArtifactKind.TOKENIZER).digest == _one(small, ArtifactKind.TOKENIZER).digest
    assert (small.artifacts[0].digest, EdgeKind.DISTILLED_FROM, big.artifacts[0].digest) in _edges(small)
    shared = {t.digest for t in big.artifacts[0].tensors} & {t.digest for t in small.artifacts[0].tensors}
    assert len(shared) == 1
    assert big.artifacts[0].properties["num_hidden_layers"] == folders.LAYERS


def test_an_eagle3_head_is_conditioned_on_its_target_only_when_a_person_says_so(tmp_path):
    """The verifier's path is a claim with a note; bound, it gives both edges of a head with a vocabulary map."""
    folder = folders.write_eagle3(tmp_path / "head")

    free = import_folder(folder, name="head")
    bound = import_folder(folder, name="head", binding=Binding(target="a" * 64))

    head = free.artifacts[0]
    assert head.kind is ArtifactKind.DRAFT
    assert (head.properties["role"], head.properties["made_for_k"]) == ("eagle3", 3)
    assert head.claims["verifier"] == "private/builder/llama"
    assert not free.edges
    assert "stays a claim" in free.notes[0]
    assert {e.kind for e in bound.edges} == {EdgeKind.CONDITIONED_ON, EdgeKind.MAPS_VOCAB_TO}
    assert bound.artifacts[0].digest == head.digest


def test_a_quantised_target_came_from_its_base_when_bound(tmp_path):
    """compressed-tensors in config.json decides that the edge is quantized_from."""
    found = import_folder(folders.write_quantised(tmp_path / "q"), name="q", binding=Binding(base="b" * 64))

    assert EdgeKind.QUANTIZED_FROM in {e.kind for e in found.edges}
    assert found.artifacts[0].properties["quantization_config"]["quant_method"] == "compressed-tensors"
    assert found.artifacts[0].claims["base_model"] == ["someone/base"]


def test_a_sharded_model_is_one_artifact_with_all_its_tensors(tmp_path):
    """Index and shards belong together; a shard that is gone is named."""
    folder = folders.write_sharded(tmp_path / "s")
    found = import_folder(folder, name="s")

    assert {t.name for t in found.artifacts[0].tensors} == set(folders.llama_tensors(1))
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(InvalidWeights, match="model-00002-of-00002"):
        import_folder(folder, name="s")


def test_a_fine_tuned_model_without_binding_keeps_its_base_as_a_claim(tmp_path):
    """The card's base_model never becomes an edge by itself; bound, it is fine_tuned_from."""
    folder = folders.write_llama(tmp_path / "m")

    free, bound = import_folder(folder, name="m"), import_folder(folder, name="m", binding=Binding(base="c" * 64))

    assert free.artifacts[0].claims["base_model"] == "someone/base"
    assert EdgeKind.FINE_TUNED_FROM not in {e.kind for e in free.edges}
    assert EdgeKind.FINE_TUNED_FROM in {e.kind for e in bound.edges}


def test_only_generation_config_differs(tmp_path):
    """Sampling defaults are an artifact of their own: the weights stay the same artifact."""
    one = folders.write_llama(tmp_path / "one")
    two = tmp_path / "two"
    shutil.copytree(one, two)
    folders.write_json(two / "generation_config.json", {"temperature": 1.0})

    first, second = import_folder(one, name="m"), import_folder(two, name="m")

    changed = [a.kind for a, b in zip(first.artifacts, second.artifacts, strict=True) if a.digest != b.digest]
    assert changed == [ArtifactKind.GENERATION_CONFIG]


def test_code_in_the_folder_belongs_to_the_weights_and_is_pointed_out(tmp_path):
    """trust_remote_code runs it, so a changed line is another artifact."""
    folder = folders.write_llama(tmp_path / "m")
    before = import_folder(folder, name="m").artifacts[0]
    (folder / "modeling.py").write_text("print('hello')")

    found = import_folder(folder, name="m")

    assert found.artifacts[0].digest != before.digest
    assert any("code that a loader may run: modeling.py" in note for note in found.notes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1]", "must be a JSON object"),
        ("{", "not usable JSON"),
        ('{"a": 1, "a": 2}', "a key stands there twice"),
        ("[" * 100_000, "not usable JSON"),
    ],
)
def test_a_hostile_config_is_a_clear_error(tmp_path, text, message):
    """Nothing is hashed, nothing crashes."""
    folder = folders.write_llama(tmp_path / "m")
    (folder / "config.json").write_text(text)

    with pytest.raises(InvalidInput, match=message):
        import_folder(folder, name="m")


def test_a_card_of_aliases_claims_nothing(tmp_path):
    """Ten lines of YAML aliases can stand for gigabytes; they are not expanded."""
    folder = folders.write_llama(tmp_path / "m")
    lines = ["a0: &a0 [x, x]"] + [f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, 40)]
    (folder / "README.md").write_text("---\n" + "\n".join(lines) + "\n---\n")

    assert "base_model" not in import_folder(folder, name="m").artifacts[0].claims


def test_a_folder_without_card_or_weights(tmp_path):
    """No card is no claim; no weights is an error that says what is there."""
    folder = folders.write_llama(tmp_path / "m")
    (folder / "README.md").unlink()
    assert set(import_folder(folder, name="m").artifacts[0].claims) == {"name_or_path"}
    (folder / "model.safetensors").unlink()

    with pytest.raises(InvalidWeights, match="has no safetensors file"):
        import_folder(folder, name="m")
    with pytest.raises(InvalidInput, match="cannot read"):
        import_folder(tmp_path / "absent", name="m")
