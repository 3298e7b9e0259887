"""Stage 2 of 5, score. Owner: the target.

Input: the last committed token and the drafted block; output: the target's logits after each of them, from one forward.
Invariant: the target's cache holds exactly the committed tokens but the last before, and 1 + k positions more after; row i is
what a fresh forward over the same prefix gives. Called by `loop`; it decides nothing about acceptance.
Test: tests/decoding/test_score.py.
"""

from collections.abc import Sequence

from torch import Tensor

from specops.transformer.model import KVCache, Model


def score(target: Model, cache: KVCache, last: int, block: Sequence[int]) -> Tensor:
    """Run the target over the last committed token and the block.

    Returns:
        float32 logits [k + 1, vocab]; row i judges proposal i, row k feeds the bonus token.
    """
    return target.forward([last, *block], cache)
