"""Two traces side by side."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specops.core.trace import Trace
from specops.core.trace_compare import Difference, compare, figures, first_difference
from tests.traces import make_trace, plain_trace

TOKENS = st.lists(st.integers(0, 3), max_size=12)


def test_the_toy_trace_reads_back():
    """The builder makes what the record's reader accepts."""
    trace = make_trace([4, 0, 2])

    assert Trace.from_record(json.loads(json.dumps(trace.to_record()))) == trace


def test_figures_by_hand():
    """Accepted 4, 0 and 2 of 4: 9 tokens in 3 rounds, and the prefill's one."""
    found = figures(make_trace([4, 0, 2]))

    assert (found.tokens, found.rounds, found.drafted, found.accepted) == (10, 3, 12, 6)
    assert (found.tokens_per_pass, found.acceptance_rate, found.acceptance_length) == (3.0, 0.5, 3.0)
    assert found.stage_s == pytest.approx((0.003, 0.012, 0.0015, 0.0015))
    assert found.total_s == pytest.approx(0.0005 + 0.01 + 0.018)
    assert found.token_s == pytest.approx(0.002)


def test_a_prefill_alone_has_no_ratios():
    """Nothing is divided by no rounds."""
    found = figures(make_trace([]))

    assert (found.tokens_per_pass, found.acceptance_rate, found.acceptance_length, found.token_s) == (None, None, None, None)


def test_a_cut_block_counts_only_what_was_emitted():
    """Accepted counts stay; tokens per pass follow the cut."""
    found = figures(make_trace([4, 4], most=[None, 2]))

    assert (found.accepted, found.tokens_per_pass) == (8, 3.5)


@given(TOKENS, TOKENS)
def test_the_first_difference_ends_the_common_prefix(first, second):
    """All before it is equal, it is not, and equal sequences have none."""
    found = first_difference(first, second)

    if found is None:
        assert first == second
        return
    assert first[: found.at] == second[: found.at]
    assert (found.first, found.second) == (
        first[found.at] if found.at < len(first) else None,
        second[found.at] if found.at < len(second) else None,
    )
    assert found.first != found.second


def test_a_comparison_names_what_was_changed():
    """Settings that are equal are left out, and the speed-up is of the second."""
    one = make_trace([1, 1], settings={"temperature": 0.0, "seed": 1}, stage_s=(0.002, 0.004, 0.0, 0.0))
    two = make_trace([1, 1], settings={"temperature": 0.0, "seed": 2}, stage_s=(0.0, 0.003, 0.0, 0.0), request_id="cmpl-2")

    found = compare(one, two)

    assert found.changed == {"seed": (1, 2)}
    assert found.speedup == pytest.approx(2.0)
    assert found.difference is None
    assert found.same_prompt
    assert json.loads(json.dumps(found.to_record()))["request_ids"] == ["cmpl-1", "cmpl-2"]


def test_a_shorter_answer_parts_where_it_ends():
    """The one that ended has nothing there."""
    found = compare(make_trace([1, 1]), plain_trace([104, 105]))

    assert found.difference == Difference(at=3, first=106, second=None)
    assert not compare(make_trace([1]), make_trace([1], prompt_ids=(9,))).same_prompt
