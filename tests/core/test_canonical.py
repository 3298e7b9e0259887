"""One byte form for one value."""

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from specops.core.canonical import canonical, digest_of, sha256_hex

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
