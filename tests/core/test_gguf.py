"""The GGUF header: what is sound, what is refused, and that bounds come before loops."""

import hashlib
import io
import struct

import pytest

from specops.core.gguf import BLOCKS, KEPT, parse_gguf
from specops.errors import InvalidWeights
from tests.gguf_files import array, gguf, key, tensor, text


def parse(raw):
    """Parse the bytes of a file."""
    return parse_gguf(io.BytesIO(raw).read, size=len(raw), where="m.gguf")


PLAIN = (tensor("a", (4, 2), 0, 0), tensor("b", (32,), 2, 32))


def test_a_sound_file_gives_metadata_and_tensors():
    """Both versions; offsets count from the start of the file, the data is aligned."""
    for version in (2, 3):
        raw = gguf(keys=[key("general.architecture", 8, text("llama"))], tensors=PLAIN, data=32 + 18, version=version)

        header = parse(raw)

        assert (header.version, header.alignment, header.metadata) == (version, 32, {"general.architecture": "llama"})
        assert [(t.name, t.dtype, t.shape, t.end - t.begin) for t in header.tensors] == [
            ("a", "F32", (4, 2), 32),
            ("b", "Q4_0", (32,), 18),
        ]
        assert header.start % 32 == 0
        assert header.tensors[-1].end == len(raw)


def test_values_of_every_type_are_read():
    """Numbers, texts, truth; numbers that JSON lacks become text, bytes that are no UTF-8 are escaped."""
    keys = [
        key("u8", 0, b"\xff"), key("i8", 1, b"\xff"), key("u16", 2, b"\1\1"), key("i16", 3, b"\xff\xff"),
        key("u32", 4, struct.pack("<I", 7)), key("i32", 5, struct.pack("<i", -7)), key("f32", 6, struct.pack("<f", 0.5)),
        key("yes", 7, b"\1"), key("text", 8, text("é")), key("raw", 8, struct.pack("<Q", 1) + b"\xff"),
        key("u64", 10, struct.pack("<Q", 2**64 - 1)), key("i64", 11, struct.pack("<q", -1)),
        key("nan", 12, struct.pack("<d", float("nan"))), key("few", 9, array(7, 2, b"\1\0")),
        key("words", 9, array(8, 2, text("a") + text("b"))),
    ]  # fmt: skip

    assert parse(gguf(keys=keys)).metadata == {
        "u8": 255, "i8": -1, "u16": 257, "i16": -1, "u32": 7, "i32": -7, "f32": 0.5, "yes": True, "text": "é", "raw": "\\xff",
        "u64": 2**64 - 1, "i64": -1, "nan": "nan", "few": [True, False], "words": ["a", "b"],
    }  # fmt: skip


def test_a_long_array_is_kept_as_a_digest():
    """Two vocabularies are told apart without keeping either."""
    numbers, words = struct.pack("<400000i", *range(400_000)), b"".join(text(f"w{n}") for n in range(KEPT + 1))

    metadata = parse(gguf(keys=[key("n", 9, array(5, 400_000, numbers)), key("w", 9, array(8, KEPT + 1, words))])).metadata

    assert metadata["n"] == {"array": "int32", "length": 400_000, "sha256": hashlib.sha256(numbers).hexdigest()}
    assert metadata["w"] == {"array": "string", "length": KEPT + 1, "sha256": hashlib.sha256(words).hexdigest()}


def test_the_alignment_is_the_files_own():
    """general.alignment moves the data and every tensor."""
    keys = [key("general.alignment", 4, struct.pack("<I", 128))]

    header = parse(gguf(keys=keys, tensors=(tensor("a", (1,), 0, 0), tensor("b", (1,), 0, 128)), data=132, alignment=128))

    assert header.start % 128 == 0
    assert header.tensors[1].begin - header.tensors[0].begin == 128


def test_the_last_tensor_may_be_padded():
    """Writers differ; a byte more than the padding is refused."""
    for data in (50, 64):
        assert len(parse(gguf(tensors=PLAIN, data=data)).tensors) == 2
    with pytest.raises(InvalidWeights, match="tensors end at byte"):
        parse(gguf(tensors=PLAIN, data=65))


def test_a_file_without_tensors_is_sound():
    """Vocabulary only, with or without padding; a scalar tensor too."""
    assert parse(gguf()).tensors == ()
    assert parse(gguf(data=0, pad=False)).tensors == ()
    assert parse(gguf(tensors=(tensor("s", (), 0, 0),), data=4)).tensors[0].shape == ()


@pytest.mark.parametrize(("raw", "why"), [
    (b"", "claims 4 bytes"),
    (b"GGML" + bytes(40), "it begins with b'GGML'"),
    (gguf(version=1), "version 1; versions 2 and 3"),
    (b"GGUF" + struct.pack(">I", 3) + bytes(16), "big endian"),
    (gguf(counts=(2**63, 0)), "claims 9223372036854775808 tensors"),
    (gguf(counts=(0, 2**40)), "claims 0 tensors and 1099511627776 keys"),
    (gguf(keys=[key("a", 4, bytes(4)), key("a", 4, bytes(4))]), "the key 'a' stands twice"),
    (gguf(keys=[key("", 4, bytes(4))]), "a metadata key is no text"),
    (gguf(keys=[key("a\n", 4, bytes(4))]), "a metadata key is no text"),
    (gguf(keys=[struct.pack("<Q", 1) + b"\xff" + bytes(8)]), "a metadata key is not UTF-8"),
    (gguf(keys=[key("a" * 65_536, 4, bytes(4))]), "the limit is 65535"),
    (gguf(keys=[key("a", 13, b"")]), "unknown type 13"),
    (gguf(keys=[key("a", 8, struct.pack("<Q", 2**63))]), "the limit is 1048576"),
    (gguf(keys=[key("a", 9, array(9, 1, array(0, 1, b"1")))]), "items of type 9"),
    (gguf(keys=[key("a", 9, array(5, 2**62, b""))]), "the array 'a' claims 18446744073709551616 bytes"),
    (gguf(keys=[key("a", 9, array(8, 2**62, b""))]), "the array 'a' claims"),
    (gguf(keys=[key("general.alignment", 4, struct.pack("<I", 24))]), "a power of 2"),
    (gguf(keys=[key("general.alignment", 4, bytes(4))]), "a power of 2"),
    (gguf(keys=[key("general.alignment", 8, text("32"))]), "a power of 2"),
    (gguf(tensors=(tensor("a", (1,), 0, 0), tensor("a", (1,), 0, 32)), data=36), "a tensor's name stands twice"),
    (gguf(tensors=(tensor("a", (1,) * 5, 0, 0),)), "5 dimensions, at most 4"),
    (gguf(tensors=(tensor("a", (1,), 4, 0),)), "unknown ggml type 4"),
    (gguf(tensors=(tensor("a", (33,), 2, 0),), data=64), "rows of 33 values, Q4_0 needs a multiple of 32"),
    (gguf(tensors=(tensor("a", (4,), 0, 0), tensor("b", (4,), 0, 8)), data=64), "'b' at 8 overlaps"),
    (gguf(tensors=(tensor("a", (4,), 0, 0), tensor("b", (4,), 0, 33)), data=64), "leaves a hole"),
    (gguf(tensors=(tensor("a", (4,), 0, 64),), data=96), "leaves a hole"),
    (gguf(tensors=(tensor("a", (2**40, 2**40), 0, 0),), data=64), "tensors end at byte"),
    (gguf(tensors=PLAIN, data=49), "tensors end at byte"),
])  # fmt: skip
def test_a_header_that_is_not_sound_is_refused(raw, why):
    """Counts, lengths, types and offsets are checked before any loop over them."""
    with pytest.raises(InvalidWeights, match=f"(?s)m.gguf is not a sound GGUF file: .*{why}.*again"):
        parse(raw)


def test_too_many_texts_are_refused():
    """The time to read a header is bounded, however the texts are spread."""
    many = array(8, 2_000_000, bytes(8 * 2_000_000))

    with pytest.raises(InvalidWeights, match="more than 2000000 texts"):
        parse(gguf(keys=[key("one", 9, array(8, 1, text("a"))), key("many", 9, many)]))


def test_a_file_that_shrinks_while_it_is_read_is_refused():
    """The size said more than the reads gave."""
    raw = gguf(tensors=PLAIN, data=50)

    with pytest.raises(InvalidWeights, match="cut off after"):
        parse_gguf(io.BytesIO(raw[:30]).read, size=len(raw), where="m.gguf")


def test_every_block_size_is_whole():
    """Quantised types come in blocks of 32, 64, 128 or 256 values."""
    assert {values for _, values, _ in BLOCKS.values()} == {1, 32, 64, 128, 256}
    assert len({name for name, _, _ in BLOCKS.values()}) == len(BLOCKS)
