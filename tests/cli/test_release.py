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


def test_a_draft_of_another_teacher_is_noted(run, empty, made, tmp_path):
    """The person vouches for a registered model, by its name or the first digits of its digest."""
    other = folders.write_llama(tmp_path / "other", seed=9)
    record = json.loads(run("lineage", "import", "hf", other, "--name", "big", "--json").out)
    for key in ("big", record["artifacts"][0]["digest"][:8]):
        done = run("release", "prove-pair", made[0], made[1], "--teacher", key)

        assert "note: teacher" in done.out


@pytest.mark.parametrize("command", [
    ("release", "prove-pair"), ("release", "register", "--name", "x", "--method", "draft_model", "--k", 2, "--target"),
])  # fmt: skip
def test_an_unknown_teacher_is_refused_and_nothing_registered(run, empty, made, command):
    """A word that nobody registered would lead nowhere."""
    draft = (made[1],) if command[1] == "prove-pair" else ("--draft", made[1])
    done = run(*command, made[0], *draft, "--teacher", "zzz")

    assert (done.code, "no model is registered as 'zzz'" in done.err) == (2, True)
    assert json.loads(run("lineage", "show", "--json").out) == []


def test_a_second_name_for_the_same_content_is_refused(run, empty, made):
    """Otherwise the answer would name a release that nobody can find."""
    first, second = (run("release", "register", "--name", name, "--target", made[0]) for name in ("A", "B"))

    assert (first.code, second.code) == (0, 2)
    assert "already registered as A" in second.err
    assert "no release B" in run("release", "show", "B").err


@pytest.mark.parametrize("k", ["129", "9" * 30, "-1"])
def test_a_k_that_no_engine_samples_is_wrong_usage(run, empty, made, k):
    """One line, no traceback."""
    done = run("release", "register", "--name", "x", "--target", made[0], "--method", "ngram", "--k", k)

    assert (done.code, "Traceback" in done.err) == (2, False)
    assert "--k" in done.err


def test_a_model_of_its_own_is_no_head(run, empty, made):
    """Whatever the method says."""
    done = run("release", "prove-pair", made[0], made[1], "--method", "eagle3")

    assert (done.code, "needs a head" in done.err) == (2, True)


def test_a_long_name_leaves_room_for_its_parts(run, empty, made):
    """Target, tokenizer and defaults are called after the release."""
    assert run("release", "register", "--name", "n" * 200, "--target", made[0]).code == 0
