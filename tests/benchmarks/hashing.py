"""Hashing weights: both digests and every tensor's in one read, against SHA-256 alone and model_signing; the re-scan; memory.

2 GiB of 32 MiB tensors in the page cache: as one safetensors file, then as four shards. SHA-256 of one file is sequential, so
`hashlib.file_digest` (over shards: one file per processor) is the most that any implementation can reach; how far the peer is
from it is measured in the same run. The peer computes SHA-256 alone, ours BLAKE3 and each tensor's digest beside it. It runs
where SPECOPS_BENCH_MODEL_SIGNING names a Python that has it (`pip install model-signing pyopenssl`).
"""

import hashlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from specops.adapters.rescan import HashCache
from specops.adapters.weights import hash_artifact
from specops.core.release import ArtifactKind
from tests.benchmarks.row import Row

TENSOR_BYTES, TENSORS, SHARDS, RUNS, FILES = 32 << 20, 64, 4, 5, 1_000
PEER = "SPECOPS_BENCH_MODEL_SIGNING"
_NO_PEER = f"not measured: set {PEER} to a Python that has model-signing and pyopenssl"
QUIET = 0.1  # processors that others use on a quiet machine; the floor alone would not feel one busy neighbour, two lanes do
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
        big, shards, many = Path(scratch) / "big", Path(scratch) / "shards", Path(scratch) / "many"
        _write(big / "model.safetensors", [TENSOR_BYTES] * TENSORS)
        yield from _one_file(_race(big))
        grown_mb = _run(sys.executable, _MEMORY, big) / 1024
        yield Row(
            check="peak memory beyond the start", figure=grown_mb, unit="MB", goal=f"< {MAX_RSS_MB}",
            holds=grown_mb < MAX_RSS_MB, against="the same process before hashing", runs=1,
        )  # fmt: skip
        shutil.rmtree(big)  # 2 GiB at a time: all of it has to stay in the page cache
        for number in range(SHARDS):
            _write(shards / f"model-{number}.safetensors", [TENSOR_BYTES] * (TENSORS // SHARDS))
        yield from _sharded(_race(shards))
        yield _rescan(many)


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """Median wall seconds for one folder, taken in turn; `theirs` None: no peer here. `busy` says who else computed."""

    floor: float
    ours: float
    theirs: float | None
    busy: str

    def speed(self, seconds: float | None) -> str:
        """Say how fast the folder was read."""
        return "not measured" if seconds is None else f"{TENSOR_BYTES * TENSORS / 1e9 / seconds:.2f} GB/s"


def _race(folder: Path) -> Race:
    """Hash a folder with the floor, ours and the peer in turn."""
    peer, processors = os.environ.get(PEER, ""), len(os.sched_getaffinity(0))
    files = sorted(folder.iterdir())
    lanes = min(processors, len(files))
    floor, ours, theirs = [], [], []
    with ThreadPoolExecutor(lanes) as pool:
        list(pool.map(_sha256, files))  # brings the files into the page cache
        began_s, others_s = time.perf_counter(), _others_s()
        for _ in range(RUNS):
            floor.append(_timed(lambda: list(pool.map(_sha256, files))))
            ours.append(_timed(lambda: hash_artifact(ArtifactKind.TARGET, "big", folder, tensors=True)))
            if peer:
                theirs.append(_run(peer, _SIGNING, folder))
    others = (_others_s() - others_s) / (time.perf_counter() - began_s)
    return Race(
        floor=statistics.median(floor), ours=statistics.median(ours), theirs=statistics.median(theirs) if theirs else None,
        busy=f"others used {others:.1f} of {processors} processors; run it alone" if others > QUIET else "",
    )  # fmt: skip


def _others_s() -> float:
    """Return the processor seconds since boot that neither this process nor its children used (proc_stat(5))."""
    user, nice, system, _, _, *interrupts = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9])
    return (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK") - sum(os.times()[:4])


def _one_file(race: Race) -> Iterator[Row]:
    """Compare; where others compute too, two threads against one measure the others, and a miss is no finding."""
    reached = race.floor / race.ours
    yield Row(
        check="both digests and all tensors, 2 GiB, of SHA-256 alone", figure=reached, unit="x", goal=f">= {MIN_SHARE}",
        holds=True if reached >= MIN_SHARE else None if race.busy else False, runs=RUNS, why=race.busy,
        against=f"hashlib.file_digest {race.speed(race.floor)}, ours {race.speed(race.ours)}, load {os.getloadavg()[0]:.1f}",
    )  # fmt: skip
    gain, most = (race.theirs / race.ours, race.theirs / race.floor) if race.theirs else (None, None)
    yield Row(
        check="model_signing (files, sha256) / ours, wall", figure=gain, unit="x", goal=f">= {MIN_GAIN}", runs=RUNS,
        holds=None if gain is None or (race.busy and gain < MIN_GAIN) else gain >= MIN_GAIN,
        against=f"model_signing {race.speed(race.theirs)}", why=race.busy if gain else _NO_PEER,
    )  # fmt: skip
    yield _told("model_signing / SHA-256 alone: the most that any SHA-256 of one file could reach", most, race)


def _sharded(race: Race) -> Iterator[Row]:
    """Compare where whole files can be hashed at once; the issue sets no goal, the figures say what three digests cost."""
    yield _told(f"{SHARDS} shards: SHA-256 alone, a file per processor / ours", race.floor / race.ours, race)
    yield _told(f"{SHARDS} shards: model_signing / ours, wall", race.theirs and race.theirs / race.ours, race)
    yield _told(f"{SHARDS} shards: model_signing / SHA-256 alone", race.theirs and race.theirs / race.floor, race)


def _told(check: str, figure: float | None, race: Race) -> Row:
    """Return a row without a goal."""
    speeds = f"SHA-256 {race.speed(race.floor)}, ours {race.speed(race.ours)}, model_signing {race.speed(race.theirs)}"
    return Row(
        check=check, figure=figure, unit="x", goal="", holds=None if figure is None else True, runs=RUNS,
        against=f"{speeds}{'; ' * bool(race.busy)}{race.busy}", why="" if figure else _NO_PEER,
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
    with path.open("rb", buffering=0) as file:
        hashlib.file_digest(file, "sha256")


def _timed(work: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    work()
    return time.perf_counter() - began_s


def _run(python: str, code: str, folder: Path) -> float:
    done = subprocess.run([python, "-c", code, str(folder)], check=True, capture_output=True, text=True)  # own code
    return float(done.stdout)
