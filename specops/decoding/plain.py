"""Plain decoding: one token per target forward. The baseline arm, the fallback, and the reference of every test.

Called by `loop.generate` without a draft. It shares the model, the law and the cut with speculation, and nothing else.
Test: tests/decoding/test_plain.py.
"""

from collections.abc import Iterator

import torch

from specops.decoding.model import KVCache, Model
from specops.decoding.request import Request, Step, cut
from specops.decoding.sampling import Chance, choose


@torch.inference_mode()
def next_token(target: Model, cache: KVCache, committed: list[int], request: Request, chance: Chance) -> int:
    """Feed the committed tokens that the cache lacks and choose the next one; the prefill is the case of an empty cache."""
    return choose(target.forward(committed[cache.length :], cache, last_only=True)[0], request, chance)


def generate_plain(target: Model, request: Request, limit: int, stop_ids: frozenset[int], chance: Chance) -> Iterator[Step]:
    """Yield one token per step until a stop token or until `limit` tokens (prompt included) are committed."""
    committed = list(request.prompt_ids)
    cache = target.new_cache(limit)
    finish = None
    while finish is None:
        token = next_token(target, cache, committed, request, chance)
        tokens, finish = cut((token,), stop_ids, limit - len(committed))
        committed.append(token)
        yield Step(tokens=tokens, finish=finish)
