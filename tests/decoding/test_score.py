"""One target forward judges a whole block."""

import torch

from specops.decoding.score import score


def test_rows_equal_fresh_forwards_over_each_prefix(make_model):
    """Row i is the law after proposal i - 1, whatever was in the cache."""
    model, text, block = make_model(), [4, 5, 6, 7], [8, 9, 3]
    cache = model.new_cache()
    model.forward(text[:-1], cache)

    rows = score(model, cache, text[-1], block)

    fresh = [model.forward(text + block[:i], model.new_cache(), last_only=True) for i in range(4)]
    assert torch.allclose(rows, torch.cat(fresh), atol=1e-5)


def test_the_cache_grows_by_the_block_and_one(make_model):
    """All that was fed is in the cache; the loop rewinds."""
    model = make_model()
    cache = model.new_cache()
    model.forward([1, 2], cache)

    score(model, cache, 3, [4, 5])

    assert cache.length == 5
