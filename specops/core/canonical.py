"""One byte form for one value: RFC 8785 JSON, and the SHA-256 identity built on it."""

import hashlib
from typing import Any


def canonical(value: Any) -> bytes:  # noqa: ANN401  # any JSON value
    """Return the RFC 8785 bytes of a JSON value.

    Raises:
        rfc8785.CanonicalizationError: an integer beyond 2**53, a NaN, or a key that is not a string.
    """
    import rfc8785  # noqa: PLC0415  # `import specops.core` must work with numpy alone

    return rfc8785.dumps(value)


def sha256_hex(raw: bytes) -> str:
    """Return the SHA-256 of bytes as 64 hex digits."""
    return hashlib.sha256(raw).hexdigest()


def digest_of(value: Any) -> str:  # noqa: ANN401
    """Return the identity of a JSON value: SHA-256 over its canonical bytes."""
    return sha256_hex(canonical(value))
