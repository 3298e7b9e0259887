"""Audit entries byte for byte, and a log that was tampered with."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specops.core.audit import AuditEntry, Checkpoint, Link, verify_chain
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
    assert verify_chain(links) == frontiers[7]
    assert verify_chain(links, head=frontiers[7], checkpoints=heads) == frontiers[7]


@settings(max_examples=80, deadline=None)
@given(size=st.integers(1, 9), data=st.data())
def test_any_edited_byte_breaks_the_chain_and_is_named(size, data):
    """One flipped bit anywhere in an entry is found, at that entry."""
    links, frontiers = log(size)
    bad = data.draw(st.integers(0, size - 1))
    at = data.draw(st.integers(0, len(links[bad].raw) - 1))
    raw = bytearray(links[bad].raw)
    raw[at] ^= 1 << data.draw(st.integers(0, 7))
    links[bad] = replace(links[bad], raw=bytes(raw))

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
        *(replace(x, index=x.index + 1) for x in links[1:]),
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
    bare = [Link(x.index, entry(x.index, actor="eve" if x.index == 2 else "control").to_bytes()) for x in links]
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
