"""Hashing weights, refusing what cannot be read safely, and telling what changed."""

import hashlib
import json
import pickle

import pytest

from specops.adapters.weights import CHUNK_BYTES, hash_artifact, read_header, tensor_digests, verify_artifact
from specops.core.release import ArtifactKind
from specops.errors import InvalidWeights, LineageBroken

A = {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}
B = {"dtype": "F16", "shape": [4], "data_offsets": [16, 24]}


def safetensors(header, data=bytes(range(24)), *, length=None):
    """Return the bytes of a safetensors file, sound or not."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(raw) if length is None else length).to_bytes(8, "little") + raw + data


@pytest.fixture
def folder(tmp_path):
    """Return a folder with a model: weights, config, tokenizer."""
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(safetensors({"a": A, "b": B, "__metadata__": {"format": "pt"}}))
    (folder / "config.json").write_text("{}")
    (folder / "sub" / "tokenizer.json").write_text("{}")
    (folder / ".hidden").write_text("x")
    return folder


def hashed(folder, **options):
    """Return the folder as an artifact."""
    return hash_artifact(ArtifactKind.TARGET, "tiny", folder, **options)


def test_a_folder_becomes_an_artifact_with_every_file(folder):
    """Sorted paths, sizes and SHA-256; hidden files left out."""
    artifact = hashed(folder, facts={"seed": 1})
    assert [f.path for f in artifact.files] == ["config.json", "model.safetensors", "sub/tokenizer.json"]
    assert artifact.files[0].sha256 == hashlib.sha256(b"{}").hexdigest()
    assert (artifact.facts, artifact.location) == ({"seed": 1}, str(folder))
    verify_artifact(artifact, folder)


def test_some_files_can_be_taken_alone(folder):
    """A tokenizer in a model's folder is an artifact of its own, even beside a broken index."""
    (folder / "model.safetensors.index.json").write_text("{}")
    artifact = hash_artifact(ArtifactKind.TOKENIZER, "tok", folder, files=["sub/tokenizer.json"])
    assert [f.path for f in artifact.files] == ["sub/tokenizer.json"]
    verify_artifact(artifact, folder)


def test_progress_counts_every_byte(folder):
    """The last call says all of all; files larger than a chunk report in between."""
    (folder / "big.txt").write_bytes(bytes(2 * CHUNK_BYTES + 1))
    calls = []
    artifact = hashed(folder, progress=lambda done, total: calls.append((done, total)))
    total = sum(f.size for f in artifact.files)
    assert calls[-1] == (total, total)
    assert calls == sorted(calls)
    assert len(calls) == 6
    verify_artifact(artifact, folder, progress=lambda done, total: calls.append((done, total)))
    assert calls[-1] == (total, total)


def test_equal_tensors_in_other_files_are_recognised(folder, tmp_path):
    """Other metadata gives another file digest and the same tensor digests."""
    other = tmp_path / "other.safetensors"
    other.write_bytes(safetensors({"__metadata__": {"x": "y"}, "b": B, "a": A}))
    digests = hashed(folder, tensors=True).facts["tensor_sha256"]
    assert tensor_digests(other) == digests
    assert digests["a"] == hashlib.sha256(b"F32[2, 2]" + bytes(range(16))).hexdigest()


@pytest.mark.parametrize(("header", "message"), [
    ({"a": A | {"data_offsets": [0, 17]}, "b": B}, "does not fill"),
    ({"a": A, "b": B | {"data_offsets": [12, 20]}}, "overlaps"),
    ({"a": A, "b": B | {"data_offsets": [17, 25]}}, "unused bytes"),
    ({"a": A}, "end at byte"),
    ({"a": A, "b": B, "c": {"dtype": "F32", "shape": [2], "data_offsets": [24, 32]}}, "end at byte"),
    ({"a": A | {"shape": [-2, -2]}, "b": B}, "whole numbers"),
    ({"a": A | {"shape": [True, 4]}, "b": B}, "whole numbers"),
    ({"a": A | {"dtype": "X9"}, "b": B}, "X9"),
    ({"a": {"dtype": "F32"}}, "shape"),
    ({"a": []}, "corrupt"),
    (b"[1]", "corrupt"),
    (b'{"a"', "corrupt"),
    (b"\xff\xff", "corrupt"),
    (b'{"a":{},"a":{}}', "twice"),
    (b"[" * 100_000, "corrupt"),
])  # fmt: skip
def test_a_corrupt_safetensors_header_is_refused(tmp_path, header, message):
    """No offset is believed before it is checked."""
    file = tmp_path / "x.safetensors"
    file.write_bytes(safetensors(header))
    with pytest.raises(InvalidWeights, match=message):
        read_header(file)


@pytest.mark.parametrize(
    "raw",
    [b"", b"abc", safetensors({"a": A}, length=2**63), safetensors({"a": A}, length=0), safetensors({"a": A}, length=10**6)],
)
def test_a_header_longer_than_the_file_is_refused(folder, raw):
    """A cut download or a random file gives one line and reads nothing more."""
    (folder / "model.safetensors").write_bytes(raw)
    with pytest.raises(InvalidWeights, match="no safetensors file: its header claims"):
        hashed(folder)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "x.pt", "x.pth", "x.ckpt", "x.pkl", "harmless.dat"])
def test_a_pickle_is_refused_whatever_its_name(folder, name):
    """Loading a pickle runs code, so it is never registered."""
    (folder / name).write_bytes(pickle.dumps({"w": 1}))
    with pytest.raises(InvalidWeights, match=r"pickle checkpoint.*convert it to safetensors"):
        hashed(folder)


def test_a_link_out_of_the_folder_is_refused(folder, tmp_path):
    """Of a file, of a folder, or by dots: what is hashed must be what stays."""
    (tmp_path / "secret.json").write_text("x")
    (folder / "inside.json").symlink_to("config.json")
    assert len(hashed(folder).files) == 4

    (folder / "link.json").symlink_to(tmp_path / "secret.json")
    with pytest.raises(InvalidWeights, match="points out of"):
        hashed(folder)
    (folder / "link.json").unlink()
    (folder / "linked").symlink_to(tmp_path)
    with pytest.raises(InvalidWeights, match="linked points out of"):
        hashed(folder)
    with pytest.raises(InvalidWeights, match="points out of"):
        hashed(folder, files=["../secret.json"])


def test_nothing_to_register_is_refused(folder, tmp_path):
    """Missing folder, empty folder, missing file."""
    (tmp_path / "empty").mkdir()
    for bad, options in ((tmp_path / "none", {}), (tmp_path / "empty", {}), (folder, {"files": ["nope.json"]})):
        with pytest.raises(InvalidWeights):
            hashed(bad, **options)


def test_a_changed_missing_or_added_file_is_named(folder):
    """Lineage says which file is not what was registered."""
    artifact = hashed(folder)
    (folder / "more.txt").write_text("a readme may come later")
    verify_artifact(artifact, folder)

    (folder / "extra.safetensors").write_bytes(safetensors({"a": A, "b": B}))
    with pytest.raises(LineageBroken, match=r"extra\.safetensors .* is no part of tiny"):
        verify_artifact(artifact, folder)
    (folder / "config.json").write_text("[]")
    with pytest.raises(LineageBroken, match=r"config\.json of tiny is not what was registered"):
        verify_artifact(artifact, folder)
    (folder / "config.json").unlink()
    with pytest.raises(LineageBroken, match=r"config\.json of tiny is missing"):
        verify_artifact(artifact, folder)


@pytest.mark.parametrize(("text", "message"), [
    ('{"weight_map": {"a": "model.safetensors", "b": "model.safetensors"}}', None),
    ('{"weight_map": {"c": "model.safetensors"}}', "places 'c' in model.safetensors"),
    ('{"weight_map": {"a": "shard-2.safetensors"}}', "places 'a' in shard-2.safetensors"),
    ("{}", "not an index"),
    ("[", "not an index"),
])  # fmt: skip
def test_an_index_of_shards_must_fit_the_shards(folder, text, message):
    """Each tensor is where the index says."""
    (folder / "model.safetensors.index.json").write_text(text)
    if message is None:
        assert len(hashed(folder).files) == 4
        return
    with pytest.raises(InvalidWeights, match=message):
        hashed(folder)
