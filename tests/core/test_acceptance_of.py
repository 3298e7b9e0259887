"""Reading vLLM's per-request acceptance counts."""

import pytest

from specops.core.outcome import Acceptance, acceptance_of
from specops.errors import InvalidRecord

COUNTS = {"num_spec_steps": 2, "num_draft_tokens": 8, "num_accepted_draft_tokens": 5, "acceptance_histogram": [0, 1, 0, 0, 1]}


def test_counts_are_read_and_unknown_keys_ignored():
    """Later versions may say more; what we know stays."""
    found = acceptance_of({"speculative_decoding": COUNTS | {"new_key": 1}})
    assert found == Acceptance(rounds=2, drafted=8, accepted=5, histogram=(0, 1, 0, 0, 1))


NOTHING = (None, {}, {"speculative_decoding": None}, {"speculative_decoding": {"num_spec_steps": 0}})
CONTRADICTING = ({"num_draft_tokens": None}, {"num_accepted_draft_tokens": 9}, {"acceptance_histogram": [9, 9]})


@pytest.mark.parametrize("metrics", NOTHING)
def test_nothing_reported_is_no_data(metrics):
    """No data is not acceptance zero."""
    assert acceptance_of(metrics) is None


@pytest.mark.parametrize("change", CONTRADICTING)
def test_contradicting_counts_are_refused(change):
    """A wrong count must not pass as evidence."""
    with pytest.raises(InvalidRecord):
        acceptance_of({"speculative_decoding": COUNTS | change})
