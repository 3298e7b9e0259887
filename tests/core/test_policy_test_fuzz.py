"""A file of policy tests may hold anything: it is read, or refused with PolicyError, and nothing else happens."""

from hypothesis import given, settings
from hypothesis import strategies as st

from specops.core.policy_test_file import EXPECT_FIELDS, FILE_FIELDS, STATISTICS_FIELDS, TEST_FIELDS, parse_test_file
from specops.errors import PolicyError

KEYS = st.sampled_from([*FILE_FIELDS, *TEST_FIELDS, *EXPECT_FIELDS, *STATISTICS_FIELDS, "error", "ttft_s"])
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.sampled_from(["0.7x5", "_x5", "FAIL", "live"])
)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=6), max_leaves=12
)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from([*TEST_FIELDS]), VALUES, max_size=8))
def test_anything_is_read_or_refused(changes):
    """Around a test that is sound but for what was changed."""
    test = {"name": "x", "input": {"error": "0x5"}, "expect": [{"at": 5, "verdict": "PENDING"}]} | changes
    try:
        file = parse_test_file({"name": "t", "policy": "p", "tests": [test]}, ("a",))
    except PolicyError:
        return
    assert file.tests[0].length >= 1
