"""Builders of GGUF files, sound or not, byte by byte."""

import struct


def text(value):
    """Return a GGUF string."""
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def key(name, kind, value):
    """Return a metadata entry; `value` is its bytes."""
    return text(name) + struct.pack("<I", kind) + value


def array(kind, length, items):
    """Return an array value; `items` are its bytes."""
    return struct.pack("<IQ", kind, length) + items


def tensor(name, shape, kind, offset):
    """Return a tensor's entry."""
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def gguf(*, keys=(), tensors=(), data=0, version=3, counts=None, alignment=32, pad=True):
    """Return the bytes of a file with so many zero bytes of data."""
    tensor_count, key_count = (len(tensors), len(keys)) if counts is None else counts
    head = b"GGUF" + struct.pack("<IQQ", version, tensor_count, key_count) + b"".join((*keys, *tensors))
    return head + bytes(-len(head) % alignment if pad else 0) + bytes(data)
