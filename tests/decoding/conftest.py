"""Builders of the decoding tests: a small random checkpoint, a toy model of known law, and a chance that tries everything."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file

from specops.decoding.draft import Proposal
from specops.decoding.model import load_model
from specops.decoding.sampling import law


def random_llama(
    *, seed=0, vocab=48, hidden=32, layers=2, heads=4, kv_heads=2, head_dim=8, ff=40, context=64, tied=True, eos=None, scale=0.3
):
    """Return (config, tensors) of a small Llama with large enough weights that its laws are far from uniform."""
    rng = torch.Generator().manual_seed(seed)

    def weight(*shape):
        return torch.randn(*shape, generator=rng) * scale

    tensors = {"model.embed_tokens.weight": weight(vocab, hidden) * 3, "model.norm.weight": 1 + weight(hidden) * 0.3}
    if not tied:
        tensors["lm_head.weight"] = weight(vocab, hidden)
    sizes = {
        "q": (heads * head_dim, hidden),
        "k": (kv_heads * head_dim, hidden),
        "v": (kv_heads * head_dim, hidden),
        "o": (hidden, heads * head_dim),
    }
    for i in range(layers):
        at = f"model.layers.{i}."
        tensors |= {f"{at}self_attn.{n}_proj.weight": weight(*shape) for n, shape in sizes.items()}
        tensors |= {
            f"{at}mlp.{n}_proj.weight": weight(*s)
            for n, s in {"gate": (ff, hidden), "up": (ff, hidden), "down": (hidden, ff)}.items()
        }
        tensors |= {f"{at}{n}_layernorm.weight": 1 + weight(hidden) * 0.3 for n in ("input", "post_attention")}
    config = {
        "model_type": "llama", "hidden_act": "silu", "vocab_size": vocab, "hidden_size": hidden, "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": head_dim, "intermediate_size": ff,
        "max_position_embeddings": context, "rms_norm_eps": 1e-3, "rope_theta": 500.0, "tie_word_embeddings": tied,
        "eos_token_id": eos,
    }  # fmt: skip
    return config, {name: tensor.contiguous() for name, tensor in tensors.items()}


@pytest.fixture
def write_llama(tmp_path):
    """Return a function that writes a small random checkpoint folder."""

    def write(name="model", *, dtype=torch.float32, **sizes) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        config, tensors = random_llama(**sizes)
        (folder / "config.json").write_text(json.dumps(config))
        save_file({key: tensor.to(dtype) for key, tensor in tensors.items()}, folder / "model.safetensors")
        return folder

    return write


@pytest.fixture
def make_model(write_llama):
    """Return a function that builds a small random model."""
    return lambda name="model", **sizes: load_model(write_llama(name, **sizes))


class Toy:
    """A second-order Markov target or draft model: logits depend on the last two tokens, so a wrong row or cache shows."""

    def __init__(self, vocab, seed, *, context=64, sharpness=1.5):
        self.config = SimpleNamespace(vocab_size=vocab, max_len=context, eos_ids=())
        self.table = (
            torch.randn(vocab, vocab, vocab, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * sharpness
        )

    def new_cache(self, capacity=None):
        """Return a cache that remembers its tokens, so that stale ones would be used if a rewind were missing."""
        return ToyCache(min(capacity or self.config.max_len, self.config.max_len))

    def forward(self, ids, cache, *, last_only=False):
        """Return logits after each id."""
        rows = []
        for token in ids:
            before = cache.tokens[cache.length - 1] if cache.length else 0
            cache.tokens[cache.length :] = [token]
            cache.length += 1
            rows.append(self.table[before, token])
        return torch.stack(rows[-1:] if last_only else rows)

    def logits_after(self, tokens):
        """Return the logits [1, vocab] after a text of at least two tokens."""
        return self.table[tokens[-2], tokens[-1]][None]


class ToyCache:
    """What `KVCache` is to a model."""

    def __init__(self, capacity):
        self.capacity, self.tokens, self.length = capacity, [], 0

    def rewind(self, length):
        """Forget positions from `length` on."""
        self.length = min(self.length, length)


class Scripted:
    """Chance that takes the listed branches, then the first ones, and notes weight and the branches not taken."""

    def __init__(self, script):
        self.script, self.taken, self.weight, self.others, self.coin = script, (), 1.0, [], None

    def _branch(self, outcomes):
        possible = [(value, p) for value, p in outcomes if p > 0]
        at = self.script[len(self.taken)] if len(self.taken) < len(self.script) else 0
        if len(self.taken) >= len(self.script):
            self.others += [(*self.taken, i) for i in range(1, len(possible))]
        self.taken = (*self.taken, at)
        self.weight *= possible[at][1]
        return possible[at][0]

    def accepts(self, probability):
        """Branch on accept and reject."""
        return self._branch([(True, min(1.0, probability)), (False, 1.0 - min(1.0, probability))])

    def pick(self, law):
        """Branch on every token."""
        return self._branch(list(enumerate(law.tolist())))


@pytest.fixture
def every_path():
    """Return a function that runs something under every outcome of chance and yields (weight, result)."""

    def paths(run):
        waiting = [()]
        while waiting:
            chance = Scripted(waiting.pop())
            result = run(chance)
            yield chance.weight, result
            waiting += chance.others

    return paths


@pytest.fixture
def toy():
    """Return the toy model's class."""
    return Toy


class ToyDraft:
    """A draft from a toy model, with its proposal built by a function that mutants replace."""

    def __init__(self, model, k, propose):
        self.model, self.k, self._propose = model, k, propose

    def open(self, request, limit):
        """Start; the toy keeps nothing."""
        self.request = request
        return self

    def propose(self, committed, k, chance):
        """Propose by the given function."""
        return self._propose(self.model, self.request, list(committed), k, chance)

    def rewind(self, length):
        """Do nothing."""


def soft(model, request, text, k, chance):
    """Draw from the draft's law and return it."""
    rows, start = [], len(text)
    for _ in range(k):
        rows.append(law(model.logits_after(text), request))
        text.append(chance.pick(rows[-1][0]))
    return Proposal(tokens=tuple(text[start:]), law=torch.cat(rows) if rows else None)


@pytest.fixture
def soft_draft():
    """Return a builder of soft drafts over a toy model; `propose` replaces how it proposes."""
    return lambda model, k, propose=soft: ToyDraft(model, k, propose)
