"""50 000 broken tokenizer and configuration files: read, or refused with our own errors; no crash, no hang, no full memory."""

import json
import pickle
import random
import resource

import pytest

from specops.core.imports import describe_card, describe_config
from specops.core.lossy import lossy_settings
from specops.core.pair import Side
from specops.core.pair_proof import prove
from specops.core.tokenizer_file import parse_tokenizer
from specops.core.vocabulary import compare
from specops.errors import SpecopsError
from tests.tokenizer_files import bpe, unigram

CASES = 25_000
DEEP = []
for _ in range(300):
    DEEP = [DEEP]
POISON = (
    None, True, False, 0, -1, 1, 2**22, 2**31, 2**53, 2**64, -(2**70), 10**400, 0.5, 1e308, float("nan"), float("inf"), "", "a",
    "\ud800", "\0", "x" * 20_000, "<0xGG>", "<0x0A>", "▁", [], {}, [[]], {"": {}}, [None] * 50, {"type": "ByteLevel"},
    {"type": "Sequence", "decoders": [{"type": "ByteFallback"}]}, DEEP, {"a": DEEP}, "9" * 5000, ["a", "b"], "a b", [0, 1],
)  # fmt: skip
POISONS = [pickle.dumps(value) for value in POISON]
CONFIG = {
    "architectures": ["Eagle3Speculator"], "model_type": "llama", "vocab_size": 8, "hidden_size": 16, "num_hidden_layers": 2,
    "max_position_embeddings": 128, "draft_vocab_size": 8, "target_hidden_size": 16, "eagle_aux_hidden_state_layer_ids": [0, 1],
    "rope_scaling": {"factor": 8.0, "type": "yarn"}, "quantization_config": {"quant_method": "x", "ignore": ["lm_head"]},
    "transformer_layer_config": {"vocab_size": 8, "hidden_size": 16}, "text_config": None,
    "rejection_sample_method": "standard", "posterior_alpha": None,
    "speculators_config": {
        "algorithm": "eagle3", "default_proposal_method": "greedy", "verifier": {"name_or_path": "x", "architectures": ["y"]},
        "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 3}],
    },
}  # fmt: skip
GOOD = Side(digest="t", config={"vocab_size": 8, "hidden_size": 16}, tokenizer=parse_tokenizer(bpe(), "t"))


def places(value):
    """Return (container, key) of every value inside."""
    found, waiting = [], [value]
    for item in waiting:
        keys = item.keys() if isinstance(item, dict) else range(len(item)) if isinstance(item, list) else ()
        found += [(item, key) for key in keys]
        waiting += [item[key] for key in keys]
    return found


def duplicate(value):
    """Return a deep copy; pickling is ten times as fast as copy.deepcopy."""
    return pickle.loads(pickle.dumps(value))


def poison(rng):
    """Return something unpleasant, a copy of its own."""
    return pickle.loads(rng.choice(POISONS))


def mutated(value, rng):
    """Return a copy in which up to three values are poisoned, dropped, moved or doubled."""
    value = duplicate(value)
    for _ in range(rng.randint(1, 3)):
        container, key = rng.choice(places(value) or [([value], 0)])
        action = rng.randrange(4)
        if action == 0:
            container[key] = poison(rng)
        elif action == 1:
            del container[key]
        elif isinstance(container, dict):
            container[rng.choice(["", "id", "content", "type", "vocab", "merges", f"{key}x"])] = duplicate(container[key])
        else:
            container.insert(rng.randrange(len(container) + 1), rng.choice([duplicate(container[key]), poison(rng)]))
    return value


def flipped(raw, rng):
    """Return a text with bytes flipped, cut or spliced, parsed; None where it is no JSON any more."""
    noise = bytearray(raw)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(noise))
        if rng.random() < 0.5:
            noise[at] = rng.randrange(256)
        else:
            noise[at:at] = noise[rng.randrange(len(noise)) :][: rng.randint(1, 12)]
    try:
        return json.loads(noise.decode("utf-8"))
    except (ValueError, RecursionError):
        return None  # `adapters.documents` refuses these by the same two errors


def try_tokenizer(raw):
    """Read and compare a tokenizer as registration does; True when it was taken."""
    try:
        tokenizer = parse_tokenizer(raw, "tokenizer.json")
        relation = compare(GOOD.tokenizer, tokenizer, target_size=8, draft_size=8)
        assert relation.message
        assert len(tokenizer.digest) == len(tokenizer.vocabulary_sha256) == 64
    except SpecopsError as refusal:
        return refused_shortly(refusal)
    return True


def refused_shortly(refusal):
    """Check that a message fits a screen; False, since nothing was taken."""
    assert len(str(refusal)) < 2_000
    return False


def try_config(raw):
    """Read a configuration as registration does; True when it was taken."""
    try:
        describe_config(raw, "config.json")
        describe_card(raw)
        lossy_settings("eagle3", raw)
        prove(GOOD, Side(digest="d", config=raw), method="eagle3")
    except SpecopsError as refusal:
        return refused_shortly(refusal)
    return True


def memory_mib():
    """Return the largest resident size so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "originals", "attempt"), [(1, (bpe(), unigram()), try_tokenizer), (2, (CONFIG,), try_config)])
def test_broken_json_is_refused_by_our_own_errors(seed, originals, attempt):
    """Half by structure, half byte by byte; some survive, most do not, none crashes."""
    rng = random.Random(seed)
    texts = [json.dumps(original).encode() for original in originals]
    before, taken = memory_mib(), 0

    for number in range(CASES):
        at = number % len(originals)
        taken += attempt(mutated(originals[at], rng) if number % 2 else flipped(texts[at], rng))

    assert 0 < taken < CASES
    assert memory_mib() - before < 200
