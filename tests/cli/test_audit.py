"""`specops audit verify` is exit 0 on a sound log and exit 1 on an altered one, naming the entry."""

import json

import pytest


def test_a_sound_log_verifies(run, full):
    """Size, proven part and root are told."""
    done = run("audit", "verify", "--json")
    value = json.loads(done.out)
    assert done.code == 0
    assert value["size"] == value["proven"] > 0
    assert "verified" in run("audit", "verify").out


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit_entry SET raw = CAST(replace(CAST(raw AS TEXT), 'ann', 'eve') AS BLOB) WHERE position = 1",
        "DELETE FROM audit_entry WHERE position = 1",
    ],
)
def test_an_edit_behind_the_guards_is_exit_1(run, full, tamper, statement):
    """Changing or removing a row is found, also though the guards were dropped."""
    tamper(full, statement)
    done = run("audit", "verify")
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
    assert "1" in done.err


def test_doctor_reports_an_altered_log(run, full, tamper):
    """`doctor` is exit 1 and says BROKEN."""
    tamper(full, "DELETE FROM audit_entry WHERE position = 1")
    done = run("doctor")
    assert done.code == 1
    assert "BROKEN" in done.out


def test_checkpoint_writes_outside_the_database(run, full):
    """The signed head is appended to a file that can be kept elsewhere."""
    before = (full / "checkpoints.txt").read_text()
    run("rollout", "abort", "ro-1", "--reason", "r")
    assert run("audit", "checkpoint").code == 0
    after = (full / "checkpoints.txt").read_text()
    assert after.startswith(before)
    assert len(after) > len(before)


def test_the_log_shows_the_newest_entries(run, full):
    """`--last` counts from the end, for people and machines."""
    (entry,) = json.loads(run("audit", "log", "--last", "1", "--json").out)
    assert entry["tag"] == "rollout:plan:started"
    assert "rollout:plan:started" in run("audit", "log").out


def test_less_than_one_entry_is_wrong_usage(run, full):
    """Asking for nothing does not print everything."""
    assert run("audit", "log", "--last", "0").code == 2
