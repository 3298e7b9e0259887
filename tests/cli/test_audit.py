"""`specops audit verify` is exit 0 on a sound log and exit 1 on an altered one, naming the entry."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "docs" / "reference" / "check_proof.py"


def signed(run):
    """Return how many entries lie under a checkpoint."""
    return json.loads(run("audit", "verify", "--json").out)["proven"]


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


def test_the_log_is_filtered_by_subject_tag_and_time(run, full):
    """A tag stands for all below it; a time without zone is UTC."""

    def seen(*filters):
        return [e["tag"] for e in json.loads(run("audit", "log", "--json", *filters).out)]

    assert seen("--tag", "rollout") == ["rollout:plan:started"]
    assert seen("--subject", "ro-1") == ["rollout:plan:started"]
    assert len(seen("--tag", "lineage", "--last", "2")) == 2
    assert seen("--since", "2026-11-30") == []
    assert seen("--since", "2026-11-29T12:00:00")[-1] == "rollout:plan:started"


def test_a_proof_leaves_the_house_and_holds(run, full):
    """Bundle and public key are all that the script needs."""
    bundle = full / "proof.json"
    assert run("audit", "prove", "3", "--out", bundle).code == 0
    command = [sys.executable, "-I", str(SCRIPT), str(bundle), str(full / "keys" / "audit.key.pub")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(run("audit", "prove", "3").out) == json.loads(bundle.read_text())


def test_an_entry_without_checkpoint_or_without_existence_is_exit_2(run, full):
    """One line with the way out."""
    size = signed(run)
    run("rollout", "abort", "ro-1", "--reason", "r")
    assert "specops audit checkpoint" in run("audit", "prove", size).err
    assert (run("audit", "prove", "99").code, run("audit", "prove", "0", "--out", full).code) == (2, 2)


def test_growth_between_two_checkpoints_is_proven(run, full):
    """From the first checkpoint over OLD to the first over NEW."""
    size = signed(run)
    run("rollout", "abort", "ro-1", "--reason", "r")
    run("audit", "checkpoint")
    bundle = json.loads(run("audit", "consistency", "2", size + 1).out)
    assert [bundle[which].splitlines()[1] for which in ("old", "new")] == [str(size), str(size + 1)]


def test_a_proof_of_growth_says_which_sizes_were_signed(run, full):
    """The bundle goes to stdout, the remark beside it; a log does not shrink."""
    size = signed(run)
    remark = f"proven for the signed sizes {size} and {size}; asked for 2 and {size}\n"
    assert run("audit", "consistency", "2", size).err == remark
    assert run("audit", "consistency", size, size).err == ""
    wrong = run("audit", "consistency", size, "2")
    assert (wrong.code, f"got {size} and 2" in wrong.err) == (2, True)


def test_the_log_shows_what_its_filter_takes(run, full):
    """A digest is shown whole, so that it can be copied to `--subject`; a tag has no pictures."""
    digest = json.loads(run("audit", "log", "--tag", "lineage", "--json", "--last", "1").out)[0]["subject"]
    assert digest in run("audit", "log", "--tag", "lineage", "--last", "1").out
    run("audit", "rotate-key")
    assert "audit:key:rotated" in run("audit", "log", "--last", "1").out


def test_guards_that_were_gone_are_told_by_verify_and_doctor(run, full, tamper):
    """The edit that they did not stop may leave no other trace."""
    tamper(full, "UPDATE audit_head SET size = size")
    assert "were gone and put back" in run("audit", "verify").err
    assert "were gone and put back" in run("doctor").out


def test_a_lost_key_is_not_replaced_in_silence(run, full):
    """A new key would make every old checkpoint look forged."""
    key = full / "keys" / "audit.key"
    key.unlink()
    done = run("audit", "checkpoint")
    assert (done.code, key.exists()) == (1, False)
    assert "audit.key is gone and 1 checkpoints were signed" in done.err


def test_a_lost_key_is_replaced_when_its_public_half_is_kept(run, full):
    """What it signed still verifies, and the log says that it was lost."""
    keys = full / "keys"
    (keys / "audit.key").unlink()
    (keys / "audit.key.pub").rename(keys / "audit-lost.pub")
    run("rollout", "abort", "ro-1", "--reason", "r")
    assert (run("audit", "checkpoint").code, run("audit", "verify").code) == (0, 0)
    (entry,) = json.loads(run("audit", "log", "--tag", "audit:key", "--json").out)
    assert entry["payload"]["lost"] is True
    assert (keys / "audit-lost.pub").read_text().startswith(entry["payload"]["old"][0])


def test_a_data_folder_that_cannot_be_made_is_one_line(run, full, monkeypatch):
    """Exit 3: the way out is the setting."""
    monkeypatch.setenv("SPECOPS_DATA_DIR", str(full / "specops.db" / "x"))
    done = run("audit", "verify")
    assert (done.code, done.err.count("\n"), "set SPECOPS_DATA_DIR" in done.err) == (3, 1, True)


def test_a_checkpoints_file_that_was_removed_is_written_again_and_told(run, full):
    """`verify` asks for it, `checkpoint` does it."""
    (full / "checkpoints.txt").unlink()
    assert "lacks the checkpoint over" in run("audit", "verify").err
    assert "1 checkpoints were missing in" in run("audit", "checkpoint").err
    assert run("audit", "verify").code == 0


def test_a_new_key_signs_and_the_log_still_verifies(run, full):
    """The rotation is an entry under the old key; proofs from before and after hold."""
    old = (full / "keys" / "audit.key.pub").read_text().strip()
    done = run("audit", "rotate-key")
    new = (full / "keys" / "audit.key.pub").read_text().strip()
    assert (done.code, old != new, new in done.out) == (0, True, True)
    (entry,) = json.loads(run("audit", "log", "--tag", "audit:key", "--json").out)
    assert entry["payload"]["new_key"] == new
    assert run("audit", "verify").code == 0
    run("rollout", "abort", "ro-1", "--reason", "r")
    run("audit", "checkpoint")
    assert json.loads(run("audit", "verify", "--json").out)["checkpoints"] == 3


def test_a_place_that_fails_is_told_and_stops_nothing(run, full, monkeypatch):
    """The checkpoint is signed; `verify` says which place was not compared."""
    monkeypatch.setenv("SPECOPS_CHECKPOINT_COPY", str(full / "copy.txt"))
    monkeypatch.setenv("SPECOPS_CHECKPOINT_GIT", str(full / "no-repository"))
    done = run("audit", "checkpoint")
    assert (done.code, done.err.count("warning: checkpoints did not reach git notes of")) == (0, 1)
    checked = run("audit", "verify")
    assert (checked.code, checked.err.count("was not compared")) == (0, 1)
    assert (full / "copy.txt").read_text() == (full / "checkpoints.txt").read_text()


def test_a_time_from_the_log_goes_back_into_the_filter(run, full):
    """ISO 8601 with its zone; what is no time is exit 2."""
    entry = json.loads(run("audit", "log", "--json", "--last", "1").out)[0]
    again = json.loads(run("audit", "log", "--json", "--since", entry["at"]).out)
    assert (entry["at"], again[-1]) == ("2026-11-29T12:00:00+00:00", entry)
    assert run("audit", "log", "--since", "yesterday").code == 2


def test_numbers_that_no_database_counts_are_wrong_usage(run, full):
    """A crash would read as a broken log."""
    many = str(1 << 64)
    asked = (("log", "--last", many), ("prove", many), ("consistency", "1", many), ("consistency", "0", "1"))
    assert [run("audit", *words).code for words in asked] == [2, 2, 2, 2]
