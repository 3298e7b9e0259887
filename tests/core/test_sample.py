"""What pairs contribute when a clock was set back on the way."""

import pytest

from specops.core.policy import parse_policy
from specops.core.sample import pair_sample_of


@pytest.mark.parametrize("ttft_s", [1.5, 2.0, float("inf"), float("nan")])
def test_a_first_token_after_the_end_is_no_speed(make_outcome, policy_mapping, ttft_s):
    """No time per token, or one below 0, is no value on either side and never an error."""
    rule = {"name": "s", "metric": "speedup", "at_least": 1.2, "owner": "o"}
    check = parse_policy(policy_mapping | {"checks": [rule]}).checks[0]
    good, bad = (make_outcome(ttft_s=first, e2e_s=1.5, completion_tokens=80) for first in (0.3, ttft_s))

    assert pair_sample_of(check, good, bad) is None
    assert pair_sample_of(check, bad, good) is None
    assert pair_sample_of(check, good, good) == 0.5
