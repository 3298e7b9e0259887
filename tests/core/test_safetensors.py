"""The safetensors header: what is sound, what is refused, and that every sound file is read as it was written."""

import io
import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specops.core import safetensors
from specops.core.safetensors import BITS, MAX_HEADER_BYTES, parse_safetensors, shown
from specops.errors import InvalidWeights

A = {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}
B = {"dtype": "F16", "shape": [4], "data_offsets": [16, 24]}
DATA = 24


def parse(header, *, data=DATA, length=None, size=None):
    """Parse a header given as JSON value or bytes, in front of `data` bytes."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    content = (len(raw) if length is None else length).to_bytes(8, "little") + raw + bytes(data)
    return parse_safetensors(io.BytesIO(content).read, size=len(content) if size is None else size, where="m.safetensors")


def test_a_sound_header_gives_tensors_in_the_order_of_their_bytes():
    """Offsets count from the start of the file; metadata is kept apart."""
    header = parse({"b": B, "__metadata__": {"format": "pt"}, "a": A})

    assert [(t.name, t.dtype, t.shape) for t in header.tensors] == [("a", "F32", (2, 2)), ("b", "F16", (4,))]
    assert (header.tensors[0].begin, header.tensors[1].end) == (header.start, header.start + DATA)
    assert header.metadata == {"format": "pt"}


def test_a_file_without_tensors_is_sound():
    """An empty header in front of nothing."""
    assert parse({}, data=0).tensors == ()


def test_empty_tensors_take_no_room():
    """A dimension of 0 at the end and in between."""
    empty = {"dtype": "F32", "shape": [0, 4], "data_offsets": [16, 16]}
    last = {"dtype": "F32", "shape": [0], "data_offsets": [24, 24]}

    assert len(parse({"a": A, "e": empty, "b": B, "z": last}).tensors) == 4


@pytest.mark.parametrize(("header", "why"), [
    ({"a": A | {"data_offsets": [0, 17]}, "b": B}, "needs 16 bytes, offsets give 17"),
    ({"a": A, "b": B | {"data_offsets": [12, 20]}}, r"'b' at 12..20 overlaps the tensor before it"),
    ({"a": A, "b": B | {"data_offsets": [17, 25]}}, "leaves a hole"),
    ({"a": A}, "tensors end at byte 16, data has 24 bytes"),
    ({"a": A, "b": B, "c": {"dtype": "F32", "shape": [2], "data_offsets": [24, 32]}}, "end at byte 32"),
    ({"a": A | {"shape": [-2, -2]}, "b": B}, "has shape"),
    ({"a": A | {"shape": [True, 4]}, "b": B}, "has shape"),
    ({"a": A | {"shape": [float("nan")]}, "b": B}, r"has shape \[nan\]"),
    ({"a": A | {"shape": [2.0, 2]}, "b": B}, "has shape"),
    ({"a": A | {"shape": [2**64, 0]}, "b": B}, "has shape"),
    ({"a": A | {"shape": [1] * 33}, "b": B}, "has shape list of 33"),
    ({"a": A | {"shape": "22"}, "b": B}, "has shape"),
    ({"a": A | {"data_offsets": [0]}, "b": B}, "offsets"),
    ({"a": A | {"data_offsets": [16, 0]}, "b": B}, "offsets give -16"),
    ({"a": A | {"dtype": "X9"}, "b": B}, "unknown dtype 'X9'"),
    ({"a": A | {"dtype": ["F32"]}, "b": B}, "unknown dtype list of 1"),
    ({"a": {"dtype": "F4", "shape": [3], "data_offsets": [0, 1]}}, "needs 1 bytes, offsets give 1"),
    ({"a": {"dtype": "F32"}}, "has shape None"),
    ({"a": []}, "must be an object"),
    ({"a\x00": A}, "is no text"),
    ({"\ud800": A}, "is no text"),
    ({"__metadata__": {"x": 1}}, "object of texts"),
    ({"__metadata__": []}, "object of texts"),
    (b"[1]", "must be an object, got list"),
    (b'{"a"', "not JSON"),
    (b"\xff\xff", "not JSON"),
    (b"\xef\xbb\xbf{}", "not JSON"),
    ("{}".encode("utf-16"), "not JSON"),
    (b'{"a":{},"a":{}}', "twice"),
    (b'{"a":{"dtype":"F32","dtype":"F16"}}', "twice"),
    (b"[" * 100_000, "not JSON"),
    (b'{"a":' * 50_000, "not JSON"),
    (b"9" * 10_000, "not JSON"),
    (b"[" + b"[]," * 2_100_000 + b"[]]", "about 4200001 values|about 4200002 values"),
])  # fmt: skip
def test_a_header_that_is_not_sound_is_refused(header, why):
    """No offset, name or number is believed before it is checked."""
    with pytest.raises(InvalidWeights, match=f"(?s)m.safetensors is not a sound safetensors file: .*({why}).*again"):
        parse(header)


@pytest.mark.parametrize("length", [0, 1, 10**6, 2**63, 2**64 - 1])
def test_a_length_beyond_the_file_is_refused(length):
    """Nothing is read on the word of a length."""
    with pytest.raises(InvalidWeights, match=f"header length says {length} bytes"):
        parse({"a": A, "b": B}, length=length)


def test_a_cut_file_is_refused():
    """Shorter than a length, or than it was a moment ago."""
    with pytest.raises(InvalidWeights, match="too short"):
        parse_safetensors(io.BytesIO(b"abc").read, size=3, where="x")
    with pytest.raises(InvalidWeights, match=r"ends after .* of 900 bytes"):
        parse({"a": A}, length=900, size=1000)


def test_the_limit_holds_whatever_the_file_claims():
    """A header of more than 100 MB is not even asked for."""
    asked = []

    def read(count):
        asked.append(count)
        return (MAX_HEADER_BYTES + 1).to_bytes(8, "little")

    with pytest.raises(InvalidWeights, match="the limit is 100000000"):
        parse_safetensors(read, size=2**40, where="x")
    assert asked == [8]


def test_errors_show_hostile_names_cut():
    """A megabyte of name gives a line, not a megabyte of log."""
    with pytest.raises(InvalidWeights) as error:
        parse({"x" * 1_000_000: []})
    assert len(str(error.value)) < 300
    assert shown({"a": 1}) == "dict of 1"


@given(st.lists(st.tuples(st.sampled_from(sorted(BITS)), st.lists(st.integers(0, 5), max_size=4)), max_size=8), st.randoms())
def test_what_was_written_is_read(specs, rng):
    """Any list of tensors, in any order of names, comes back with its shapes and adjoining bytes."""
    header, at = {}, 0
    for index, (dtype, shape) in enumerate(specs):
        bits = BITS[dtype]
        for n in (shape := [8, *shape]):
            bits *= n
        header[f"t{index}"] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + bits // 8]}
        at += bits // 8
    shuffled = dict(rng.sample(sorted(header.items()), len(header)))

    tensors = parse(shuffled, data=at).tensors

    assert {t.name: [t.dtype, list(t.shape)] for t in tensors} == {n: [e["dtype"], e["shape"]] for n, e in header.items()}
    assert all(one.end == other.begin for one, other in itertools.pairwise(tensors))


def test_every_type_has_bits():
    """The table holds what the format knows, in bits that make whole bytes of eight values."""
    assert {bits % 2 for bits in BITS.values()} == {0}
    assert safetensors.MAX_ITEMS < 10**7
