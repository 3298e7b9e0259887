"""`specops policy`: a wrong file is one line and exit code 2, a failed expectation or replay exit code 1."""

import json
from datetime import timedelta

import pytest

from specops.core.outcome import Acceptance, Arm, Finish, Kind, Outcome
from specops.settings import Settings
from specops.wiring import opened
from tests.cli.conftest import T0


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
    assert "shipped policies: default, " in done.err


SHIPPED = ("default", "quickstart", "strict", "latency-first", "high-load", "drift-watch")


def test_shipped_policies_pass_their_own_tests(run):
    """Each has a file of tests beside it."""
    done = run("policy", "test", *SHIPPED)

    assert (done.code, done.out.splitlines()[-1].endswith("0 failed")) == (0, True)


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_policies_have_nothing_to_complain_about(run, name):
    """At a request a second."""
    done = run("policy", "lint", name, "--per-hour", "3600")

    assert (done.code, "error:" in done.out) == (0, False)


def test_lint_refuses_what_could_never_be_decided(run, tmp_path):
    """A line per complaint with its place and way out, exit code 1; JSON for machines."""
    path = tmp_path / "p.yaml"
    path.write_text("name: x\nchecks: [{name: a, metric: error, at_most: 0.00001, pass_at: 0.0001, owner: tbd}]\n")
    done = run("policy", "lint", path, "--per-hour", "10")

    assert done.code == 1
    assert "error: checks[0].owner: a is owned by 'tbd'" in done.out
    assert {c["severity"] for c in json.loads(run("policy", "lint", path, "--json").out)} == {"error", "warning"}


def test_explain_says_each_check_in_a_sentence(run):
    """Beginning with its name."""
    lines = run("policy", "explain", "quickstart").out.splitlines()

    assert [line.partition(":")[0] for line in lines][-3:] == ["acceptance", "ttft", "errors"]
    assert json.loads(run("policy", "explain", "quickstart", "--json").out) == lines


def test_the_schema_is_json(run):
    """Draft 2020-12, as editors want it."""
    assert json.loads(run("policy", "schema").out)["title"] == "specops policy"


def test_a_failed_policy_test_is_a_line_and_exit_code_1(run, tmp_path):
    """Expected and got; a policy that is a path lies beside the tests."""
    (tmp_path / "p.yaml").write_text("name: p\nchecks: [{name: a, metric: error, at_most: 0.02, pass_at: 0.5, owner: o}]\n")
    path = tmp_path / "p_test.yaml"
    path.write_text("name: t\npolicy: p.yaml\ntests: [{name: c, input: {error: '0x50'}, expect: [{at: 50, verdict: FAIL}]}]\n")
    done = run("policy", "test", path)

    assert (done.code, done.out.splitlines()[-1]) == (1, "1 tests, 1 failed")
    assert f"{path}: c: at 50: expected verdict FAIL, got PASS" in done.out
    assert json.loads(run("policy", "test", path, "--json").out)[str(path)][0]["failures"][0]["expected"] == "FAIL"


def test_a_test_file_without_policy_is_refused(run, tmp_path):
    """The way out is in the message."""
    path = tmp_path / "t.yaml"
    path.write_text("name: t\n")
    done = run("policy", "test", path)

    assert (done.code, "begin with: policy: default" in done.err) == (2, True)


def test_simulate_tells_and_draws(run, tmp_path):
    """A row per check, the same figures as JSON, a chart in a file."""
    chart = tmp_path / "plot.svg"
    few = ("--runs", "3", "--requests", "150")
    done = run("policy", "simulate", "quickstart", *few, "--shift", "acceptance_rate=0.42:0.05", "--out", chart)

    assert (done.code, "0.42 to 0.05" in done.out) == (0, True)
    assert chart.read_text().startswith("<svg")
    assert [f["check"] for f in json.loads(run("policy", "simulate", "quickstart", *few, "--json").out)] == [
        "acceptance", "ttft", "errors"
    ]  # fmt: skip
    refused = run("policy", "simulate", "quickstart", *few, "--out", tmp_path / "no" / "plot.svg")
    assert (refused.code, "cannot be written" in refused.err) == (2, True)


@pytest.fixture
def lived(full):
    """Return a data folder whose rollout has recorded outcomes, without verdicts."""
    outcomes = [
        Outcome(
            request_id=f"r{i}", arm=Arm.CANDIDATE, kind=Kind.SHADOW, release_id="spec", at=T0 + timedelta(seconds=i),
            finish=Finish.STOP, e2e_s=1.0, ttft_s=0.1, acceptance=Acceptance(rounds=25, drafted=100, accepted=40),
        )
        for i in range(120)
    ]  # fmt: skip
    with opened(Settings(data_dir=full)) as house, house.store.begin() as unit:
        unit.outcomes.append("ro-1", outcomes)
    return full


@pytest.mark.usefixtures("lived")
def test_backtest_tells_what_another_policy_would_have_done(run):
    """The first difference, then what each had done."""
    done = run("policy", "backtest", "default", "--rollout", "ro-1")

    assert done.code == 0
    assert "first difference after " in done.out
    assert "quickstart (recorded):" in done.out
    assert "the verdicts never differ" in run("policy", "backtest", "quickstart", "--rollout", "ro-1").out
    assert json.loads(run("policy", "backtest", "default", "--rollout", "ro-1", "--json").out)["outcomes"] == 120


@pytest.mark.usefixtures("lived")
def test_replay_says_that_nothing_differs(run):
    """With what was compared."""
    done = run("policy", "replay", "ro-1")

    assert (done.code, done.out) == (0, "ro-1: 120 outcomes, 0 verdicts, 0 decisions: replayed to the last bit\n")
    assert json.loads(run("policy", "replay", "ro-1", "--json").out)["difference"] is None


def test_replay_names_the_first_difference(run, lived, tamper):
    """Exit code 1."""
    tamper(lived, "UPDATE rollout SET record = json_set(record, '$.step', 1)")
    done = run("policy", "replay", "ro-1")

    assert (done.code, "rollout.step: stored 1, replayed 0" in done.out) == (1, True)


@pytest.mark.usefixtures("empty")
def test_replay_of_nothing_is_refused(run):
    """There is no such rollout."""
    assert run("policy", "replay", "ro-9").code == 2
