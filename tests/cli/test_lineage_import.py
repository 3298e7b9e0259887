"""`specops lineage import`: other models are named by what is registered, and names that stay are said."""

import json

import pytest

from tests import folders


@pytest.fixture
def made(tmp_path):
    """Return the folders of a target and a draft."""
    return folders.write_pair(tmp_path / "models")


@pytest.fixture
def target(run, empty, made):
    """Return the digest of the registered target."""
    return json.loads(run("lineage", "import", "hf", made[0], "--name", "T", "--json").out)["artifacts"][0]["digest"]


def _teachers(done):
    return [e["target"] for e in json.loads(done.out)["edges"] if e["kind"] == "distilled_from"]


def test_a_teacher_is_named_by_name_or_digits(run, made, target):
    """The edge leads to the whole digest, so what depends on it is found."""
    for key in ("T", target[:8], target):
        done = run("lineage", "import", "hf", made[1], "--name", "D", "--kind", "draft", "--teacher", key, "--json")
        assert _teachers(done) == [target]
    assert "D" in run("lineage", "impact", "T").out


@pytest.mark.parametrize("option", ["--teacher", "--base", "--target"])
@pytest.mark.parametrize(("key", "why"), [
    ("zzz", "no model is registered as 'zzz'"), ("deadbeefdeadbeef", "no model is registered as"),
    ("T tokenizer", "expected a target or draft"), ("", "no model is registered as ''"),
])  # fmt: skip
def test_another_model_that_nobody_registered_is_refused(run, made, target, option, key, why):
    """Exit code 2, nothing registered, in a dry run too."""
    for dry in ((), ("--dry-run",)):
        done = run("lineage", "import", "hf", made[1], "--name", "D", option, key, *dry)
        assert (done.code, why in done.err) == (2, True)
    assert run("lineage", "show", "D").code == 2


def test_two_models_of_a_name_need_a_digest(run, made, target):
    """The message gives both."""
    run("lineage", "import", "hf", made[1], "--name", "T", "--kind", "draft")
    done = run("lineage", "import", "hf", made[1], "--name", "D", "--teacher", "T")

    assert (done.code, "T is 2 models" in done.err, target[:16] in done.err) == (2, True, True)


def test_what_is_registered_keeps_its_name(run, made, target):
    """In words and as JSON."""
    said = run("lineage", "import", "hf", made[0], "--name", "U").out
    record = json.loads(run("lineage", "import", "hf", made[0], "--name", "U", "--json").out)

    assert "already registered" in said.splitlines()[0]
    assert f"note: target {target[:12]} was already registered as T" in said
    assert {(a["already_registered"], a["name"][:1]) for a in record["artifacts"]} == {(True, "T")}


def test_a_long_name_leaves_room_for_its_parts(run, empty, made):
    """Tokenizer and defaults are called after the model."""
    assert run("lineage", "import", "hf", made[0], "--name", "n" * 200).code == 0
