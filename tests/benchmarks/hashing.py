"""Hashing weights: both digests and every tensor's in one read, against SHA-256 alone and model_signing; the re-scan; memory.

One 2 GiB safetensors file of 32 MiB tensors in the page cache. The floor is hashlib.sha256 over the same reads, in turn. The
peer runs where SPECOPS_BENCH_MODEL_SIGNING names a Python that has it (`pip install model-signing pyopenssl`).
"""

import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from specops.adapters.hashing import CHUNK_BYTES
from specops.adapters.rescan import HashCache
from specops.adapters.weights import hash_artifact
from specops.core.release import ArtifactKind
from tests.benchmarks.row import Row

TENSOR_BYTES, TENSORS, RUNS, FILES = 32 << 20, 64, 5, 1_000
PEER = "SPECOPS_BENCH_MODEL_SIGNING"
QUIET = 0.95  # share of a processor that one busy thread gets on a quiet machine
MIN_SHARE, MIN_GAIN, MAX_RSS_MB, MAX_RESCAN_S = 0.85, 1.5, 150, 0.2
_MEMORY = (
    "import re,sys;from pathlib import Path;from specops.adapters.weights import hash_artifact as h;"
    "from specops.core.release import ArtifactKind as K;import blake3,concurrent.futures;"
    "m=lambda k:int(re.search(k+r':\\s+(\\d+)',Path('/proc/self/status').read_text())[1]);b=m('VmRSS');"
    "h(K.TARGET,'x',Path(sys.argv[1]),tensors=True);print(m('VmHWM')-b)"
)
_SIGNING = (
    "import sys,time;from model_signing import hashing as h;from pathlib import Path;"
    "c=h.Config().use_file_serialization(hashing_algorithm='sha256');b=time.perf_counter();c.hash(Path(sys.argv[1]));"
    "print(time.perf_counter()-b)"
)


def measure() -> Iterator[Row]:
    """Write the file, measure, and yield every row."""
    with tempfile.TemporaryDirectory(prefix="specops-bench-") as scratch:
        big, many = Path(scratch) / "big", Path(scratch) / "many"
        _write_big(big)
        peer = os.environ.get(PEER, "")
        floor, ours, theirs, shares = [], [], [], []
        _sha256(big / "model.safetensors")  # brings the file into the page cache
        for _ in range(RUNS):
            cpu_s = time.process_time()
            floor.append(_timed(lambda: _sha256(big / "model.safetensors")))
            shares.append((time.process_time() - cpu_s) / floor[-1])
            ours.append(_timed(lambda: hash_artifact(ArtifactKind.TARGET, "big", big, tensors=True)))
            if peer:
                theirs.append(_run(peer, _SIGNING, big))
        yield from _speed(floor, ours, theirs, statistics.median(shares))
        grown_mb = _run(sys.executable, _MEMORY, big) / 1024
        yield Row(
            check="peak memory beyond the start", figure=grown_mb, unit="MB", goal=f"< {MAX_RSS_MB}",
            holds=grown_mb < MAX_RSS_MB, against="the same process before hashing", runs=1,
        )  # fmt: skip
        yield _rescan(many)


def _speed(floor: list[float], ours: list[float], theirs: list[float], share: float) -> Iterator[Row]:
    """Compare medians; where others compute too, two threads against one measure the others, and a miss is no finding."""
    busy = f"the floor got {share:.0%} of a processor, others the rest; run it alone" if share < QUIET else ""
    size_gb = TENSOR_BYTES * TENSORS / 1e9
    mine, alone = statistics.median(ours), statistics.median(floor)
    yield Row(
        check="both digests and all tensors, 2 GiB, of SHA-256 alone", figure=alone / mine, unit="x", goal=f">= {MIN_SHARE}",
        holds=True if alone / mine >= MIN_SHARE else None if busy else False, runs=len(ours), why=busy,
        against=f"hashlib.sha256 {size_gb / alone:.2f} GB/s, ours {size_gb / mine:.2f}, load {os.getloadavg()[0]:.1f}",
    )  # fmt: skip
    gain = statistics.median(theirs) / mine if theirs else None
    yield Row(
        check="model_signing (files, sha256) / ours, wall", figure=gain, unit="x", goal=f">= {MIN_GAIN}",
        holds=None if gain is None or (busy and gain < MIN_GAIN) else gain >= MIN_GAIN, against="model_signing",
        runs=len(theirs), why=busy if theirs else f"set {PEER} to a Python that has model-signing and pyopenssl",
    )  # fmt: skip


def _rescan(folder: Path) -> Row:
    """Scan an unchanged tree of small safetensors files again."""
    for index in range(FILES):
        _write(folder / f"part-{index // 100}" / f"{index}.safetensors", [16] * 4)

    def later() -> int:  # the racy-clean rule keeps nothing that was written within 2 s
        return time.time_ns() + 10**10

    with HashCache(folder.parent / "hashes.db", clock_ns=later) as cache:
        first_s = _timed(lambda: hash_artifact(ArtifactKind.CORPUS, "many", folder, tensors=True, cache=cache))
    again = []
    for _ in range(RUNS):
        with HashCache(folder.parent / "hashes.db", clock_ns=later) as cache:
            again.append(_timed(lambda: hash_artifact(ArtifactKind.CORPUS, "many", folder, tensors=True, cache=cache)))
    figure = statistics.median(again)
    return Row(
        check=f"unchanged re-scan of {FILES} files", figure=figure, unit="s", goal=f"<= {MAX_RESCAN_S}",
        holds=figure <= MAX_RESCAN_S, against=f"the first scan, {first_s:.2f} s", runs=RUNS,
    )  # fmt: skip


def _write_big(folder: Path) -> None:
    _write(folder / "model.safetensors", [TENSOR_BYTES] * TENSORS)


def _write(path: Path, sizes: list[int]) -> None:
    header, at = {}, 0
    for index, size in enumerate(sizes):
        header[f"layer.{index}"] = {"dtype": "F32", "shape": [size // 4], "data_offsets": [at, at + size]}
        at += size
    raw, block = json.dumps(header).encode(), os.urandom(max(sizes))
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(len(raw).to_bytes(8, "little") + raw)
        for size in sizes:
            file.write(block[:size])


def _sha256(path: Path) -> None:
    hasher, view = hashlib.sha256(), memoryview(bytearray(CHUNK_BYTES))
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(view):
            hasher.update(view[:count])


def _timed(work: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    work()
    return time.perf_counter() - began_s


def _run(python: str, code: str, folder: Path) -> float:
    done = subprocess.run([python, "-c", code, str(folder)], check=True, capture_output=True, text=True)  # own code
    return float(done.stdout)
