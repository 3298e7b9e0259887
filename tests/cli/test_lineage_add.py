"""`specops lineage add` registers a folder by content, `lineage check` tells later what happened to it."""

import json

import pytest

from specops.cli import lineage_add  # noqa: F401  # its commands register themselves


@pytest.fixture
def weights(tmp_path):
    """Return a folder with one safetensors file and a config."""
    folder = tmp_path / "weights"
    folder.mkdir()
    raw = json.dumps({"a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}}).encode()
    (folder / "m.safetensors").write_bytes(len(raw).to_bytes(8, "little") + raw + b"abcd")
    (folder / "config.json").write_text("{}")
    return folder


def test_a_folder_is_registered_and_checked(run, empty, weights):
    """Registered with its tensors, it checks out by name and by digest, quickly and in full."""
    added = json.loads(run("lineage", "add", str(weights), "--kind", "target", "--name", "t", "--json").out)
    assert ([f["path"] for f in added["files"]], added["tensors"]) == (["config.json", "m.safetensors"], 1)
    assert all(f["blake3"] for f in added["files"])

    for name, *full in (("t",), (added["digest"][:12], "--full")):
        assert run("lineage", "check", name, str(weights), *full).code == 0
    assert json.loads(run("lineage", "check", "t", str(weights), "--json").out)["same"] is True
    again = run("lineage", "add", str(weights), "--kind", "target", "--name", "t", "--full")
    assert (again.code, added["digest"] in again.out) == (0, True)


def test_a_difference_is_named_and_ends_with_1(run, empty, weights):
    """A changed file in words and as JSON."""
    run("lineage", "add", str(weights), "--kind", "target", "--name", "t", "--no-tensors", "--files", "config.json")
    (weights / "config.json").write_text("[]")

    said, value = run("lineage", "check", "t", str(weights)), run("lineage", "check", "t", str(weights), "--json")

    assert (said.code, value.code, "config.json" in said.out) == (1, 1, True)
    assert [d["change"] for d in json.loads(value.out)["differences"]] == ["changed"]


def test_unclear_names_and_pickles_are_refused(run, empty, weights):
    """Nothing of that name, two of it, or a file that runs code."""
    assert "0 artifacts are called 'nope'" in run("lineage", "check", "nope", str(weights)).err
    for kind in ("target", "draft"):
        run("lineage", "add", str(weights), "--kind", kind, "--name", "twin")
    assert "2 artifacts are called 'twin'" in run("lineage", "check", "twin", str(weights)).err
    (weights / "x.pt").write_bytes(b"x")
    refused = run("lineage", "add", str(weights), "--kind", "draft", "--name", "p")
    assert (refused.code, "pickle" in refused.err) == (2, True)


def test_a_second_name_is_said_to_be_none(run, empty, weights):
    """The stored name stays, and is shown."""
    run("lineage", "add", str(weights), "--kind", "target", "--name", "t")
    again = run("lineage", "add", str(weights), "--kind", "target", "--name", "u")
    record = json.loads(run("lineage", "add", str(weights), "--kind", "target", "--name", "u", "--json").out)

    assert "already registered as t" in again.out
    assert (record["name"], record["already_registered"]) == ("t", True)


@pytest.mark.parametrize("name", ["", "new\nline"])
def test_a_name_that_nobody_can_type_is_refused(run, empty, weights, name):
    """Exit code 2."""
    done = run("lineage", "add", str(weights), "--kind", "target", "--name", name)
    assert (done.code, "printable" in done.err) == (2, True)


@pytest.mark.parametrize("path", ["../weights/config.json", "x/../config.json", "./config.json", "/etc/passwd"])
def test_a_path_out_of_the_folder_or_with_two_spellings_is_refused(run, empty, weights, path):
    """It would be an identity that no other folder can have."""
    done = run("lineage", "add", str(weights), "--kind", "target", "--name", "t", "--files", path)
    assert (done.code, path in done.err) == (2, True)
