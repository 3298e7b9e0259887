"""The audit log under attack: each edit of the database or the checkpoints file is found and named."""

import sqlite3

import pytest

from specops.core import merkle
from specops.core.audit import AuditEntry, Checkpoint
from specops.errors import ChainBroken, InvalidRecord, RuleViolation, StoreUnavailable
from specops.store.database import open_store
from specops.store.sqlite import TRIGGERS
from specops.store.triggers import self_test
from specops.store.verify import verify


@pytest.fixture
def notes(tmp_path):
    """Return the path of the checkpoints file."""
    return tmp_path / "outside" / "checkpoints.txt"


@pytest.fixture
def attack(path):
    """Return a function that runs SQL as the owner of the file would, guards dropped or not."""

    def run(*statements, guards=False):
        with sqlite3.connect(path) as raw:
            if not guards:
                for name in TRIGGERS:
                    raw.execute(f"DROP TRIGGER {name}")
            for statement, *values in statements:
                raw.execute(statement, values)
        raw.close()

    return run


@pytest.fixture
def check(store, notes, signer):
    """Return a function that verifies the log with the public key."""
    return lambda: verify(store, notes, signer.public_key)


@pytest.fixture
def signed_log(store, append, notes, signer):
    """Make a log of 8 entries with checkpoints at 3 and 6."""
    append(3)
    store.checkpoint(signer, notes)
    append(3)
    store.checkpoint(signer, notes)
    append(2)


def test_an_entry_is_numbered_and_comes_back(store, append, t0):
    """Entries are counted from 0 and readable by subject."""
    append(2)
    append(1, subject="ro-2", tag="rollout:plan:started", payload={})
    with store.read() as unit:
        assert [e.index for e in unit.audit.all()] == [0, 1, 2]
        assert unit.audit.of("ro-2") == [
            AuditEntry(index=2, tag="rollout:plan:started", actor="control", subject="ro-2", payload={}, at=t0),
        ]


def test_a_wrong_entry_leaves_no_gap(store, append):
    """A refused tag takes no number."""
    with pytest.raises(InvalidRecord):
        append(tag="Wrong")
    append()
    with store.read() as unit:
        assert unit.audit.head().size == 1


@pytest.mark.usefixtures("signed_log")
def test_a_sound_log_verifies(check):
    """The result says what is covered by a signature and what is not yet."""
    proof = check()
    assert (proof.size, proof.proven, proof.checkpoints, len(proof.root)) == (8, 6, 2, 64)


def test_an_empty_log_verifies_and_can_be_signed(store, check, notes, signer):
    """The day of installation is no special case."""
    assert check().size == 0
    store.checkpoint(signer, notes)
    store.checkpoint(signer, notes)
    assert check().checkpoints == 1


@pytest.mark.usefixtures("signed_log")
def test_proofs_hold_against_a_signed_checkpoint(store, notes, signer):
    """An entry can be shown to be in the log, and an old head to be its prefix, without the log."""
    old, new = (Checkpoint.from_text(signer.public_key.open(n)) for n in (store_notes(store)))
    with store.read() as unit:
        raw = unit.audit.all()[4].to_bytes()
        assert merkle.verify_inclusion(merkle.leaf_hash(raw), 4, new.size, unit.audit.prove(4, new.size), new.root)
        assert merkle.verify_consistency(
            old.size, new.size, old.root, new.root, unit.audit.prove_consistency(old.size, new.size)
        )


def store_notes(store):
    """Return the checkpoints that the database keeps."""
    with store.read() as unit:
        return unit.audit.notes()


@pytest.mark.parametrize("statement", [
    "UPDATE audit_entry SET raw = x'00' WHERE position = 1",
    "DELETE FROM audit_entry WHERE position = 1",
    "INSERT OR REPLACE INTO audit_entry SELECT position, tag, 'eve', subject, at, raw, leaf, root FROM audit_entry",
    "INSERT OR IGNORE INTO audit_entry SELECT * FROM audit_entry WHERE position = 1",
    "UPDATE checkpoint SET note = ''",
    "DELETE FROM checkpoint",
])  # fmt: skip
@pytest.mark.usefixtures("signed_log")
def test_the_database_itself_refuses_to_rewrite_the_past(attack, check, statement):
    """The guards refuse every way of changing a row that is there, INSERT OR REPLACE included."""
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        attack((statement,), guards=True)
    assert check().size == 8


@pytest.mark.usefixtures("signed_log")
@pytest.mark.parametrize(("statements", "message"), [
    ([("UPDATE audit_entry SET raw = replace(raw, 'control', 'mallory') WHERE position = 4",)], "audit entry 4 was altered"),
    ([("UPDATE audit_entry SET root = zeroblob(32) WHERE position = 7",)], "audit entry 7 was altered"),
    ([("DELETE FROM audit_entry WHERE position = 2",)], "audit entry 2 is missing"),
    ([("DELETE FROM audit_entry WHERE position >= 7",)], "audit entry 7 is missing: 7 entries, head says 8"),
    ([("DELETE FROM audit_head",)], "audit entry 0 is one that the log's head does not know"),
    ([("UPDATE audit_head SET size = 3",)], "the head of the audit log was altered"),
    ([("DELETE FROM audit_entry WHERE position = 1",),
      ("UPDATE audit_entry SET position = position - 1 WHERE position > 1",)], "audit entry 1 was altered"),
    ([("UPDATE audit_entry SET position = position + 100 WHERE position >= 5",),
      ("INSERT INTO audit_entry SELECT 5, tag, actor, subject, at, raw, leaf, root FROM audit_entry WHERE position = 4",),
      ("UPDATE audit_entry SET position = position - 99 WHERE position > 99",)], "audit entry 5 was altered"),
])  # fmt: skip
def test_tampering_with_guards_dropped_is_found_and_named(attack, check, statements, message):
    """Edited, deleted, cut, renumbered and inserted entries, and a bent head: verification names the first bad entry."""
    attack(*statements)
    with pytest.raises(ChainBroken, match=message):
        check()


def rewrite(size, actor):
    """Return statements that replace the log by a consistent one of `size` entries, entry 4 done by `actor`."""
    frontier, out = merkle.Frontier(), [("DELETE FROM audit_entry",)]
    tag, at = "rollout:step:advanced", "2026-11-29T12:00:00.000000+00:00"
    for i in range(size):
        who = actor if i == 4 else "control"
        raw = (
            f'{{"actor":"{who}","at":"{at}","index":{i},"payload":{{"n":{i}}},"subject":"ro-1","tag":"{tag}"}}'
        ).encode()
        frontier = frontier.append(merkle.leaf_hash(raw))
        out.append(
            (
                "INSERT INTO audit_entry VALUES (?, ?, ?, 'ro-1', ?, ?, ?, ?)",
                *(i, tag, who, at, raw, merkle.leaf_hash(raw), frontier.root),
            )
        )
    return [*out, ("UPDATE audit_head SET size = ?, peaks = ?", size, frontier.to_bytes())]


@pytest.mark.parametrize(("size", "actor", "message"), [
    (8, "mallory", r"one of the audit entries 4\.\.5 was altered"),
    (5, "control", "audit entry 5 is missing: a checkpoint covers 6 entries"),
])  # fmt: skip
def test_a_log_rewritten_whole_is_caught_by_the_heads_outside(
    store, append, attack, check, notes, signer, size, actor, message
):
    """Who owns the database can rewrite rows, roots, head and notes, not the file elsewhere; nor is the log signed again."""
    for number in range(6):
        append(payload={"n": number})
        if number in (3, 5):
            store.checkpoint(signer, notes)
    attack(*rewrite(size, actor), ("DELETE FROM checkpoint",))

    with pytest.raises(ChainBroken, match=message):
        check()
    with pytest.raises(ChainBroken, match="not the one signed at size 6"):
        store.checkpoint(signer, notes)


@pytest.mark.usefixtures("signed_log")
def test_a_forked_checkpoint_is_found(check, notes, signer):
    """A second signed head of the same size is proof of a fork, whoever made it."""
    fork = signer.sign(Checkpoint(origin=signer.name, size=3, root=bytes(32)).to_text())
    with notes.open("a") as file:
        file.write(f"{fork}\n")
    with pytest.raises(ChainBroken, match="two signed checkpoints at size 3 disagree"):
        check()


@pytest.mark.usefixtures("signed_log")
@pytest.mark.parametrize(("edit", "message"), [
    (lambda text: text.replace("\n6\n", "\n5\n"), "does not fit the note over 5 entries"),
    (lambda text: text[:-9], "ends within a note"),
    (lambda text: "", "lacks the checkpoint over 3 entries and 1 more that the database has"),
    (lambda text: text[: len(text) // 2], "lacks the checkpoint over 6 entries that"),
    (lambda text: text + "specops/audit\n8\n" + "A" * 43 + "=\n\n\u2014 specops/audit AAAA\n\n", "not signed by specops/audit"),
])  # fmt: skip
def test_an_edited_checkpoints_file_is_found(check, notes, edit, message):
    """Changed, cut, emptied or with an unsigned note: the file does not verify."""
    notes.write_text(edit(notes.read_text()))
    with pytest.raises(ChainBroken, match=message):
        check()


@pytest.mark.usefixtures("signed_log")
def test_a_signed_note_that_is_no_checkpoint_is_found(check, notes, signer):
    """A signature alone does not make a head."""
    with notes.open("a") as file:
        file.write(signer.sign("hello\n") + "\n")
    with pytest.raises(ChainBroken, match="not a checkpoint"):
        check()


@pytest.mark.usefixtures("signed_log")
def test_dropped_guards_are_put_back_and_the_log_says_so(attack, path, tmp_path, check):
    """Opening the database restores the guards, and records that they were gone."""
    attack()
    open_store(f"sqlite:///{path}", segments=tmp_path).close()

    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        attack(("DELETE FROM audit_entry",), guards=True)
    assert check().size == 9


INSERTED = "INSERT INTO audit_entry SELECT 8, tag, actor, subject, at, raw, leaf, root FROM audit_entry WHERE position = 5"


@pytest.mark.usefixtures("signed_log")
def test_a_log_that_takes_no_entry_opens_all_the_same(attack, path, tmp_path, append, check):
    """Else nobody could be told which entry is bad; whoever appends is told too."""
    attack((INSERTED,))
    open_store(f"sqlite:///{path}", segments=tmp_path).close()

    with pytest.raises(ChainBroken, match=r"audit entry 8 is there already.*run: specops audit verify"):
        append()
    with pytest.raises(ChainBroken, match="audit entry 8 was altered: its bytes say that it is entry 5"):
        check()


def test_a_batch_on_an_altered_log_names_its_range(store, append, attack, t0):
    """Which one of them it is, `verify` says."""
    append(6)
    attack((INSERTED,))
    new = {"tag": "test:entry:added", "actor": "ann", "subject": "s", "payload": {}, "at": t0}
    with pytest.raises(ChainBroken, match=r"one of the audit entries 6\.\.8 is there"), store.begin() as unit:
        unit.audit.append_many([new] * 3)


def test_guards_that_were_gone_are_a_warning_for_good(store, append, check, path, tmp_path, attack):
    """By name, and from which entry on the log was guarded again; those that are gone right now as well."""
    append(2)
    attack()
    assert "triggers refuse_update_audit_entry, " in check().warnings[1]
    assert "are gone now" in check().warnings[1]

    open_store(f"sqlite:///{path}", segments=tmp_path).close()
    _, said = check().warnings
    assert said.startswith("entry 2: triggers refuse_update_audit_entry, ")
    assert "were gone and put back at 20" in said


def test_a_log_without_checkpoint_proves_nothing(append, check):
    """It verifies against itself, and a person is told how little that is."""
    assert check().warnings == ()
    append(2)
    (said,) = check().warnings
    assert said.startswith("nothing is proven: no signed checkpoint covers any of the 2 entries")


@pytest.mark.usefixtures("signed_log")
def test_checkpoints_removed_from_the_database_are_a_warning(attack, check, notes):
    """The file still proves the log."""
    attack(("DELETE FROM checkpoint WHERE size = 3",))
    said = check().warnings[0]
    assert said.startswith(f"the database lacks 1 checkpoints that {notes} has, the first over 3 entries")


@pytest.mark.usefixtures("signed_log")
def test_an_edited_note_in_the_database_is_named(attack, check):
    """Not as a gap of the file."""
    attack(("UPDATE checkpoint SET note = replace(note, char(10) || '3' || char(10), char(10) || '4' || char(10))",))
    with pytest.raises(ChainBroken, match=r"does not fit the note over 4 entries; it was edited \(the database\)"):
        check()


@pytest.mark.usefixtures("signed_log")
def test_a_fork_in_the_file_is_greater_news_than_a_gap(check, notes, signer):
    """A file that was replaced by one of another log is told as a fork."""
    notes.write_text(signer.sign(Checkpoint(origin=signer.name, size=3, root=bytes(32)).to_text()) + "\n")
    with pytest.raises(ChainBroken, match="two signed checkpoints at size 3 disagree"):
        check()


@pytest.mark.usefixtures("signed_log")
def test_an_altered_entry_met_by_a_reader_is_named(store, attack):
    """With the command that says more."""
    attack(("UPDATE audit_entry SET raw = x'00ff' WHERE position = 5",))
    with pytest.raises(ChainBroken, match=r"audit entry 5 was altered: .*run: specops audit verify"), store.read() as unit:
        unit.audit.all()


@pytest.mark.usefixtures("signed_log")
def test_an_altered_head_met_by_a_writer_is_named(append, attack, check):
    """When an entry was altered too, `verify` names the entry."""
    attack(("UPDATE audit_head SET size = 3",))
    with pytest.raises(ChainBroken, match=r"the head of the audit log was altered: .*run: specops audit verify"):
        append()
    attack(("DELETE FROM audit_entry WHERE position = 2",), guards=True)
    with pytest.raises(ChainBroken, match="audit entry 2 is missing"):
        check()


def test_a_guard_bent_to_guard_nothing_is_put_back(path, tmp_path, attack):
    """A trigger of the right name with other words counts as missing."""
    with sqlite3.connect(path) as raw:
        raw.execute("DROP TRIGGER refuse_delete_audit_entry")
        raw.execute("CREATE TRIGGER refuse_delete_audit_entry BEFORE DELETE ON audit_entry WHEN 0 BEGIN SELECT 1; END")
    raw.close()
    open_store(f"sqlite:///{path}", segments=tmp_path).close()
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        attack(("DELETE FROM audit_entry",), guards=True)


def test_the_self_test_tries_and_does_not_trust_names(store, append, attack):
    """Without guards a probe goes through; it is undone, and the open fails."""
    append()
    attack()
    with pytest.raises(RuleViolation, match="UPDATE went through"), store.begin() as unit:
        self_test(unit._connection)
    with store.read() as unit:
        assert [e.index for e in unit.audit.all()] == [0]


@pytest.mark.usefixtures("signed_log")
def test_an_entry_before_the_first_is_named_at_the_open(attack, path, tmp_path):
    """It stands where the self-test writes its probe."""
    attack((INSERTED.replace("SELECT 8", "SELECT -1"),))
    with pytest.raises(ChainBroken, match="audit entry -1 was put into the log"):
        open_store(f"sqlite:///{path}", segments=tmp_path)


def test_verdicts_and_alias_moves_are_append_only_too(store, make_release, attack, t0):
    """What decided and what moved cannot be edited."""
    with store.begin() as unit:
        unit.aliases.set("production", unit.releases.add(make_release()), "ann", t0)
    for statement in (
        "UPDATE alias_event SET actor = 'eve'",
        "DELETE FROM alias_event",
        "INSERT OR REPLACE INTO alias_event SELECT * FROM alias_event",
    ):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            attack((statement,), guards=True)


def test_an_entry_on_a_stale_head_is_refused(store, append):
    """The head moves by compare-and-swap, so one number never goes to two entries."""
    append(3)
    with store.read() as unit:
        stale = unit.audit.head()
    append()
    with pytest.raises(StoreUnavailable, match="grew past 3"), store.begin() as unit:
        unit.audit._move_head(stale, stale.append(bytes(32)))


def test_a_kept_note_that_is_no_checkpoint_stops_signing(store, append, notes, signer):
    """What cannot be read cannot be continued."""
    append()
    notes.parent.mkdir()
    notes.write_text("hello\n\n\u2014 x AAAA\n\n")
    with pytest.raises(ChainBroken, match="a kept note is not a checkpoint"):
        store.checkpoint(signer, notes)


def test_a_guard_speaks_through_the_store_as_a_broken_rule(store, append):
    """The error that a caller sees is ours."""
    append()
    with pytest.raises(RuleViolation, match="append-only"), store.begin() as unit:
        unit._connection.exec_driver_sql("DELETE FROM audit_entry")


def test_entries_are_read_by_subject_tag_time_and_number(store, append, t0):
    """Filters combine; the newest come last; a tag stands for those below it, and nothing else."""
    append(3)
    append(tag="rollout:stepper:moved", subject="ro_2", at=t0.replace(hour=13))
    with store.read() as unit:

        def seen(**filters):
            return [e.index for e in unit.audit.read(**filters)]

        assert seen(last=2) == [2, 3]
        assert seen(tag="rollout:step") == [0, 1, 2]
        assert (seen(tag="rollout:stepper:moved"), seen(tag="roll"), seen(tag="%")) == ([3], [], [])
        assert (seen(subject="ro-1", last=1), seen(since=t0.replace(hour=13))) == ([2], [3])


def test_many_entries_are_one_step_and_one_chain(store, append, check, t0):
    """A batch follows what the transaction appended before; a wrong entry refuses all of it; an empty one changes nothing."""
    append()
    new = {"tag": "test:entry:added", "actor": "ann", "subject": "s", "payload": {}, "at": t0}
    with store.begin() as unit:
        assert unit.audit.append(**new) == 1
        assert unit.audit.append_many([new, new]) == 2
        assert unit.audit.append_many([]) == 4
    with pytest.raises(InvalidRecord), store.begin() as unit:
        unit.audit.append_many([new, new | {"tag": "wrong"}])
    assert check().size == 4


def test_an_entry_that_is_not_there_is_named(store, append):
    """With the range of those that are."""
    append(2)
    with pytest.raises(InvalidRecord, match=r"no audit entry 2; the log has entries 0\.\.1"), store.read() as unit:
        unit.audit.raw_at(2)
