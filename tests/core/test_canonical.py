"""One byte form for one value."""

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from specops.core.canonical import canonical, digest_of, read_canonical, sha256_hex

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def test_the_example_of_the_standard():
    """Keys sorted, no spaces, numbers as in RFC 8785."""
    assert canonical({"b": [1.0, 1e30, 4.50], "a": "\u20ac"}) == '{"a":"€","b":[1,1e+30,4.5]}'.encode()
    assert sha256_hex(b"") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


@given(value=st.dictionaries(st.text(max_size=5), VALUES, max_size=4))
def test_order_of_keys_is_no_content(value):
    """The same mapping in another order has the same digest."""
    assert digest_of(value) == digest_of(dict(reversed(value.items())))


@pytest.mark.parametrize("value", [float("nan"), 2**53 + 1, {1: 2}])
def test_what_json_cannot_say_is_refused(value):
    """NaN, integers beyond 2**53 and keys that are no strings have no canonical form."""
    with pytest.raises(rfc8785.CanonicalizationError):
        canonical(value)


@given(value=VALUES)
def test_the_fast_maker_and_the_reference_agree_on_every_value(value):
    """Floats, keys beyond ASCII, surrogate pairs: the bytes are the reference's, whoever made them, and read back."""
    raw = canonical(value)
    assert raw == rfc8785.dumps(value)
    assert read_canonical(raw) == value


def test_keys_are_in_the_order_of_utf_16():
    """A key of an astral character sorts before one of U+FB33, though its code point is greater."""
    assert canonical({"\ufb33": 1, "\U0001f600": 2}) == '{"\U0001f600":2,"\ufb33":1}'.encode()


@pytest.mark.parametrize("value", [1e20, 2.0**60, -0.0, 1e-7, 5e-324, [[[[1.5]]]]])
def test_a_double_of_any_size_reads_back(value):
    """RFC 8785 writes large doubles as integers; they are no integers for that."""
    assert read_canonical(canonical(value)) == value


@pytest.mark.parametrize("raw", [
    b"", b"{", b"[1, 2]", b"1.0", b"-0", b"1e2", b'{"b":1,"a":2}', b'{"a":1,"a":1}', b'"\\u0041"', b"NaN", b"\xff", b"01",
    b"9007199254740993", b"1e400", b"123456789012345678901234567890", b"[" * 1020 + b"]" * 1020, b"[" * 5000 + b"]" * 5000,
])  # fmt: skip
def test_bytes_in_any_other_form_are_refused(raw):
    """Spaces, order, doubled keys, other spellings of a number or a letter, and depth without end."""
    with pytest.raises(ValueError):  # noqa: PT011  # three parsers, three texts
        read_canonical(raw)


def test_a_half_of_a_surrogate_pair_is_refused():
    """It has no UTF-8."""
    with pytest.raises(rfc8785.CanonicalizationError):
        canonical({"a": "\ud83d"})
