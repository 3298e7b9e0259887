"""Traces come back as they were written, can be erased, and a broken file stops no other."""

import math
from datetime import UTC, datetime, timedelta

import pytest

from specops.core.trace import Alternative, Cap, Control, Cut, Decided, Hand, Round, Rule, State, Trace
from specops.errors import InvalidInput, InvalidRecord, StoreUnavailable
from specops.store.traces import TraceFolder

T0 = datetime(2026, 12, 7, 9, 0, tzinfo=UTC)
STATE = State(committed=3, target_cached=2, draft_cached=None, sha256="a" * 64)
ROUND = Round(
    drafted=(5, 6), is_one_hot=False, draft_probs=(0.1, 1 / 3), target_probs=(0.3, 5e-324), accept_probs=(1.0, 0.0),
    draft_entropies_nats=(0.5, 0.6), target_entropies_nats=(0.1, math.pi, 0.3),
    alternatives=((Alternative(token=5, target_prob=0.3, draft_prob=0.1),), (), (Alternative(token=1, target_prob=1.0),)),
    coins=(None, 0.25), last_coin=0.75, last_prob=0.5, rule=Rule.TOKEN, accepted=1, residual_mass=0.2,
    decided=Decided.RECOVERED, emitted=(5, 7), cap=Cap.NONE, cut=None, stage_s=(1e-3, 2e-3, 3e-4, 4e-5),
    stage_bytes=(1, 2, 3, 4), before=STATE, after=STATE,
)  # fmt: skip


@pytest.fixture
def make_trace():
    """Return a builder of traces."""

    def make(request_id="cmpl-1", at=T0, rounds=(ROUND,), ended=Cut.ABORT):
        control = Control(after_round=1, hand=Hand.HUMAN, what="the client left")
        return Trace(
            request_id=request_id, at=at, engine={"k": 2, "draft": None}, settings={"temperature": 0.7}, prompt_ids=(1, 2),
            first=(3,), first_alternatives=(Alternative(token=3, target_prob=0.9),), queue_s=0.01, prefill_s=0.02,
            rounds=rounds, ended=ended, text_tokens=3, controls=(control,),
        )  # fmt: skip

    return make


@pytest.fixture
def folder(tmp_path):
    """Return an empty folder of traces, which does not exist yet."""
    return TraceFolder(tmp_path / "traces")


def test_a_trace_comes_back_as_it_was(folder, make_trace):
    """To the last bit of every number, also with no alternatives at a position, and from a new object."""
    folder.write(make_trace())

    assert TraceFolder(folder.folder).read("cmpl-1") == make_trace()


def test_a_trace_without_rounds_is_a_trace(folder, make_trace):
    """An answer of one token has none."""
    folder.write(make_trace(rounds=(), ended=None))

    assert folder.read("cmpl-1") == make_trace(rounds=(), ended=None)


def test_the_newest_of_two_with_one_id_is_read(folder, make_trace):
    """A client may send an id again; nothing is overwritten."""
    folder.write(make_trace())
    folder.write(make_trace(at=T0 + timedelta(seconds=1)))

    assert folder.read("cmpl-1").at == T0 + timedelta(seconds=1)
    assert len(folder.lines()) == 2


@pytest.mark.parametrize("request_id", ["../../etc/passwd", "a" * 5_000, "日本", "*", "", "x\ud800"])
def test_an_id_chooses_no_path(folder, make_trace, request_id):
    """It is the client's: the file stays in the folder, whatever the id."""
    path = folder.write(make_trace(request_id))

    assert path.parent == folder.folder
    assert folder.read(request_id).request_id == request_id


def test_a_listing_counts_and_selects(folder, make_trace):
    """Newest first, within the times asked for."""
    for i in range(3):
        folder.write(make_trace(f"cmpl-{i}", at=T0 + timedelta(hours=i)))

    assert [line.request_id for line in folder.lines()] == ["cmpl-2", "cmpl-1", "cmpl-0"]
    assert [line.request_id for line in folder.lines(since=T0 + timedelta(hours=1), before=T0 + timedelta(hours=2))] == [
        "cmpl-1"
    ]
    (line,) = folder.lines(last=1)
    assert (line.rounds, line.drafted, line.accepted, line.emitted, line.ended) == (1, 2, 1, 3, "abort")


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "text"])
def test_a_broken_file_is_named_and_stops_no_other(folder, make_trace, damage):
    """Reading it says which file; the others are read."""
    path, _ = folder.write(make_trace("bad")), folder.write(make_trace("good", at=T0 - timedelta(1)))
    raw = path.read_bytes()
    middle = len(raw) // 4
    flipped = raw[:middle] + bytes([raw[middle] ^ 255]) + raw[middle + 1 :]
    path.write_bytes({"cut": raw[:-20], "flip": flipped, "empty": b"", "text": b"no parquet"}[damage])

    with pytest.raises(InvalidRecord, match=path.name):
        folder.read("bad")
    bad, good = folder.read_all()
    assert path.name in bad.wrong
    assert good.request_id == "good"


def test_erasing_takes_what_is_named(folder, make_trace):
    """By id, or by time, where a broken file goes too; never everything by accident."""
    for i in range(3):
        path = folder.write(make_trace(f"cmpl-{i}", at=T0 - timedelta(hours=i)))
    path.write_bytes(b"broken")

    assert folder.erase("cmpl-0") == 1
    assert folder.erase("cmpl-0") == 0
    assert folder.erase(before=T0 - timedelta(hours=1)) == 1
    assert [line.request_id for line in folder.lines()] == ["cmpl-1"]
    with pytest.raises(InvalidInput, match="one of them"):
        folder.erase()


def test_a_full_folder_takes_no_more_until_something_is_erased(tmp_path, make_trace):
    """The limit is on bytes; somebody else's erasing counts too."""
    size = TraceFolder(tmp_path / "probe").write(make_trace()).stat().st_size
    folder = TraceFolder(tmp_path / "traces", most_bytes=size + size // 2)
    path = folder.write(make_trace())

    with pytest.raises(StoreUnavailable, match="is full"):
        folder.write(make_trace())
    assert folder.read("cmpl-1") == make_trace()
    path.unlink()
    assert folder.write(make_trace()).exists()


def test_a_disk_that_refuses_is_an_error_of_ours(tmp_path, make_trace):
    """It names the file, and leaves no part of one."""
    (tmp_path / "file").write_text("in the way")

    with pytest.raises(StoreUnavailable, match="cannot write trace"):
        TraceFolder(tmp_path / "file" / "traces").write(make_trace())


def test_nothing_there_says_how_to_get_one(folder):
    """An unknown id is the caller's mistake."""
    assert folder.lines() == []
    with pytest.raises(InvalidInput, match="no trace of 'cmpl-9'"):
        folder.read("cmpl-9")
