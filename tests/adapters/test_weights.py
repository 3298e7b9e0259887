"""Hashing weights, refusing what cannot be read safely, and telling what changed."""

import hashlib
import json
import os
import pickle
import socket
import zipfile

import pytest
from blake3 import blake3

from specops.adapters import weights
from specops.adapters.recheck import Change
from specops.adapters.weights import (
    CHUNK_BYTES,
    compare_artifact,
    hash_artifact,
    read_header,
    same_tensors,
    verify_artifact,
)
from specops.core.release import ArtifactKind
from specops.errors import InvalidWeights, LineageBroken
from tests.gguf_files import gguf, tensor

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
    """Other metadata gives another file digest and the same tensor digests; without tensors nothing is claimed."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "x.safetensors").write_bytes(safetensors({"__metadata__": {"x": "y"}, "b": B, "a": A}))

    one, two = hashed(folder, tensors=True), hashed(other, tensors=True)

    assert {t.name: t.digest for t in one.tensors}["a"] == "b3:" + blake3(b"F32[2, 2]" + bytes(range(16))).hexdigest()
    assert same_tensors(one, two)
    assert one.digest != two.digest
    assert not same_tensors(hashed(folder), hashed(other))


def test_files_are_hashed_side_by_side_in_a_fixed_order(folder, monkeypatch):
    """With more processors several files are read at once; the artifact and the progress are the same."""
    for index in range(20):
        (folder / f"part-{index:02}.txt").write_bytes(bytes([index]) * (CHUNK_BYTES + index))
    alone, calls = hashed(folder, tensors=True), []
    monkeypatch.setattr(weights.os, "sched_getaffinity", lambda _: set(range(8)))

    together = hashed(folder, tensors=True, progress=lambda done, total: calls.append((done, total)))

    assert together == alone
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)
    assert calls[-1] == (alone.size, alone.size)


@pytest.mark.parametrize("raw", [b"", b"abc", safetensors({"a": A}, length=2**63), safetensors({"a": A}), safetensors(b"[1]")])
def test_a_file_that_is_not_sound_is_refused(folder, raw):
    """A cut download or a random file gives one line that names it."""
    (folder / "model.safetensors").write_bytes(raw)
    with pytest.raises(InvalidWeights, match=r"model\.safetensors is not a sound safetensors file"):
        hashed(folder)


def test_gguf_tensors_are_digested_too(tmp_path):
    """The header is checked, and each tensor's bytes have a digest over type, shape and bytes."""
    (tmp_path / "m.gguf").write_bytes(gguf(tensors=(tensor("a", (4, 2), 0, 0),), data=32))

    (found,) = hashed(tmp_path, tensors=True).tensors

    assert (found.file, found.name, found.dtype) == ("m.gguf", "a", "F32")
    assert found.digest == "b3:" + blake3(b"F32[4, 2]" + bytes(32)).hexdigest()
    assert [t.name for t in read_header(tmp_path / "m.gguf")] == ["a"]


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


def test_a_zip_of_torch_is_a_pickle_too(folder):
    """torch.save writes a zip with a pickle in it; other zips are just files."""
    for name, inside in (("notes.dat", "notes.txt"), ("harmless.dat", "archive/data.pkl")):
        with zipfile.ZipFile(folder / name, "w") as archive:
            archive.writestr(inside, "x")
        if inside == "notes.txt":
            assert len(hashed(folder).files) == 4
    with pytest.raises(InvalidWeights, match=r"harmless\.dat is a pickle checkpoint"):
        hashed(folder)


def test_what_is_no_plain_file_is_refused(folder):
    """A pipe would block for ever, a socket and a dangling link hold nothing."""
    os.mkfifo(folder / "pipe")
    with pytest.raises(InvalidWeights, match=r"pipe in .* is a named pipe"):
        hashed(folder)
    (folder / "pipe").unlink()
    (folder / "dangling").symlink_to("nowhere")
    with pytest.raises(InvalidWeights, match="dangling is not a file"):
        hashed(folder)
    (folder / "dangling").unlink()
    (folder / "to-sub").symlink_to("sub")
    with pytest.raises(InvalidWeights, match="a linked folder has to be copied"):
        hashed(folder)


def test_strange_names_are_refused(folder):
    """Not Unicode, control characters, weights that differ only in case."""
    strange = os.fsdecode(b"bad-\xff.json")
    (folder / strange).write_text("{}")
    with pytest.raises(InvalidWeights, match="no printable Unicode name"):
        hashed(folder)
    (folder / strange).unlink()
    (folder / "Model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    with pytest.raises(InvalidWeights, match="differ only in case"):
        hashed(folder)


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
    ('{"weight_map": {"a": "model.safetensors", "b": "model.safetensors", "c": "model.safetensors"}}', "places 'c' in model"),
    ('{"weight_map": {"a": "model.safetensors"}}', "has 'b', which .* does not name"),
    ('{"weight_map": {"a": "shard-2.safetensors"}}', "names the shard 'shard-2.safetensors', which is missing"),
    ('{"weight_map": {"a": "model.safetensors", "a": "model.safetensors"}}', "twice"),
    ('{"weight_map": {"a": "../model.safetensors"}}', "must name a file beside it"),
    ('{"weight_map": {"a": 7}}', "must name a file beside it"),
    ('{"weight_map": {}}', "must name a file beside it"),
    ('{"weight_map": []}', "must name a file|not an index"),
    ("{}", "not an index"),
    ("[", "not an index"),
    ("[" * 100_000, "not an index"),
])  # fmt: skip
def test_an_index_of_shards_must_fit_the_shards(folder, text, message):
    """Each tensor is where the index says, and the index names each tensor."""
    (folder / "model.safetensors.index.json").write_text(text)
    if message is None:
        assert len(hashed(folder).files) == 4
        return
    with pytest.raises(InvalidWeights, match=message):
        hashed(folder)


def test_an_index_beyond_reason_is_not_read(folder):
    """Its size alone refuses it."""
    with (folder / "model.safetensors.index.json").open("wb") as file:
        file.truncate((64 << 20) + 1)
    with pytest.raises(InvalidWeights, match="at most 67108864 expected"):
        hashed(folder)


@pytest.fixture
def shards(tmp_path):
    """Return a folder with two shards of the same size."""
    folder = tmp_path / "shards"
    folder.mkdir()
    for index in (1, 2):
        (folder / f"m-{index}.safetensors").write_bytes(safetensors({f"a{index}": A, f"b{index}": B}, bytes([index]) * 24))
    return folder


def swap(folder):
    """Exchange the shards' contents."""
    one, two = (folder / "m-1.safetensors"), (folder / "m-2.safetensors")
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)


def reheader(folder):
    """Write the first shard again with other metadata."""
    (folder / "m-1.safetensors").write_bytes(safetensors({"__metadata__": {"x": "y"}, "a1": A, "b1": B}, b"\1" * 24))


def flip(folder):
    """Change one byte of the first shard's data."""
    raw = (folder / "m-1.safetensors").read_bytes()
    (folder / "m-1.safetensors").write_bytes(raw[:-1] + b"\7")


def ruin(folder):
    """Cut the first shard."""
    (folder / "m-1.safetensors").write_bytes((folder / "m-1.safetensors").read_bytes()[:-1])


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize(("tamper", "changes", "message"), [
    (swap, {"m-1.safetensors": "swapped", "m-2.safetensors": "swapped"}, "m-1.* holds what was registered as m-2"),
    (lambda f: (f / "m-2.safetensors").unlink(), {"m-2.safetensors": "missing"}, r"m-2\.safetensors of tiny is missing"),
    (lambda f: (f / "m-3.safetensors").write_bytes(b"x"), {"m-3.safetensors": "added"}, r"m-3.* is no part of tiny"),
    (lambda f: (f / "m-2.safetensors").rename(f / "n.safetensors"), {"m-2.safetensors": "moved"}, "renamed to n.safetensors"),
    (reheader, {"m-1.safetensors": "header"}, "only its header changed"),
    (flip, {"m-1.safetensors": "changed"}, "is not what was registered: sha256"),
    (ruin, {"m-1.safetensors": "changed"}, "is not what was registered: sha256"),
])  # fmt: skip
def test_tampering_is_found_and_named(shards, tamper, changes, message, full):
    """Swapped, removed, added, renamed, header only, one byte, cut: each says what happened to which file."""
    artifact = hashed(shards, tensors=True)
    assert compare_artifact(artifact, shards, full=full) == ()
    tamper(shards)

    found = compare_artifact(artifact, shards, full=full)

    assert {d.path: d.change for d in found} == {path: Change(change) for path, change in changes.items()}
    with pytest.raises(LineageBroken, match=message):
        verify_artifact(artifact, shards, full=full)


def test_many_differences_are_counted(folder):
    """An error names three files and says how many more there are."""
    for index in range(4):
        (folder / f"f{index}.txt").write_text("x")
    artifact = hashed(folder)
    for path in ("config.json", "f0.txt", "f1.txt", "f2.txt"):
        (folder / path).unlink()

    with pytest.raises(LineageBroken, match=r"config\.json .*f1\.txt .* \(and 1 more\)$"):
        verify_artifact(artifact, folder)
    assert len(compare_artifact(artifact, folder / "nowhere")) == len(artifact.files)


def test_a_socket_is_refused(folder, monkeypatch):
    """A server's socket in the folder is no content."""
    monkeypatch.chdir(folder)  # a socket's path is limited to some 100 bytes
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("s")
        with pytest.raises(InvalidWeights, match="is a socket"):
            hashed(folder)
