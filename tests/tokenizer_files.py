"""Builders of small parsed `tokenizer.json` files, for tests of the pure rules."""

import copy

BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
END = {
    "id": 6, "content": "<|end|>", "special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
}  # fmt: skip


def bpe(**changes):
    """Return a byte-level BPE file of six tokens and an added one; `changes` replace top-level keys."""
    plain = {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "pre_tokenizer": BYTE_LEVEL,
        "post_processor": None, "decoder": BYTE_LEVEL, "added_tokens": [END],
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "byte_fallback": False,
            "vocab": {"a": 0, "b": 1, "Ġ": 2, "Ã": 3, "ab": 4, "Ġab": 5}, "merges": [["a", "b"], ["Ġ", "ab"]],
        },
    }  # fmt: skip
    return copy.deepcopy(plain | changes)


def changed_model(raw=None, **changes):
    """Return a file whose model has other keys."""
    raw = raw or bpe()
    raw["model"] |= changes
    return raw


def unigram(**changes):
    """Return a sentencepiece-like Unigram file with byte fallback."""
    plain = {
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
        "pre_tokenizer": None, "post_processor": None, "decoder": {"type": "ByteFallback"}, "added_tokens": [],
        "model": {
            "type": "Unigram", "unk_id": 0, "byte_fallback": True, "vocab": [["<unk>", 0.0], ["<0x0A>", -1], ["▁a", -2.5]],
        },
    }  # fmt: skip
    return copy.deepcopy(plain | changes)
