"""The tamper suite of the audit log: each way of changing the past, by whoever owns the database file, is found and named.

One case per name of the acceptance list. `test_audit` has the corner cases; the artifact half of the list is elsewhere.
"""

import contextlib
import sqlite3
from datetime import timedelta

import pytest

from specops.core.audit import Checkpoint
from specops.errors import ChainBroken
from specops.store.sqlite import TRIGGERS
from specops.store.verify import verify

COLUMNS = "tag, actor, subject, at, raw, leaf, root"
FORGED = "CAST(replace(CAST(raw AS TEXT), 'control', 'mallory') AS BLOB)"
REPLACED = f"position, tag, actor, subject, at, {FORGED}, leaf, root"
MOVE = "UPDATE audit_entry SET position = {} WHERE position {}"
CASES = {
    "edit": (
        [f"UPDATE audit_entry SET raw = {FORGED} WHERE position = 4"],
        "audit entry 4 was altered: its bytes .* do not give the root",
    ),
    "edit of a column": (
        ["UPDATE audit_entry SET actor = 'mallory' WHERE position = 4"],
        "audit entry 4 was altered: its column actor says 'mallory', its bytes 'control'",
    ),
    "delete": (
        ["DELETE FROM audit_entry WHERE position = 4"],
        "audit entry 4 is missing: entry 5 stands in its place",
    ),
    "insert": (
        [
            MOVE.format("position + 100", ">= 4"),
            f"INSERT INTO audit_entry SELECT 4, {COLUMNS} FROM audit_entry WHERE position = 3",
            MOVE.format("position - 99", "> 99"),
        ],
        "audit entry 4 was altered: its bytes say that it is entry 3",
    ),
    "reorder": (
        [MOVE.format(100, "= 4"), MOVE.format(4, "= 5"), MOVE.format(5, "= 100")],
        "audit entry 4 was altered: its bytes say that it is entry 5",
    ),
    "replace": (
        [f"INSERT OR REPLACE INTO audit_entry SELECT {REPLACED} FROM audit_entry WHERE position = 4"],
        "audit entry 4 was altered",
    ),
    "truncated tail": (
        ["DELETE FROM audit_entry WHERE position >= 7"],
        "audit entry 7 is missing: 7 entries, head says 8",
    ),
    "truncated tail and head": (
        ["DELETE FROM audit_entry WHERE position >= 5", "DELETE FROM audit_head"],
        "audit entry 5 is missing: a checkpoint covers 6 entries",
    ),
}


@pytest.fixture
def notes(tmp_path):
    """Return the path of the checkpoints file."""
    return tmp_path / "outside" / "checkpoints.txt"


@pytest.fixture
def check(store, append, notes, signer):
    """Make a log of 8 entries with checkpoints at 3 and 6, and return a function that verifies it."""
    for count in (3, 3, 2):
        append(count)
        if count == 3:
            store.checkpoint(signer, notes)
    return lambda: verify(store, notes, signer.public_key)


@pytest.fixture
def attack(path):
    """Return a function that runs SQL as the owner of the file."""

    def run(statements, *, drop):
        with contextlib.closing(sqlite3.connect(path)) as raw, raw:
            for name in TRIGGERS if drop else ():
                raw.execute(f"DROP TRIGGER {name}")
            for statement in statements:
                assert raw.execute(statement).rowcount != 0

    return run


@pytest.mark.parametrize("case", CASES)
def test_without_guards_it_is_found_and_named(check, attack, case):
    """DROP TRIGGER lets each through; verification names the first bad entry."""
    statements, message = CASES[case]
    attack(statements, drop=True)
    with pytest.raises(ChainBroken, match=message):
        check()


@pytest.mark.parametrize("case", CASES)
def test_with_guards_it_is_refused(check, attack, case):
    """The database itself refuses, and the log still verifies."""
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        attack(CASES[case][0], drop=False)
    assert check().size == 8


def test_a_forked_checkpoint_is_found_and_named(check, notes, signer):
    """A second head of one size, signed with the right key: the file that holds it is named."""
    fork = signer.sign(Checkpoint(origin=signer.name, size=6, root=bytes(32)).to_text())
    notes.write_text(notes.read_text() + f"{fork}\n")
    with pytest.raises(ChainBroken, match=f"two signed checkpoints at size 6 disagree: the one in {notes}"):
        check()


def test_a_clock_that_went_back_is_found_and_named(check, append, t0):
    """Nothing was altered, so it is a warning, with the entry and both times."""
    append(at=t0 - timedelta(hours=1))
    (said,) = check().warnings
    assert said.startswith("clock went back at audit entry 8: 2026-11-29T11:00:00")
