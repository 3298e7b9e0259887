"""The cache of digests: what it lets be skipped, what it must not believe, and that it is only a hint."""

import json
import sqlite3
import time

import pytest

from specops.adapters.rescan import HashCache
from specops.adapters.weights import compare_artifact, hash_artifact
from specops.core.release import ArtifactKind
from specops.errors import InvalidWeights


def later():
    """Return a time at which every file has been quiet for long."""
    return time.time_ns() + 10**10


@pytest.fixture
def folder(tmp_path):
    """Return a folder with weights and a config."""
    folder = tmp_path / "model"
    folder.mkdir()
    raw = json.dumps({"a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}}).encode()
    (folder / "m.safetensors").write_bytes(len(raw).to_bytes(8, "little") + raw + b"abcd")
    (folder / "config.json").write_text("{}")
    return folder


def scan(folder, tmp_path, *, full=False, clock=later, tensors=True, cache="hashes.db"):
    """Hash with the cache; return the artifact and the steps of the progress: one for all that was known, one per file read."""
    steps = []
    with HashCache(tmp_path / cache, full=full, clock_ns=clock) as known:
        options = {"tensors": tensors, "cache": known, "progress": lambda done, _: steps.append(done)}
        artifact = hash_artifact(ArtifactKind.TARGET, "m", folder, **options)
    return artifact, len(steps)


def test_unchanged_files_are_not_read_again(folder, tmp_path):
    """The second scan gives the same artifact from metadata alone: even bytes changed behind the system's back stay unseen."""
    first, read = scan(folder, tmp_path)
    second, again = scan(folder, tmp_path)

    assert (second, read, again) == (first, 2, 1)
    assert first.tensors


def test_full_reads_every_byte(folder, tmp_path):
    """Nothing is believed."""
    scan(folder, tmp_path)

    assert scan(folder, tmp_path, full=True)[1] == 2


def test_a_changed_file_is_hashed_again(folder, tmp_path):
    """Size, times or inode differ: the one file is read."""
    first, _ = scan(folder, tmp_path)
    (folder / "config.json").write_text("[]")

    second, steps = scan(folder, tmp_path)

    assert steps == 2
    assert second.digest != first.digest


def test_a_file_written_a_moment_ago_is_not_kept(folder, tmp_path):
    """A second write in the same tick of the clock would not be seen."""
    scan(folder, tmp_path, clock=time.time_ns)

    assert scan(folder, tmp_path)[1] == 2


def test_digests_of_tensors_are_made_when_they_are_asked_for(folder, tmp_path):
    """A scan without tensors serves a scan without them, not one with."""
    plain, _ = scan(folder, tmp_path, tensors=False)
    assert scan(folder, tmp_path, tensors=False)[1] == 1

    whole, steps = scan(folder, tmp_path)

    assert steps == 2
    assert (plain.tensors, len(whole.tensors)) == ((), 1)


def test_a_run_that_stopped_goes_on(folder, tmp_path):
    """Files hashed before an error or an interrupt are not read again."""
    def stop(done, _):
        raise KeyboardInterrupt

    with HashCache(tmp_path / "hashes.db", clock_ns=later) as cache:
        hash_artifact(ArtifactKind.CORPUS, "c", folder, files=["config.json"], cache=cache)
        with pytest.raises(KeyboardInterrupt):
            hash_artifact(ArtifactKind.TARGET, "m", folder, files=["m.safetensors"], cache=cache, progress=stop)

    assert scan(folder, tmp_path)[1] == 2


def test_a_missing_shard_is_seen_though_all_else_is_known(folder, tmp_path):
    """The index is compared with what is there at every scan."""
    (folder / "m.safetensors.index.json").write_text('{"weight_map": {"a": "m.safetensors"}}')
    scan(folder, tmp_path)
    (folder / "m.safetensors").unlink()

    with pytest.raises(InvalidWeights, match=r"names the shard 'm\.safetensors', which is missing"):
        scan(folder, tmp_path)


@pytest.mark.parametrize("ruin", ["bytes", "row", "folder", "table"])
def test_a_cache_that_cannot_be_read_is_an_empty_one(folder, tmp_path, ruin):
    """It is a hint: without it everything is hashed."""
    path, (first, _) = tmp_path / "hashes.db", scan(folder, tmp_path)
    if ruin == "bytes":
        path.write_bytes(b"no database at all" * 100)
    elif ruin == "folder":
        path.unlink()
        path.mkdir()
    else:
        base = sqlite3.connect(path, isolation_level=None)
        base.execute("UPDATE hashed_1 SET tensors='{'" if ruin == "row" else "DROP TABLE hashed_1")
        base.close()

    second, steps = scan(folder, tmp_path)

    assert (second, steps) == (first, 2)


def test_a_check_believes_the_cache_unless_it_is_full(folder, tmp_path):
    """`full` reads what the cache would have answered."""
    artifact, _ = scan(folder, tmp_path)
    steps = []
    with HashCache(tmp_path / "hashes.db", clock_ns=later) as cache:
        for full in (False, True):
            assert not compare_artifact(artifact, folder, full=full, cache=cache, progress=lambda *step: steps.append(step))
    assert steps == [(2, artifact.size), (artifact.size, artifact.size)]
