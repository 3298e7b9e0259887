"""One read, three kinds of digest; a file that changes meanwhile is refused."""

import hashlib
import itertools

import pytest
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st

from specops.adapters.file_tree import Stamp, locate
from specops.adapters.hashing import CHUNK_BYTES, _Tensors, fast_digest, hash_file
from specops.core.safetensors import Tensor
from specops.errors import InvalidWeights


def located(tmp_path, content):
    """Write a file and return it as located."""
    (tmp_path / "x.dat").write_bytes(content)
    return locate(tmp_path)[0]


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES, CHUNK_BYTES + 1, 11 * CHUNK_BYTES + 7])
def test_the_digests_are_those_of_the_whole_file(tmp_path, size):
    """Empty, small, one piece, many pieces: as hashlib and blake3 say, by both ways of reading."""
    content = (bytes(range(251)) * (size // 251 + 1))[:size]
    found = located(tmp_path, content)

    file = hash_file(found).file

    assert (file.path, file.size) == ("x.dat", size)
    assert file.sha256 == hashlib.sha256(content).hexdigest()
    assert file.blake3 == blake3(content).hexdigest() == fast_digest(found)


def test_tensors_across_pieces_are_digested_whole(tmp_path):
    """Boundaries of pieces and of tensors have nothing to do with each other."""
    content = bytes(range(256)) * (3 * CHUNK_BYTES // 256)
    cuts = (100, 101, CHUNK_BYTES, CHUNK_BYTES, 2 * CHUNK_BYTES + 5, len(content), len(content))
    spans = [
        Tensor(name=f"t{i}", dtype="U8", shape=(end - begin,), begin=begin, end=end)
        for i, (begin, end) in enumerate(itertools.pairwise(cuts))
    ]

    found = hash_file(located(tmp_path, content), spans).tensors

    wanted = [f"b3:{blake3(f'U8[{t.end - t.begin}]'.encode() + content[t.begin : t.end]).hexdigest()}" for t in spans]
    assert [t.digest for t in found] == wanted


def test_tensors_that_are_not_asked_for_have_no_digest(tmp_path):
    """Names and shapes stay: an index of shards is compared with them."""
    span = Tensor(name="a", dtype="U8", shape=(2,), begin=0, end=2)

    (found,) = hash_file(located(tmp_path, b"ab"), [span], tensors=False).tensors

    assert (found.name, found.digest) == ("a", "")


@given(st.binary(max_size=60), st.lists(st.integers(0, 60), max_size=6), st.integers(1, 9))
@settings(max_examples=200)
def test_pieces_of_any_size_give_the_same_digests(content, cuts, piece):
    """How the file is cut into pieces changes nothing."""
    edges = sorted({min(cut, len(content)) for cut in cuts} | {0, len(content)})
    spans = [Tensor(name="t", dtype="U8", shape=(), begin=a, end=b) for a, b in itertools.pairwise(edges)]
    each = _Tensors(spans)
    for at in range(0, len(content), piece):
        each.feed(memoryview(content)[at : at + piece])

    assert each.finish() == [f"b3:{blake3(b'U8[]' + content[t.begin : t.end]).hexdigest()}" for t in spans]


@pytest.mark.parametrize("digest", [hash_file, fast_digest])
@pytest.mark.parametrize("size", [10, 3 * CHUNK_BYTES])
def test_a_file_that_grows_while_it_is_hashed_is_refused(tmp_path, digest, size):
    """A download in progress has no digest yet."""
    found = located(tmp_path, bytes(size))

    def grow(_):
        with found.file.open("ab") as file:
            file.write(b"more")

    with pytest.raises(InvalidWeights, match=r"x\.dat was written to while it was hashed"):
        digest(found, progress=grow)


@pytest.mark.parametrize("digest", [hash_file, fast_digest])
def test_a_file_replaced_after_it_was_located_is_refused(tmp_path, digest):
    """The header was read from another file."""
    found = located(tmp_path, b"abc")
    found.file.unlink()
    with pytest.raises(InvalidWeights, match=r"cannot read x\.dat: No such file"):
        digest(found)
    found.file.write_bytes(b"abcd")
    with pytest.raises(InvalidWeights, match=r"3 bytes, now 4\)"):
        digest(found)


def test_a_folder_put_in_a_files_place_is_refused(tmp_path):
    """Opened, it turns out to be no plain file."""
    found = located(tmp_path, b"abc")
    found.file.unlink()
    found.file.mkdir()

    with pytest.raises(InvalidWeights, match="written to"):
        hash_file(found)


def test_equal_stamps_mean_an_unchanged_file(tmp_path):
    """A write moves at least one of size and times."""
    found = located(tmp_path, b"abc")
    assert Stamp.of(found.file.stat()) == found.stamp
    found.file.write_bytes(b"abcd")
    assert Stamp.of(found.file.stat()) != found.stamp
