"""The audit log: appends one by one, in batches and by four processes, one of them killed; verification of a million entries.

The floor of an append is what the same disk takes for a commit of a bare SQLite row in the same run. The verification runs in a
process of its own, so that its memory is its own. `SPECOPS_BENCH_ENTRIES` makes the long log shorter for a quick look.
"""

import contextlib
import json
import os
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path

from specops.adapters.signing import load_or_create
from specops.store.audit import NewEntry
from specops.store.database import Store, open_store
from specops.store.verify import verify
from tests.benchmarks.appender import committed, start
from tests.benchmarks.row import Row

ENTRIES = int(os.environ.get("SPECOPS_BENCH_ENTRIES", "1000000"))
BATCH = 10_000
SINGLE = 300
PROCESSES, EACH = 4, 2_500
MAX_VERIFY_S, MAX_RSS_MB = 60.0, 300.0
T0 = datetime(2026, 1, 1, tzinfo=UTC)


def measure() -> Iterator[Row]:
    """Measure in a temporary folder."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        yield from _killed(folder)
        path = folder / "long.db"
        with contextlib.closing(open_store(f"sqlite:///{path}", segments=folder)) as store:
            yield _singles(store, folder)
            yield _batches(store)
            store.checkpoint(load_or_create(folder), folder / "checkpoints.txt")
        yield from _verification(folder, path)


def _entry(number: int) -> NewEntry:
    """Return an entry of usual size: about 300 bytes."""
    payload = {"action": "advance", "reason": "all checks passed", "step": number % 5, "outcomes": number, "policy": "a" * 64}
    return NewEntry(
        tag="rollout:step:advanced",
        actor="control",
        subject=f"ro-{number % 100}",
        payload=payload,
        at=T0 + timedelta(seconds=number),
    )


def _singles(store: Store, folder: Path) -> Row:
    """Append one entry per transaction, in turn with a bare row per commit under the same guarantees."""
    bare = sqlite3.connect(folder / "bare.db", isolation_level=None)
    for statement in ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL", "CREATE TABLE t (raw BLOB)"):
        bare.execute(statement)
    ours = floor = 0.0
    for number in range(SINGLE):
        began = time.perf_counter()
        with store.begin() as unit:
            unit.audit.append(**_entry(number))
        middle = time.perf_counter()
        bare.execute("INSERT INTO t VALUES (?)", (b"x" * 300,))
        ours, floor = ours + middle - began, floor + time.perf_counter() - middle
    bare.close()
    return Row(
        check="appends, one per transaction", figure=SINGLE / ours, unit="1/s", goal=">= 50", holds=SINGLE / ours >= 50,
        against=f"a bare row per commit: {SINGLE / floor:.0f}/s", runs=SINGLE,
    )  # fmt: skip


def _batches(store: Store) -> Row:
    """Fill the log up with batches."""
    with store.read() as unit:
        size = unit.audit.head().size
    began = time.perf_counter()
    for first in range(size, ENTRIES, BATCH):
        with store.begin() as unit:
            unit.audit.append_many(map(_entry, range(first, min(first + BATCH, ENTRIES))))
    rate = (ENTRIES - size) / (time.perf_counter() - began)
    return Row(
        check=f"appends, {BATCH} per transaction", figure=rate, unit="1/s", goal=">= 5000", holds=rate >= 5_000,
        against="", runs=1,
    )  # fmt: skip


def _killed(folder: Path) -> Iterator[Row]:
    """Four processes append; the first is killed once it has half of its entries."""
    url, journals = f"sqlite:///{folder / 'shared.db'}", [folder / f"journal-{n}" for n in range(PROCESSES)]
    with contextlib.closing(open_store(url, segments=folder)) as store, contextlib.ExitStack() as stack:
        began = time.perf_counter()
        children = [stack.enter_context(start(url, folder, EACH, j, watched=j is journals[0])) for j in journals]
        stdout = children[0].stdout
        assert stdout is not None
        for _ in islice(stdout, EACH // 2):
            pass
        children[0].kill()
        codes = [child.wait() for child in children]
        took_s = time.perf_counter() - began
        told = [committed(journal) for journal in journals]
        found = verify(store, folder / "none.txt", load_or_create(folder).public_key)
        with store.read() as unit:
            actors = {entry.index: entry.actor for entry in unit.audit.read()}
    lost = sum(actors.get(i) != str(j) for j, indices in zip(journals, told, strict=True) for i in indices)
    clean = codes[1:] == [0] * (PROCESSES - 1) and found.size - sum(map(len, told)) in {0, 1}
    yield Row(
        check=f"{PROCESSES} processes x {EACH}, kill -9 of one midway: committed entries lost", figure=lost, unit="", goal="0",
        holds=lost == 0 and clean, against=f"{found.size} entries in one chain, verified", runs=1,
    )  # fmt: skip
    yield Row(
        check=f"appends, {PROCESSES} processes", figure=found.size / took_s, unit="1/s", goal="", holds=True,
        against="one writer at a time, 2 fsyncs each", runs=1,
    )  # fmt: skip


def _verification(folder: Path, path: Path) -> Iterator[Row]:
    """Verify in a process of its own."""
    command = [sys.executable, "-m", "tests.benchmarks.audit", str(folder), str(path)]
    result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    whole = ENTRIES >= 1_000_000
    why = "" if whole else f"only {ENTRIES} entries"
    cpu = f"{result['cpu_s']:.0f} s of CPU; more on the clock is a busy machine"
    for check, figure, unit, limit, against in (
        (f"audit verify, {result['size']} entries", result["seconds"], "s", MAX_VERIFY_S, cpu),
        ("peak memory of that", result["rss_mb"], "MB", MAX_RSS_MB, ""),
        ("one inclusion proof of that log", result["prove_s"], "s", MAX_VERIFY_S, ""),
    ):
        yield Row(
            check=check, figure=figure, unit=unit, goal=f"<= {limit:g}", holds=figure <= limit if whole else None,
            against=against, runs=1, why=why,
        )  # fmt: skip


def _verify_here(folder: Path, path: Path) -> None:
    """Verify, and print seconds and this process's peak memory."""
    with contextlib.closing(open_store(f"sqlite:///{path}", segments=folder)) as store:
        began, cpu_began = time.perf_counter(), time.process_time()
        found = verify(store, folder / "checkpoints.txt", load_or_create(folder).public_key)
        seconds, cpu_s = time.perf_counter() - began, time.process_time() - cpu_began
        with store.read() as unit:
            began = time.perf_counter()
            unit.audit.prove(found.size // 3)
            prove_s = time.perf_counter() - began
    rss_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"size": found.size, "seconds": seconds, "cpu_s": cpu_s, "rss_mb": rss_mb, "prove_s": prove_s}))  # noqa: T201


if __name__ == "__main__":
    _verify_here(Path(sys.argv[1]), Path(sys.argv[2]))
