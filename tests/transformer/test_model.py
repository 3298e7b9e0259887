"""The rearranged forward against a plain one, in every way that tokens may be fed."""

import json

import pytest
import torch
from safetensors.torch import load_file

from specops.errors import InvalidInput, InvalidWeights
from specops.transformer.model import KVCache, load_model

SHAPES = {
    "grouped": {},
    "one kv head": {"kv_heads": 1},
    "no groups": {"kv_heads": 4},
    "untied": {"tied": False},
    "wide heads": {"head_dim": 16, "layers": 1},
}


def reference(folder, ids):
    """Return logits [T, vocab] by the textbook in float64: no cache, no fusing, one head at a time."""
    c = json.loads((folder / "config.json").read_text())
    w = {name: tensor.double() for name, tensor in load_file(folder / "model.safetensors").items()}
    heads, kv, d, n = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"], len(ids)

    def norm(x, name):
        return x / (x.pow(2).mean(-1, keepdim=True) + c["rms_norm_eps"]).sqrt() * w[name]

    def rotate(x):
        angle = torch.arange(n).double()[:, None] * c["rope_theta"] ** (-torch.arange(0, d, 2).double() / d)
        a, b = x[:, : d // 2], x[:, d // 2 :]
        return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), 1)

    x = w["model.embed_tokens.weight"][list(ids)]
    for i in range(c["num_hidden_layers"]):
        at = f"model.layers.{i}."
        y = norm(x, at + "input_layernorm.weight")
        q, k, v = (y @ w[f"{at}self_attn.{p}_proj.weight"].T for p in "qkv")
        mixed = []
        for h in range(heads):
            g = h // (heads // kv)
            scores = rotate(q[:, h * d : (h + 1) * d]) @ rotate(k[:, g * d : (g + 1) * d]).T / d**0.5
            scores += torch.full((n, n), -torch.inf, dtype=torch.float64).triu(1)
            mixed.append(scores.softmax(-1) @ v[:, g * d : (g + 1) * d])
        x = x + torch.cat(mixed, 1) @ w[at + "self_attn.o_proj.weight"].T
        y = norm(x, at + "post_attention_layernorm.weight")
        gate, up = y @ w[at + "mlp.gate_proj.weight"].T, y @ w[at + "mlp.up_proj.weight"].T
        x = x + (gate * gate.sigmoid() * up) @ w[at + "mlp.down_proj.weight"].T
    return norm(x, "model.norm.weight") @ w.get("lm_head.weight", w["model.embed_tokens.weight"]).T


def some_ids(count, vocab=48, seed=3):
    """Return random token ids."""
    return torch.randint(vocab, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


@pytest.mark.parametrize("shape", SHAPES)
def test_logits_equal_the_reference(write_llama, shape):
    """Fusing, pairing and folding change nothing."""
    folder, ids = write_llama(**SHAPES[shape]), some_ids(20)
    model = load_model(folder)

    logits = model.forward(ids, model.new_cache())

    assert (logits.double() - reference(folder, ids)).abs().max() < 1e-4


@pytest.mark.parametrize("shape", SHAPES)
def test_feeding_in_pieces_equals_feeding_at_once(write_llama, shape):
    """Prefill, single tokens and blocks read and write the cache at the right places."""
    folder, ids = write_llama(**SHAPES[shape]), some_ids(20)
    model = load_model(folder)
    cache = model.new_cache(20)

    rows = [model.forward(ids[a:b], cache) for a, b in ((0, 9), (9, 10), (10, 15), (15, 16), (16, 20))]

    assert (torch.cat(rows).double() - reference(folder, ids)).abs().max() < 1e-4


def test_rewound_positions_are_overwritten(make_model):
    """After a rewind nothing of the rejected tokens is left."""
    model, ids = make_model(), some_ids(12)
    cache = model.new_cache()
    model.forward(ids[:6], cache)
    model.forward([7, 7, 7, 7], cache)

    cache.rewind(6)
    logits = model.forward(ids[6:], cache)

    assert torch.allclose(logits, model.forward(ids, model.new_cache())[6:], atol=1e-5)


def test_a_rewind_never_lengthens_a_cache(make_model):
    """Rewinding to a position not yet reached changes nothing."""
    model = make_model()
    cache = model.new_cache()
    model.forward([1, 2, 3], cache)

    cache.rewind(9)

    assert cache.length == 3


def test_last_only_returns_the_last_row(make_model):
    """A prefill pays for one row of the head."""
    model, ids = make_model(), some_ids(8)

    last = model.forward(ids, model.new_cache(), last_only=True)

    assert torch.allclose(last, model.forward(ids, model.new_cache())[-1:], atol=1e-5)


def test_a_full_cache_is_refused(make_model):
    """No position is written beyond the cache."""
    model = make_model()

    with pytest.raises(InvalidInput, match="cache holds 4 positions, 5 are needed"):
        model.forward([1, 2, 3, 4, 5], model.new_cache(4))


@pytest.mark.parametrize("stored", [torch.float16, torch.bfloat16])
def test_half_weights_are_computed_in_float32(write_llama, stored):
    """The stored type only rounds the weights."""
    folder, ids = write_llama(dtype=stored), some_ids(10)
    model = load_model(folder)

    logits = model.forward(ids, model.new_cache())

    assert logits.dtype == torch.float32
    assert (logits.double() - reference(folder, ids)).abs().max() < 1e-4


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_arithmetic_stays_near(write_llama, dtype):
    """Computing in half precision runs and lands near float32."""
    folder, ids = write_llama(scale=0.15), some_ids(10)
    model = load_model(folder, dtype=dtype)

    logits = model.forward(ids, model.new_cache())

    assert (logits.double() - reference(folder, ids)).abs().max() < 0.15 * reference(folder, ids).abs().max()


def test_an_unknown_dtype_is_refused(write_llama):
    """The choice of arithmetic is closed."""
    with pytest.raises(InvalidInput, match="dtype is 'int8', expected one of float32"):
        load_model(write_llama(), dtype="int8")


def test_weights_of_another_model_are_refused(write_llama):
    """A shape that the config does not say is named."""
    folder = write_llama()
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"intermediate_size": 41}))

    with pytest.raises(
        InvalidWeights, match=r"layers.0.mlp.gate_proj.weight is torch.float32 \[40, 32\], config says float \[41, 32\]"
    ):
        load_model(folder)


def test_a_missing_tensor_is_named(write_llama):
    """One layer too few in the file."""
    folder = write_llama(layers=1)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 2}))

    with pytest.raises(InvalidWeights, match=r"no tensor model.layers.1"):
        load_model(folder)


ROPES = {
    "default": {"rope_type": "default"},
    "linear": {"rope_type": "linear", "factor": 4.0},
    "llama3": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    },
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32},
    "yarn, own gain": {
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "attention_factor": 1.3, "beta_fast": 4,
    },
    "yarn, two scales": {
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "mscale": 1.0, "mscale_all_dim": 0.5,
    },
}  # fmt: skip
FAMILIES = {
    "llama": {},
    "llama with biases": {"attention_bias": True},
    "qwen2": {},
    "qwen3": {},
    "qwen3 with biases": {"attention_bias": True},
}


@pytest.fixture
def write_peer(tmp_path):
    """Return a function that writes a random checkpoint with transformers, and returns it and transformers' model."""
    transformers = pytest.importorskip("transformers")
    classes = {
        "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
        "qwen2": (transformers.Qwen2Config, transformers.Qwen2ForCausalLM),
        "qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM),
    }

    def write(family, rope, **extra):
        config, model = classes[family]
        torch.manual_seed(0)
        peer = model(config(
            vocab_size=64, hidden_size=32, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=8, max_position_embeddings=128, rope_parameters={"rope_theta": 500.0} | rope,
            initializer_range=0.2, tie_word_embeddings=False, use_cache=False, **extra,
        )).eval()  # fmt: skip
        for name, weight in peer.named_parameters():
            if name.endswith("bias") or "norm" in name:
                torch.nn.init.normal_(weight, mean=0.0 if name.endswith("bias") else 1.0, std=0.3)
        peer.save_pretrained(tmp_path)
        return tmp_path, peer

    return write


@pytest.mark.parametrize("rope", ROPES)
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_equal_those_of_transformers(write_peer, family, rope):
    """Biases, norms of heads and every rotary variant mean what the checkpoint's authors mean."""
    folder, peer = write_peer(family.split()[0], ROPES[rope], **FAMILIES[family])
    model, ids = load_model(folder), some_ids(40, vocab=64)

    logits = model.forward(ids, model.new_cache())

    with torch.no_grad():
        assert (logits - peer(torch.tensor([ids])).logits[0]).abs().max() < 1e-4


def test_the_attention_kernel_is_recorded(make_model):
    """Which kernel mixes is a property of the hardware, so lineage wants it."""
    assert make_model().attention_kernel in {"flash", "efficient", "math", "cudnn"}


@pytest.mark.parametrize("shape", SHAPES)
def test_rows_together_equal_rows_alone(write_llama, shape):
    """Ragged lengths, ragged positions and idle slots between: each row sees its own past and nothing else."""
    model = load_model(write_llama(**SHAPES[shape]))
    pool = model.new_pool(5, 32)
    feeds = {0: some_ids(9, seed=1), 2: some_ids(4, seed=2), 3: some_ids(14, seed=3)}
    caches = {slot: KVCache(pool, slot, 32) for slot in feeds}
    for slot, cut in ((0, 6), (2, 3), (3, 13)):
        model.forward(feeds[slot][:cut], caches[slot])
    pool[:, 1].fill_(1e4)  # a slot that somebody left

    together = model.forward_rows([(ids[caches[slot].length :], caches[slot]) for slot, ids in feeds.items()])

    for rows, ids in zip(together, feeds.values(), strict=True):
        alone = model.forward(ids, model.new_cache())
        assert torch.allclose(rows, alone[-len(rows) :], atol=1e-4)
    assert {slot: cache.length for slot, cache in caches.items()} == {slot: len(ids) for slot, ids in feeds.items()}


def test_a_row_without_room_changes_no_cache(make_model):
    """One full request does not spoil the others' forward."""
    model = make_model()
    pool = model.new_pool(2, 8)
    caches = [KVCache(pool, 0, 8), KVCache(pool, 1, 2)]

    with pytest.raises(InvalidInput, match="cache holds 2 positions, 3 are needed"):
        model.forward_rows([([1], caches[0]), ([1, 2, 3], caches[1])])

    assert [cache.length for cache in caches] == [0, 0]
