"""Ranges of a request, and where a block is cut."""

import pytest

from specops.decoding.request import Request, cut
from specops.errors import InvalidInput


@pytest.mark.parametrize(
    "field",
    [
        {"prompt_ids": ()},
        {"max_tokens": 0},
        {"temperature": -0.1},
        {"temperature": float("nan")},
        {"top_k": -1},
        {"top_p": 0.0},
        {"top_p": 1.1},
        {"k": -1},
        {"min_p": 1.1},
        {"repetition_penalty": 0.0},
        {"presence_penalty": float("nan")},
        {"frequency_penalty": -2.1},
        {"logit_bias": ((1, 0.5), (1, 0.5))},
        {"logit_bias": ((1, float("inf")),)},
        {"min_tokens": 2},
        {"logprobs": -1},
        {"prompt_logprobs": -1},
    ],
)
def test_values_out_of_range_are_refused(field):
    """The message names the field."""
    with pytest.raises(InvalidInput, match=f"{next(iter(field))} is "):
        Request(**({"prompt_ids": (1,), "max_tokens": 1} | field))


@pytest.mark.parametrize(
    ("tokens", "room", "expected"),
    [
        ((1, 2, 3), 9, ((1, 2, 3), None)),
        ((1, 2, 3), 3, ((1, 2, 3), "length")),
        ((1, 2, 3), 2, ((1, 2), "length")),
        ((1, 7, 3), 9, ((1, 7), "stop")),
        ((1, 7), 2, ((1, 7), "stop")),
        ((1, 2, 7), 2, ((1, 2), "length")),
    ],
)
def test_a_block_ends_at_stop_or_limit_whichever_is_first(tokens, room, expected):
    """7 stops; a stop on the last free place counts as stop, one behind it does not."""
    assert cut(tokens, {7}, room) == expected
