"""Kill -9 in the middle of appending: what a process was told is committed is in the log, and the log is one chain.

Each process writes down the index of every entry whose transaction has committed, on the disk, before it goes on. A second
scaled run of the acceptance figure; `tests/benchmarks/audit.py` measures the whole: 4 processes, 2,500 entries each.
"""

import contextlib
from itertools import islice

import pytest

from specops.adapters.signing import load_or_create
from specops.store.database import open_store
from specops.store.verify import verify
from tests.benchmarks.appender import committed, start

pytestmark = [pytest.mark.flow, pytest.mark.slow]
PROCESSES, ENTRIES = 4, 300


def test_a_killed_writer_loses_no_committed_entry_and_breaks_no_chain(tmp_path):
    """The first of four is killed once it has a third of its entries; all others finish."""
    url = f"sqlite:///{tmp_path / 'specops.db'}"
    with contextlib.closing(open_store(url, segments=tmp_path)) as store, contextlib.ExitStack() as stack:
        journals = [tmp_path / f"committed-{n}" for n in range(PROCESSES)]
        children = [
            stack.enter_context(start(url, tmp_path, ENTRIES, journal, watched=journal is journals[0])) for journal in journals
        ]
        assert len(list(islice(children[0].stdout, ENTRIES // 3))) == ENTRIES // 3
        children[0].kill()
        assert [child.wait(timeout=120) for child in children[1:]] == [0] * (PROCESSES - 1)
        children[0].wait()

        told = [committed(journal) for journal in journals]
        found = verify(store, tmp_path / "none", load_or_create(tmp_path).public_key)
        with store.read() as unit:
            actors = {entry.index: entry.actor for entry in unit.audit.read()}

    assert ENTRIES // 3 <= len(told[0]) < ENTRIES
    assert [len(one) for one in told[1:]] == [ENTRIES] * (PROCESSES - 1)
    assert all(actors[index] == str(journal) for journal, one in zip(journals, told, strict=True) for index in one)
    assert 0 <= found.size - sum(map(len, told)) <= 1  # the kill may fall between a commit and the word of it
