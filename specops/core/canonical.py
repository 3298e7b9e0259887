"""One byte form for one value: RFC 8785 JSON, and the SHA-256 identity built on it.

Two makers of the same bytes: `rfc8785`, the reference, in pure Python, and `orjson`, many times as fast, for values on which
the two cannot differ. They differ on floats (1.0 is `1` in RFC 8785), on integers of 2**53 and more (refused), on keys beyond
ASCII (UTF-16 order, not code points), and on types that are no JSON; all of these go to the reference.
"""

import hashlib
import json
from collections.abc import Iterable
from typing import Any

MAX_INTEGER = 2**53 - 1
_SURE = frozenset({str, bool, type(None)})
_DEEPEST = 32  # deeper values go to the reference: what this looks at must never exhaust the stack


def canonical(value: Any) -> bytes:  # noqa: ANN401  # any JSON value
    """Return the RFC 8785 bytes of a JSON value.

    Raises:
        rfc8785.CanonicalizationError: an integer beyond 2**53, a NaN, or a key that is not a string.
    """
    if _is_plain(value):
        import orjson  # noqa: PLC0415  # `import specops.core` must work with numpy alone

        try:
            return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
        except TypeError:  # a surrogate: the reference says so
            pass
    import rfc8785  # noqa: PLC0415

    return rfc8785.dumps(value)


def read_canonical(raw: bytes) -> Any:  # noqa: ANN401  # any JSON value
    """Return the value whose RFC 8785 bytes these are, exactly.

    Raises:
        ValueError: not JSON, or JSON in another form: a space, a key out of order, `1.0` for `1`.
    """
    import orjson  # noqa: PLC0415

    value = orjson.loads(raw)
    if _is_plain(value):
        again = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    else:
        value, again = _by_reference(raw)
    if again != raw:
        raise ValueError("its JSON is not in canonical form")
    return value


def _by_reference(raw: bytes) -> tuple[Any, bytes]:
    """Read JSON, every number as the double that RFC 8785 means, and return it with the reference's bytes for it."""
    import rfc8785  # noqa: PLC0415

    try:
        value = json.loads(raw, parse_int=_number)
        return value, rfc8785.dumps(value)
    except RecursionError as exc:
        raise ValueError("its JSON is nested too deeply") from exc


def _number(digits: str) -> int | float:
    """Read an integer; one that a double cannot count up to is a double that was written without a point."""
    value = float(digits)
    return int(digits) if -MAX_INTEGER <= value <= MAX_INTEGER else value


def _is_plain(value: Any, depth: int = 0) -> bool:  # noqa: ANN401
    """Say whether both makers write the same bytes: exact types, no float, ASCII keys, integers that a double holds."""
    kind = type(value)
    if kind is dict:
        for key in value:
            if type(key) is not str or not key.isascii():
                return False
        inner: Iterable[Any] = value.values()
    elif kind is list or kind is tuple:
        inner = value
    else:
        return kind in _SURE or (kind is int and -MAX_INTEGER <= value <= MAX_INTEGER)
    if depth == _DEEPEST:
        return False
    for one in inner:  # noqa: SIM110  # a loop, not a generator: a verification of the audit log spends half its time here
        if type(one) not in _SURE and not _is_plain(one, depth + 1):
            return False
    return True


def sha256_hex(raw: bytes) -> str:
    """Return the SHA-256 of bytes as 64 hex digits."""
    return hashlib.sha256(raw).hexdigest()


def digest_of(value: Any) -> str:  # noqa: ANN401
    """Return the identity of a JSON value: SHA-256 over its canonical bytes."""
    return sha256_hex(canonical(value))
