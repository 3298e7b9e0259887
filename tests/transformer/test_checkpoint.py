"""What is read from a checkpoint folder, and what is refused, each with one clear line."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from specops.errors import InvalidWeights
from specops.transformer.checkpoint import INDEX, read_config, read_tensors


def change_config(folder, **changes):
    """Change entries of config.json."""
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def shard(folder):
    """Split the weights in two files with an index."""
    tensors = load_file(folder / "model.safetensors")
    names = sorted(tensors)
    parts = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for name, part in parts.items():
        save_file({key: tensors[key] for key in part}, folder / name)
    (folder / "model.safetensors").unlink()
    (folder / INDEX).write_text(json.dumps({"weight_map": {key: name for name, part in parts.items() for key in part}}))
    return tensors


def test_shards_are_joined(write_llama):
    """An index and its files equal the single file."""
    folder = write_llama()
    whole = shard(folder)

    joined = read_tensors(folder)

    assert joined.keys() == whole.keys()
    assert all(torch.equal(joined[name], whole[name]) for name in whole)


def test_a_missing_shard_is_named(write_llama):
    """Half a copy is no checkpoint."""
    folder = write_llama()
    shard(folder)
    (folder / "b.safetensors").unlink()

    with pytest.raises(InvalidWeights, match=r"b.safetensors is missing, truncated"):
        read_tensors(folder)


def test_an_index_cannot_leave_the_folder(write_llama):
    """A path in an index is refused before anything is opened."""
    folder = write_llama()
    (folder / INDEX).write_text(json.dumps({"weight_map": {"x": "../other.safetensors"}}))

    with pytest.raises(InvalidWeights, match="no weight_map of plain file names"):
        read_tensors(folder)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt"])
def test_pickles_are_refused_unread(write_llama, name):
    """The message names the way out."""
    folder = write_llama()
    (folder / "model.safetensors").rename(folder / name)

    with pytest.raises(InvalidWeights, match=rf"pickle \({name}\).*convert them to model.safetensors"):
        read_tensors(folder)


@pytest.mark.parametrize(
    "damage", [lambda raw: raw[:-10], lambda raw: raw[:5], lambda raw: b"\xff" * 16 + raw, lambda raw: b""]
)
def test_a_corrupt_file_is_one_clear_line(write_llama, damage):
    """Truncated data, a truncated or absurd header, and an empty file."""
    path = write_llama() / "model.safetensors"
    path.write_bytes(damage(path.read_bytes()))

    with pytest.raises(InvalidWeights, match="truncated or no safetensors file") as caught:
        read_tensors(path.parent)

    assert "\n" not in str(caught.value)


def test_an_empty_folder_and_a_missing_one_are_named(tmp_path):
    """Both say what was expected."""
    with pytest.raises(InvalidWeights, match=r"no model.safetensors"):
        read_tensors(tmp_path)
    with pytest.raises(InvalidWeights, match="is not a folder"):
        read_tensors(tmp_path / "absent")


@pytest.mark.parametrize("text", [None, "{", "[]", '{"model_type": "llama"}'])
def test_a_broken_config_is_refused(tmp_path, text):
    """Missing, no JSON, no object, no sizes."""
    if text is not None:
        (tmp_path / "config.json").write_text(text)

    with pytest.raises(InvalidWeights, match=r"config.json"):
        read_config(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"model_type": "gemma3"},
        {"use_sliding_window": True, "model_type": "qwen2"},
        {"sliding_window": 4096},
        {"layer_types": ["full_attention", "sliding_attention"]},
        {"hidden_act": "gelu"},
        {"mlp_bias": True},
        {"rope_scaling": {"rope_type": "dynamic", "factor": 8}},
        {"partial_rotary_factor": 0.5},
        {"quantization_config": {"bits": 4}},
    ],
)
def test_what_is_not_computed_is_refused(write_llama, change):
    """Nothing of a config is silently ignored that would change the law."""
    folder = write_llama()
    change_config(folder, **change)

    with pytest.raises(InvalidWeights, match="serve it with vLLM"):
        read_config(folder)


@pytest.mark.parametrize("change", [{"num_key_value_heads": 3}, {"head_dim": 7}, {"vocab_size": -1}])
def test_sizes_must_fit_together(write_llama, change):
    """A config that contradicts itself is not loaded."""
    folder = write_llama()
    change_config(folder, **change)

    with pytest.raises(InvalidWeights, match="do not fit together"):
        read_config(folder)


@pytest.mark.parametrize(("eos", "ids"), [(None, ()), (0, (0,)), ([3, 4], (3, 4))])
def test_eos_may_be_absent_one_or_several(write_llama, eos, ids):
    """All three spellings occur."""
    assert read_config(write_llama(eos=eos)).eos_ids == ids


def test_newer_rope_spelling_is_read(write_llama):
    """Transformers 5 moved theta into rope_parameters."""
    folder = write_llama()
    change_config(folder, rope_theta=None, rope_parameters={"rope_type": "default", "rope_theta": 777.0})

    assert read_config(folder).rope.theta == 777.0


@pytest.mark.parametrize("factor", [None, 0, -1.0, float("inf"), "8"])
def test_a_rotary_variant_without_its_numbers_is_refused(write_llama, factor):
    """Nothing is guessed: a factor that is absent, no number or not positive is named."""
    folder = write_llama()
    change_config(folder, rope_scaling={"type": "linear", "factor": factor})

    with pytest.raises(InvalidWeights, match=r"factor .*, rope_type 'linear' needs a number > 0"):
        read_config(folder)


def test_a_window_that_is_switched_off_is_no_window(write_llama):
    """Qwen 2 writes the size of a window that it does not use."""
    folder = write_llama()
    change_config(folder, model_type="qwen2", sliding_window=4096, use_sliding_window=False)

    assert read_config(folder).qkv_bias
