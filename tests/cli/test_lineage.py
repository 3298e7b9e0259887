"""`specops lineage` shows what is registered, for people and for machines."""

import json


def test_the_list_has_every_release(run, full):
    """Without a name all releases are listed."""
    done = run("lineage", "show", "--json")
    assert done.code == 0
    assert [r["name"] for r in json.loads(done.out)] == ["plain", "spec"]
    assert "draft_model" in run("lineage", "show").out


def test_a_release_comes_with_its_ancestors(run, full):
    """A draft's target is an ancestor; the edge between them is drawn."""
    value = json.loads(run("lineage", "show", "spec", "--json").out)
    assert value["release"]["num_speculative_tokens"] == 4
    assert sorted(a["name"] for a in value["artifacts"]) == ["draft", "target"]
    assert [e["kind"] for e in value["edges"]] == ["distilled_from"]
    assert "distilled_from" in run("lineage", "show", "spec").out


def test_a_plain_release_does_not_contain_the_draft(run, full):
    """Only what the release is made of is shown."""
    value = json.loads(run("lineage", "show", "plain", "--json").out)
    assert [a["name"] for a in value["artifacts"]] == ["target"]


def test_diff_says_what_can_change(run, full):
    """A draft changes speed, not output."""
    value = json.loads(run("lineage", "diff", "plain", "spec", "--json").out)
    assert {d["component"] for d in value} >= {"method", "draft", "num_speculative_tokens"}
    assert {d["can_change"] for d in value if d["component"] == "draft"} == {"speed"}
    assert "draft" in run("lineage", "diff", "plain", "spec").out


def test_a_release_does_not_differ_from_itself(run, full):
    """No difference is said in words, or as an empty list."""
    assert "no difference" in run("lineage", "diff", "spec", "spec").out
    assert json.loads(run("lineage", "diff", "spec", "spec", "--json").out) == []


def test_an_unknown_release_is_exit_2(run, full):
    """One line names it."""
    done = run("lineage", "show", "nobody")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "nobody" in done.err
