"""`specops release` on real small folders."""

import json

import pytest

from tests import folders


@pytest.fixture
def made(tmp_path):
    """Return target, draft and head."""
    target, draft = folders.write_pair(tmp_path / "models")
    return target, draft, folders.write_eagle3(tmp_path / "models" / "head")


def test_a_pair_is_proved_and_nothing_registered(run, empty, made):
    """In words and as JSON."""
    words = run("release", "prove-pair", made[0], made[1])
    record = json.loads(run("release", "prove-pair", made[0], made[2], "--method", "eagle3", "--json").out)

    assert (words.code, words.err) == (0, "")
    assert "vocabulary identical; 300 tokens" in words.out
    assert (record["relation"], record["is_stale"]) == ("mapped", False)
    assert json.loads(run("lineage", "show", "--json").out) == []


def test_a_pair_that_is_none_is_wrong_input(run, empty, made, tmp_path):
    """Exit code 2 and the entry."""
    other = folders.write_llama(tmp_path / "other", added=("<|end|>", "<|tool|>"))

    done = run("release", "prove-pair", made[0], other)

    assert done.code == 2
    assert "the draft speaks another vocabulary" in done.err


def test_a_release_is_registered_and_shown_with_its_proof(run, empty, made):
    """By folder; then again by digest, which is the same release."""
    arguments = ("--method", "eagle3", "--k", 3, "--engine-version", "0.32.0", "--engine-args", "--dtype bfloat16 --port 8000")
    done = run("release", "register", "--name", "fast", "--target", made[0], "--draft", made[2], *arguments)
    shown = json.loads(run("release", "show", "fast", "--json").out)
    release = shown["release"]

    by_digest = run("release", "register", "--name", "fast", "--target", release["target"], "--draft", release["draft"],
                    *arguments, "--json")  # fmt: skip

    assert done.out.startswith(f"registered {release['id']} fast")
    assert (release["pair"], release["num_speculative_tokens"]) == (shown["pair"]["digest"], 3)
    assert json.loads(by_digest.out)["release"]["id"] == release["id"]
    assert "vocabulary mapped" in run("release", "show", "fast").out


def test_a_plain_release_has_no_pair(run, empty, made):
    """The fallback."""
    done = run("release", "register", "--name", "plain", "--target", made[0])

    assert done.out.strip().endswith("plain")
    assert json.loads(run("release", "show", "plain", "--json").out)["pair"] is None


def test_a_lossy_release_needs_to_be_allowed_by_name(run, empty, made):
    """The refusal says how."""
    arguments = ("release", "register", "--name", "fly", "--target", made[0], "--method", "ngram", "--k", 2,
                 "--engine-args", """--speculative-config '{"rejection_sample_method": "fly"}'""")  # fmt: skip
    refused = run(*arguments)

    assert refused.code == 2
    assert "--allow-lossy 'rejection_sample_method: fly'" in refused.err
    assert run(*arguments, "--allow-lossy", "fly").code == 0


def test_a_draft_of_another_teacher_is_noted(run, empty, made):
    """The person vouches for the digest."""
    done = run("release", "prove-pair", made[0], made[1], "--teacher", "f" * 64)

    assert "note: teacher" in done.out
