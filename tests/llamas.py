"""Small random checkpoints, as fixtures for whoever needs a real forward."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from specops.transformer.model import load_model


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


@pytest.fixture
def pair(make_model):
    """Return a target, and a draft that agrees with it about half the time: its weights with noise."""
    target, draft = make_model("target", eos=5), make_model("draft", eos=5)
    rng = torch.Generator().manual_seed(1)
    for layer in draft._layers:
        for weight in (layer.qkv, layer.down):
            weight.add_(torch.randn(weight.shape, generator=rng) * weight.std() * 0.25)
    return target, draft
