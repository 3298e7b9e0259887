"""Raw samples: filed under a keyed hash, gone when erased or over their time, and never in the audit log."""

from datetime import timedelta

import pytest

from specops.errors import InvalidRecord
from specops.store.samples import SampleKeeper

SECRET = bytes(range(32))


@pytest.fixture
def keeper():
    """Return a keeper of 30 days."""
    return SampleKeeper(secret=SECRET, days=30)


@pytest.fixture
def keep(store, keeper, t0):
    """Return a function that keeps a sample."""

    def run(request_id="req-1", prompt="who is Ann", output="a person", at=t0):
        with store.begin() as unit:
            keeper.keep(unit, request_id, prompt, output, at)

    return run


def test_a_sample_is_found_by_its_request_and_filed_under_a_keyed_hash(store, keeper, keep, t0):
    """Prompt first; another secret finds nothing; the request id is not in the table."""
    keep()
    with store.read() as unit:
        found = keeper.show(unit, "req-1")
        assert [(s.part, s.content) for s in found] == [("prompt", b"who is Ann"), ("output", b"a person")]
        assert {s.expires_at for s in found} == {t0 + timedelta(days=30)}
        assert SampleKeeper(secret=bytes(32), days=30).show(unit, "req-1") == []
        assert "req-1" not in keeper.key("req-1")


def test_keeping_again_replaces(store, keeper, keep):
    """One prompt and one output per request."""
    keep()
    keep(output="another person")
    with store.read() as unit:
        assert [s.content for s in keeper.show(unit, "req-1")] == [b"who is Ann", b"another person"]


def test_an_erasure_is_on_record_without_what_was_erased(store, keeper, keep, t0):
    """Keyed hash and count; erasing what is not there changes nothing."""
    keep()
    with store.begin() as unit:
        assert keeper.erase(unit, "req-1", actor="ann", now=t0) == 2
        assert keeper.erase(unit, "req-1", actor="ann", now=t0) == 0
    with store.read() as unit:
        (entry,) = unit.audit.all()
        assert keeper.show(unit, "req-1") == []
    assert (entry.tag, entry.subject, entry.payload) == ("samples:request:erased", keeper.key("req-1"), {"parts": 2})
    assert b"Ann" not in entry.to_bytes()


def test_what_is_over_its_time_goes_and_the_rest_stays(store, keeper, keep, t0):
    """One entry with a count; no entry when nothing was due."""
    keep()
    keep("req-2", at=t0 + timedelta(days=1))
    with store.begin() as unit:
        assert keeper.expire(unit, actor="control", now=t0 + timedelta(days=30)) == 2
        assert keeper.expire(unit, actor="control", now=t0 + timedelta(days=30)) == 0
    with store.read() as unit:
        assert [e.payload for e in unit.audit.read(tag="samples")] == [{"parts": 2}]
        assert len(keeper.show(unit, "req-2")) == 2


def test_an_erased_text_is_not_left_in_the_file(store, keeper, keep, path, t0):
    """SQLite overwrites what it deletes; closing folds the write-ahead log into the file."""
    keep(prompt="UNMISTAKABLE " * 50)
    with store.begin() as unit:
        keeper.erase(unit, "req-1", actor="ann", now=t0)
    store.close()
    assert [p.name for p in path.parent.glob("specops.db*") if b"UNMISTAKABLE" in p.read_bytes()] == []


def test_text_that_is_no_unicode_is_kept_all_the_same(store, keeper, keep):
    """Half a surrogate pair comes out of broken tokens."""
    keep(output="\ud83d")
    with store.read() as unit:
        assert keeper.show(unit, "req-1")[1].content == b"\xed\xa0\xbd"


@pytest.mark.parametrize(("secret", "days"), [(b"short", 30), (SECRET, 0)])
def test_a_short_secret_or_no_days_is_refused(secret, days):
    """A guessable key is no key; and the secret is not printed."""
    with pytest.raises(InvalidRecord, match="samples_days"):
        SampleKeeper(secret=secret, days=days)
    assert "secret" not in repr(SampleKeeper(secret=SECRET, days=1))
