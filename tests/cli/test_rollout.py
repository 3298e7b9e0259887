"""`specops rollout` shows and steers; its exit codes can be used in scripts."""

import json
from dataclasses import replace

import pytest

from specops.core.rollout import State
from specops.settings import Settings
from specops.wiring import opened

START = (
    "rollout",
    "start",
    "--candidate",
    "spec",
    "--candidate-url",
    "http://127.0.0.1:2",
    "--baseline-url",
    "http://127.0.0.1:1",
)


def test_the_list_parses(run, full):
    """Every rollout with state and step."""
    (value,) = json.loads(run("rollout", "list", "--json").out)
    assert (value["id"], value["state"], value["step"]) == ("ro-1", "running", 0)
    assert "1/5 shadow" in run("rollout", "list").out


def test_status_says_that_the_gateway_is_silent(run, full):
    """A running rollout is exit 0; what the gateway does is not guessed."""
    done = run("rollout", "status", "--json")
    value = json.loads(done.out)
    assert (done.code, value["gateway"], value["verdict"], value["weight"]) == (0, None, None, 0.0)
    assert "does not answer" in run("rollout", "status", "ro-1").out


def test_status_without_a_rollout_says_how_to_start_one(run, empty):
    """Nothing there is not an error."""
    done = run("rollout", "status")
    assert done.code == 0
    assert "specops rollout start" in done.out


def test_abort_needs_a_reason(run, full):
    """No reason, no abort."""
    assert run("rollout", "abort", "ro-1").code == 2
    assert json.loads(run("rollout", "list", "--json").out)[0]["state"] == "running"


def test_abort_is_stored_with_its_reason(run, full):
    """A second abort is refused with exit 1."""
    assert run("rollout", "abort", "ro-1", "--reason", "page 42").code == 0
    value = json.loads(run("rollout", "status", "--json").out)["rollout"]
    assert (value["state"], value["reason"]) == ("aborted", "page 42")
    assert run("rollout", "abort", "ro-1", "--reason", "again").code == 1
    log = json.loads(run("audit", "log", "--json").out)
    assert (log[-1]["tag"], log[-1]["actor"]) == ("rollout:plan:aborted", "bob")


def test_a_rolled_back_rollout_is_exit_1(run, full):
    """`status` can be asked by a script."""
    assert run("rollout", "rollback", "ro-1", "--reason", "smells").code == 0
    done = run("rollout", "status")
    assert done.code == 1
    assert "smells" in done.out


def test_a_stopped_rollout_is_exit_1(run, full):
    """The hardest rung is no success either."""
    with opened(Settings(data_dir=full)) as house, house.store.begin() as unit:
        before = unit.rollouts.get("ro-1")
        unit.rollouts.save(replace(before, state=State.STOPPED, version=before.version + 1))

    assert run("rollout", "status").code == 1


def test_approving_where_nothing_waits_is_exit_1(run, full):
    """The rule is named."""
    done = run("rollout", "approve", "ro-1")
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert "waits for no approval" in done.err


def test_a_second_start_is_refused(run, full):
    """The message says which rollout to abort."""
    done = run(*START, "--pipeline", "quickstart")
    assert done.code == 1
    assert "specops rollout abort ro-1" in done.err


def test_started_rollouts_sort_by_time(run, full):
    """The id that is printed is the newest in the list, so `status` without an id shows it."""
    run("rollout", "abort", "ro-1", "--reason", "r")
    started = run(*START, "--pipeline", "quickstart")
    assert started.code == 0
    rollout_id = started.out.strip()
    assert rollout_id.startswith("ro-20")
    again = json.loads(run("rollout", "status", rollout_id, "--json").out)["rollout"]
    assert (again["state"], again["pipeline"], again["requested_by"]) == ("running", "quickstart", "bob")


@pytest.mark.parametrize("change", [("--pipeline", "nosuch"), ("--policy", "nosuch"), ("--baseline", "nobody")])
def test_a_start_with_a_wrong_name_is_exit_2(run, full, change):
    """Nothing is started."""
    run("rollout", "abort", "ro-1", "--reason", "r")
    assert run(*START, *change).code == 2
    assert len(json.loads(run("rollout", "list", "--json").out)) == 1


POLICY = """
name: amended
checks:
  - {name: errors, metric: error, at_most: 0.05, pass_at: 0.25, min_requests: 20, owner: oncall}
"""


def test_a_policy_is_amended_by_two_people(run, full, tmp_path, monkeypatch):
    """The first command prints the second; its own author may not run it."""
    (tmp_path / "new.yaml").write_text(POLICY)
    proposed = run("rollout", "amend", "ro-1", "--policy", str(tmp_path / "new.yaml"), "--reason", "a guess")
    command = proposed.out.splitlines()[-1].split()
    assert (proposed.code, command[:3]) == (0, ["specops", "rollout", "approve"])
    assert "by bob, waits for another person" in run("rollout", "status", "ro-1").out
    assert run(*command[1:]).code == 1
    monkeypatch.setenv("SPECOPS_ACTOR", "eve")

    assert "in force" in run(*command[1:]).out

    value = json.loads(run("rollout", "status", "ro-1", "--json").out)["rollout"]
    assert (value["policy_digest"][:12], value["evidence"], value["amendment"]) == (command[-1], 2, "")


def test_a_confirmation_set_is_used_once(run, full):
    """Begin, record, and no second time."""
    begin = ("rollout", "confirm", "spec", "--set", "5e" * 32)
    assert "use 1 of this set" in run(*begin).out
    assert run(*begin, "--result", "passed", "--figure", "acceptance=0.71").code == 0
    again = run(*begin)
    assert again.code == 1
    assert "by bob at" in again.err
    assert run("rollout", "confirm", "spec", "--set", "abc").code == 2
    assert run(*begin, "--result", "maybe").code == 2
