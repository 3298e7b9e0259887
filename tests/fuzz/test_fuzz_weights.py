"""Seeded mutations of valid headers: whatever the bytes, the readers answer or refuse with one line, within bounds of memory.

A mutation flips bits, cuts, splices, repeats, or writes a huge number where a small one stood. 25 000 per format.
"""

import io
import json
import random
import resource
import struct
import tracemalloc

import pytest

from specops.core.gguf import parse_gguf
from specops.core.safetensors import parse_safetensors
from specops.errors import InvalidWeights
from tests.gguf_files import array, gguf, key, tensor, text

MUTANTS = 25_000
MAX_GROWTH_KB = 32 << 10  # files of a few hundred bytes must not cost more than a small constant
HUGE = (2**31 - 1, 2**32 - 1, 2**53, 2**63 - 1, 2**63, 2**64 - 1)
WORDS = (b"1e999", b"NaN", b"-1", b"9" * 400, b"[[[[", b"{}", b'"', b"\\ud800", b"\xf0\x9f\x98\x80", b"null", b"true", b"\0")


def peak_kb():
    """Return the most memory that this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def safetensors_seeds():
    """Return sound safetensors files of several kinds."""
    one = {"a": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}, "__metadata__": {"format": "pt"}}
    many = {f"layers.{n}.w": {"dtype": "BF16", "shape": [4], "data_offsets": [8 * n, 8 * n + 8]} for n in range(6)}
    empty = {"dtype": "U8", "shape": [0], "data_offsets": [2, 2]}
    odd = {"ü": {"dtype": "F4", "shape": [4], "data_offsets": [0, 2]}, "": empty}
    for header, data in ((one, 16), (many, 48), (odd, 2), ({}, 0)):
        raw = json.dumps(header).encode()
        yield len(raw).to_bytes(8, "little") + raw + bytes(data)


def gguf_seeds():
    """Return sound GGUF files of several kinds."""
    keys = [
        key("general.architecture", 8, text("llama")), key("general.alignment", 4, struct.pack("<I", 32)),
        key("tokens", 9, array(8, 3, text("a") + text("b") + text("c"))), key("scores", 9, array(6, 2, bytes(8))),
        key("many", 9, array(0, 100, bytes(100))), key("eps", 12, struct.pack("<d", 1e-5)),
    ]  # fmt: skip
    tensors = (tensor("a", (4, 2), 0, 0), tensor("b", (256,), 12, 32))
    yield gguf(keys=keys, tensors=tensors, data=32 + 144)
    yield gguf(tensors=tensors, data=32 + 144, version=2)
    yield gguf(keys=keys)


def mutate(raw, rng, seeds):
    """Return the bytes after one to four changes."""
    content = bytearray(raw)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(content)) if content else 0
        match rng.randrange(7):
            case 0 if content:
                content[at] ^= 1 << rng.randrange(8)
            case 1:
                del content[at:]
            case 2:
                other = rng.choice(seeds)
                content[at:] = other[rng.randrange(len(other)) :]
            case 3:
                content[at : at + 8] = rng.choice(HUGE).to_bytes(8, "little")
            case 4:
                content[at : at + rng.randint(0, 4)] = rng.choice(WORDS)
            case 5:
                content[at:at] = content[at : at + rng.randint(1, 200)]
            case _:
                digits = [i for i, byte in enumerate(content) if 48 <= byte <= 57]
                if digits:
                    where = rng.choice(digits)
                    content[where : where + 1] = str(rng.choice(HUGE)).encode()
    if b"{" in raw[:9] and len(content) > 8 and rng.random() < 0.5:  # a length that fits, so that the JSON is reached
        length = int.from_bytes(raw[:8], "little") + (len(content) - len(raw)) * rng.randint(0, 1)
        content[:8] = max(0, min(len(content) - 8, length)).to_bytes(8, "little")
    return bytes(content)


@pytest.mark.slow
@pytest.mark.parametrize(("parse", "make_seeds"), [(parse_safetensors, safetensors_seeds), (parse_gguf, gguf_seeds)])
def test_no_mutation_of_a_header_crashes_or_eats_memory(parse, make_seeds):
    """Only InvalidWeights comes out, with a short line; what passes has tensors within the file, none overlapping."""
    rng, seeds = random.Random(20261130), list(make_seeds())
    before_kb, answered, longest = peak_kb(), 0, 0
    for _ in range(MUTANTS):
        raw = mutate(rng.choice(seeds), rng, seeds)
        try:
            header = parse(io.BytesIO(raw).read, size=len(raw), where="mutant")
        except InvalidWeights as error:
            longest = max(longest, len(str(error)))
            continue
        answered += 1
        edges = [edge for t in header.tensors for edge in (t.begin, t.end)]
        assert edges == sorted(edges)
        assert not edges or edges[-1] <= len(raw)

    assert peak_kb() - before_kb < MAX_GROWTH_KB
    assert longest < 1_000
    assert 0 < answered < MUTANTS // 2


@pytest.mark.slow
@pytest.mark.parametrize(("start", "part"), [(b"", b"["), (b"", b'{"a":'), (b"[", b"0,"), (b'"', b"\\u0041")])
def test_a_header_of_100_megabytes_is_refused_in_bounded_memory(start, part):
    """Nesting, counts, and one endless text; the header itself is the largest thing in memory."""
    raw = start + part * (99_000_000 // len(part))
    content = len(raw).to_bytes(8, "little") + raw
    stream = io.BytesIO(content)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidWeights):
            parse_safetensors(stream.read, size=len(content), where="bomb")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 6 * len(raw)
