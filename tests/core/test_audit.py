"""Audit entries byte for byte, and a log that was tampered with."""

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specops.core.audit import AuditEntry, Checkpoint, size_in, split_notes
from specops.core.canonical import canonical
from specops.core.chain import MAX_WARNINGS, Chain, Link, verify_chain
from specops.core.merkle import Frontier, leaf_hash
from specops.errors import ChainBroken, InvalidRecord

T0 = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)


def entry(index=0, **changes):
    """Return an entry."""
    fields = {
        "index": index,
        "tag": "rollout:step:advanced",
        "actor": "control",
        "subject": "ro-1",
        "payload": {"n": index},
        "at": T0,
    }
    return AuditEntry(**(fields | changes))


def log(size):
    """Return a sound log: its links, and the frontier after each entry (from the empty one)."""
    frontiers, links = [Frontier()], []
    for i in range(size):
        raw = entry(i).to_bytes()
        frontiers.append(frontiers[-1].append(leaf_hash(raw)))
        links.append(Link(i, raw, frontiers[-1].root))
    return links, frontiers


def signed(frontier):
    """Return the head as a checkpoint."""
    return Checkpoint(origin="specops/audit", size=frontier.size, root=frontier.root)


def test_an_entry_has_exact_bytes():
    """RFC 8785: sorted keys, no spaces, time in UTC with microseconds; a change of these bytes breaks every old log."""
    at = datetime(2026, 11, 29, 13, 0, tzinfo=timezone(timedelta(hours=1)))
    assert (
        entry(payload={"b": 1.0, "a": "é"}, at=at).to_bytes()
        == (
            '{"actor":"control","at":"2026-11-29T12:00:00.000000+00:00","index":0,"payload":{"a":"é","b":1},'
            '"subject":"ro-1","tag":"rollout:step:advanced"}'
        ).encode()
    )


def test_an_entry_reads_back_equal():
    """`from_bytes` is the inverse of `to_bytes`."""
    assert AuditEntry.from_bytes(entry(3).to_bytes()) == entry(3)


@pytest.mark.parametrize("tag", ["rollout", "rollout:step", "a:b:c:d", "Rollout:step:x", "a::c", "a:b:c\n", "1a:b:c", ""])
def test_a_tag_outside_the_grammar_is_refused(tag):
    """Tags are source:subject:action in lower case, nothing else."""
    with pytest.raises(InvalidRecord, match="source:subject:action"):
        entry(tag=tag)


@pytest.mark.parametrize("changes", [{"actor": ""}, {"subject": ""}, {"index": -1}, {"at": datetime(2026, 1, 1)}])  # noqa: DTZ001
def test_an_entry_without_actor_subject_index_or_zone_is_refused(changes):
    """Who, what, where in the log and when are never missing."""
    with pytest.raises(InvalidRecord):
        entry(**changes)


@pytest.mark.parametrize("value", [2**53, float("nan"), float("inf"), b"x"])
def test_a_payload_that_json_cannot_hold_exactly_is_refused(value):
    """Nothing that another reader would read differently enters the log."""
    with pytest.raises(InvalidRecord, match="canonical"):
        entry(payload={"x": value}).to_bytes()


@pytest.mark.parametrize("raw", [b"", b"[]", b"{}", b'{"index":0}', entry().to_bytes() + b" ", b"\xff"])
def test_bytes_that_are_no_entry_are_refused(raw):
    """Any byte that differs from the canonical form counts."""
    with pytest.raises(InvalidRecord):
        AuditEntry.from_bytes(raw)


def test_a_checkpoint_has_the_text_of_the_specification():
    """C2SP tlog-checkpoint: origin, size, base64 root, each on a line."""
    checkpoint = signed(Frontier())
    assert checkpoint.to_text() == "specops/audit\n0\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n"
    assert Checkpoint.from_text(checkpoint.to_text() + "extension\n") == checkpoint


@pytest.mark.parametrize(
    "text", ["", "a\n1\n", "a\n01\n" + "A" * 43 + "=\n", "a\n-1\n" + "A" * 43 + "=\n", "a\n1\nAAAA\n", "a\n1\n!\n"]
)
def test_a_text_that_is_no_checkpoint_is_refused(text):
    """Cut, padded or malformed notes do not pass for heads."""
    with pytest.raises(InvalidRecord):
        Checkpoint.from_text(text)


def test_a_sound_log_verifies_against_head_and_checkpoints():
    """The recomputed frontier comes back."""
    links, frontiers = log(7)
    heads = [signed(frontiers[n]) for n in (0, 3, 7, 3)]
    assert verify_chain(links).frontier == frontiers[7]
    assert verify_chain(links, head=frontiers[7], checkpoints=heads) == Chain(frontier=frontiers[7])


@settings(max_examples=80, deadline=None)
@given(size=st.integers(1, 9), data=st.data())
def test_any_edited_byte_breaks_the_chain_and_is_named(size, data):
    """One flipped bit anywhere in an entry is found, at that entry."""
    links, frontiers = log(size)
    bad = data.draw(st.integers(0, size - 1))
    at = data.draw(st.integers(0, len(links[bad].raw) - 1))
    raw = bytearray(links[bad].raw)
    raw[at] ^= 1 << data.draw(st.integers(0, 7))
    links[bad] = links[bad]._replace(raw=bytes(raw))

    with pytest.raises(ChainBroken, match=f"audit entry {bad} was altered"):
        verify_chain(links, head=frontiers[size])


def test_a_removed_entry_is_named():
    """A hole is found where it is."""
    links, frontiers = log(5)
    del links[2]
    with pytest.raises(ChainBroken, match="audit entry 2 is missing"):
        verify_chain(links, head=frontiers[5])


def test_a_repeated_entry_is_named():
    """Two entries of one number are found."""
    links, frontiers = log(5)
    with pytest.raises(ChainBroken, match="audit entry 3 is there twice"):
        verify_chain([*links[:3], links[2], *links[3:]], head=frontiers[5])


def test_an_inserted_entry_is_named_though_all_numbers_run_on():
    """Renumbering the rows does not renumber the signed bytes."""
    links, frontiers = log(4)
    forged = [
        links[0],
        Link(1, entry(1, actor="mallory").to_bytes(), links[1].root),
        *(x._replace(position=x.position + 1) for x in links[1:]),
    ]
    with pytest.raises(ChainBroken, match="audit entry 1 was altered"):
        verify_chain(forged, head=frontiers[4])


def test_a_cut_tail_is_named_by_the_head():
    """The newest entries cannot go silently."""
    links, frontiers = log(5)
    with pytest.raises(ChainBroken, match="audit entry 3 is missing: 3 entries, head says 5"):
        verify_chain(links[:3], head=frontiers[5])


def test_a_cut_tail_is_named_by_a_checkpoint_though_the_head_was_cut_too():
    """A signed head outside remembers what the database forgot."""
    links, frontiers = log(5)
    with pytest.raises(ChainBroken, match="audit entry 3 is missing: a checkpoint covers 5"):
        verify_chain(links[:3], head=frontiers[3], checkpoints=[signed(frontiers[5])])


def test_a_log_rewritten_whole_is_caught_between_two_checkpoints():
    """Whoever recomputes every root still cannot forge the signed ones; the range is as narrow as the checkpoints."""
    _, honest = log(6)
    frontier, links = Frontier(), []
    for i in range(6):
        raw = entry(i, actor="mallory" if i == 4 else "control").to_bytes()
        frontier = frontier.append(leaf_hash(raw))
        links.append(Link(i, raw, frontier.root))

    with pytest.raises(ChainBroken, match=r"one of the audit entries 3\.\.5 was altered"):
        verify_chain(links, head=frontier, checkpoints=[signed(honest[3]), signed(honest[6])])
    with pytest.raises(ChainBroken, match="audit entry 4 was altered"):
        verify_chain(links, head=frontier, checkpoints=[signed(honest[4]), signed(honest[5])])


def test_bytes_without_stored_roots_are_checked_against_the_head():
    """A bundle that carries only bytes is still checked."""
    links, frontiers = log(3)
    bare = [Link(x.position, entry(x.position, actor="eve" if x.position == 2 else "control").to_bytes()) for x in links]
    with pytest.raises(ChainBroken, match=r"audit entries 0\.\.2 .* the log's head"):
        verify_chain(bare, head=frontiers[3])


def test_two_heads_of_one_size_are_a_fork():
    """A log that signs two histories is caught by its own signatures."""
    links, frontiers = log(3)
    other = Checkpoint(origin="specops/audit", size=2, root=bytes(32))
    with pytest.raises(ChainBroken, match="checkpoints at size 2 disagree"):
        verify_chain(links, checkpoints=[signed(frontiers[2]), other])


def test_a_forged_empty_head_and_an_unknown_entry_are_found():
    """The corner cases: a checkpoint of nothing with a root, and an entry beyond the head."""
    links, frontiers = log(2)
    with pytest.raises(ChainBroken, match="size 0"):
        verify_chain(links, checkpoints=[Checkpoint(origin="x", size=0, root=bytes(32))])
    with pytest.raises(ChainBroken, match="audit entry 1 is one that the log's head does not know"):
        verify_chain(links, head=frontiers[1])


def test_one_place_that_disagrees_is_named():
    """Two places hold the log's head, a third another: that one is the fork."""
    links, frontiers = log(3)
    good = Checkpoint(origin="x", size=2, root=frontiers[2].root, place="the file")
    bad = Checkpoint(origin="x", size=2, root=bytes(32), place="the git notes")
    with pytest.raises(ChainBroken, match="size 2 disagree: the one in the git notes is not of this log"):
        verify_chain(links, checkpoints=[good, bad, good])
    with pytest.raises(ChainBroken, match="size 2 disagree with each other in the git notes and in the other"):
        verify_chain(links, checkpoints=[bad, Checkpoint(origin="x", size=2, root=b"1" * 32, place="the other")])


def test_two_heads_beyond_the_end_are_a_fork_first():
    """A log that was cut does not hide that it was forked."""
    links, _ = log(1)
    twins = [Checkpoint(origin="x", size=5, root=bytes(32)), Checkpoint(origin="x", size=5, root=b"1" * 32)]
    with pytest.raises(ChainBroken, match="size 5 disagree with each other"):
        verify_chain(links, checkpoints=twins)


def test_a_clock_that_went_back_is_named_and_breaks_nothing():
    """More than a second is worth a look; less is two processes in a queue."""
    frontier, links = Frontier(), []
    for number, second in enumerate((10, 9.5, 3, 20)):
        raw = entry(number, at=T0 + timedelta(seconds=second)).to_bytes()
        frontier = frontier.append(leaf_hash(raw))
        links.append(Link(number, raw, frontier.root))
    chain = verify_chain(links)
    assert (chain.clock_backs, len(chain.warnings)) == (1, 1)
    assert "audit entry 2: 2026-11-29T12:00:03" in chain.warnings[0]


def test_warnings_are_counted_further_than_they_are_listed():
    """A wrong clock for a year does not fill the memory."""
    turns = 2 * (MAX_WARNINGS + 5)
    links = [Link(n, entry(n, at=T0 + timedelta(seconds=9 * (n % 2))).to_bytes()) for n in range(turns)]
    chain = verify_chain(links)
    assert (chain.clock_backs, len(chain.warnings)) == (turns // 2 - 1, MAX_WARNINGS)


@pytest.mark.parametrize(("column", "value"), [("tag", "a:b:c"), ("actor", "eve"), ("subject", "ro-2"), ("at", "2020")])
def test_a_column_that_says_something_else_than_the_bytes_is_named(column, value):
    """Queries read the columns, so they are checked as well."""
    (link,), _ = log(1)
    row = link._replace(tag="rollout:step:advanced", actor="control", subject="ro-1", at="2026-11-29T12:00:00.000000+00:00")
    verify_chain([row])
    with pytest.raises(ChainBroken, match=f"audit entry 0 was altered: its column {column} says '{value}'"):
        verify_chain([row._replace(**{column: value})])


@pytest.mark.parametrize(("changes", "message"), [
    ({"leaf": bytes(32)}, "do not give the hash stored with it"),
    ({"raw": "text"}, "stored as str"),
    ({"position": "0"}, "its number or its bytes"),
])  # fmt: skip
def test_a_row_of_other_types_or_another_hash_is_named(changes, message):
    """SQLite keeps text in any column."""
    (link,), _ = log(1)
    with pytest.raises(ChainBroken, match=message):
        verify_chain([link._replace(**changes)])


@pytest.mark.parametrize("changes", [
    {"index": True}, {"index": -1}, {"payload": []}, {"tag": 5}, {"tag": "x"}, {"actor": ""}, {"actor": 5}, {"subject": None},
    {"at": 5}, {"at": "2026-11-29T12:00:00.000000"}, {"at": "2026-11-29T12:00:00+00:00"},
    {"at": "2026-W48-7T12:00:00.000000+00:00"}, {"at": "2026-13-29T12:00:00.000000+00:00"},
])  # fmt: skip
def test_canonical_json_that_is_no_entry_is_refused(changes):
    """Each field has one type and one form."""
    record = json.loads(entry().to_bytes()) | changes
    with pytest.raises(InvalidRecord, match="not an audit entry"):
        AuditEntry.from_bytes(canonical(record))


def test_notes_are_split_and_a_cut_one_is_named():
    """The format of a checkpoints file."""
    assert split_notes("a\n1\n\nsig\n\nb\n2\n\nsig\n\n", "x") == ["a\n1\n\nsig\n", "b\n2\n\nsig\n"]
    assert split_notes("", "x") == []
    with pytest.raises(ChainBroken, match="x ends within a note"):
        split_notes("a\n1\n\nsig\n", "x")


@pytest.mark.parametrize(
    ("note", "size"),
    [("a\n12\nroot\n", 12), ("", -1), ("a\n-1\n", -1), ("a\n\u0663\n", -1), ("a\n" + "9" * 30 + "\n", -1)],
)
def test_the_size_in_a_note_is_a_plain_number(note, size):
    """Anything else counts as no size."""
    assert size_in(note) == size


def test_an_entry_in_the_place_of_another_is_named():
    """Two entries that changed places keep their own numbers in their bytes."""
    bare = [Link(0, entry(1).to_bytes()), Link(1, entry(0).to_bytes())]
    with pytest.raises(ChainBroken, match="audit entry 0 was altered: its bytes say that it is entry 1"):
        verify_chain(bare)
