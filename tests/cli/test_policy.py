"""`specops policy check` refuses with one line and exit code 2."""

import json

import pytest


@pytest.mark.parametrize("name", ["default", "quickstart"])
def test_shipped_policies_are_valid(run, name):
    """Every check is listed with its owner."""
    done = run("policy", "check", name)
    assert done.code == 0
    assert f"{name} (" in done.out
    assert "inference-oncall" in done.out


def test_json_has_every_check(run):
    """The output for machines parses."""
    value = json.loads(run("policy", "check", "quickstart", "--json").out)
    assert [c["name"] for c in value["checks"]] == ["acceptance", "ttft", "errors"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: x\nchekcs: []\n", "did you mean 'checks'"),
        ("name: x\nchecks: []\n", "nothing could ever fail"),
        ("name: [\n", "not valid YAML"),
        ("- 1\n", "must hold a mapping"),
    ],
)
def test_a_wrong_policy_is_one_line(run, tmp_path, text, message):
    """The line names the mistake."""
    path = tmp_path / "p.yaml"
    path.write_text(text)
    done = run("policy", "check", path)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert message in done.err


def test_an_absent_policy_lists_those_there_are(run):
    """The way out is in the message."""
    done = run("policy", "check", "nosuch")
    assert done.code == 2
    assert "shipped policies: default, quickstart" in done.err
