"""Builders of small real model folders, written with the libraries that write them in the field (tokenizers, safetensors)."""

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

TEXT = ["the quick brown fox jumps over the lazy dog", "pack my box with five dozen liquor jugs", "def f(x): return x + 1"]
HIDDEN, LAYERS, VOCAB = 16, 2, 300


def write_json(path: Path, content: object) -> None:
    """Write a JSON file, its folder too."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")


def write_tokenizer(folder: Path, *, added=("<|end|>",), vocab_size=VOCAB) -> Path:
    """Train and write a byte-level BPE tokenizer; the same arguments give the same file."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(added), initial_alphabet=sorted(alphabet), show_progress=False, special_tokens=[]
    )
    tokenizer.train_from_iterator(TEXT * 3, trainer)
    tokenizer.add_special_tokens([AddedToken(word, special=True) for word in added])
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    write_json(folder / "tokenizer_config.json", {"eos_token": added[0], "chat_template": "{{ messages }}"})
    return folder


def llama_config(**changes) -> dict:
    """Return the config of a tiny Llama."""
    plain = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN, "num_hidden_layers": LAYERS,
        "num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": 32, "vocab_size": VOCAB,
        "torch_dtype": "float32", "max_position_embeddings": 128, "tie_word_embeddings": True, "rope_theta": 10000.0,
        "eos_token_id": VOCAB - 1,
        "_name_or_path": "private/path/of-the-builder",
    }  # fmt: skip
    return plain | changes


def llama_tensors(seed=0, layers=LAYERS) -> dict[str, np.ndarray]:
    """Return a few weights of a tiny Llama."""
    rng = np.random.default_rng(seed)
    tensors = {"model.embed_tokens.weight": rng.normal(size=(VOCAB, HIDDEN)).astype(np.float32)}
    for layer in range(layers):
        tensors[f"model.layers.{layer}.self_attn.q_proj.weight"] = rng.normal(size=(HIDDEN, HIDDEN)).astype(np.float32)
    return tensors


def write_llama(folder: Path, *, seed=0, tensors=None, added=("<|end|>",), **config) -> Path:
    """Write a tiny Llama with tokenizer, generation config and a model card."""
    write_tokenizer(folder, added=added)
    write_json(folder / "config.json", llama_config(**config))
    write_json(folder / "generation_config.json", {"temperature": 0.7, "eos_token_id": VOCAB - 1})
    save_file(tensors or llama_tensors(seed), str(folder / "model.safetensors"), metadata={"format": "pt"})
    (folder / "README.md").write_text("---\nbase_model: someone/base\nlicense: apache-2.0\n---\n# A model\n", encoding="utf-8")
    return folder


def write_pair(folder: Path) -> tuple[Path, Path]:
    """Write a target and a smaller draft that speak the same vocabulary and share their embeddings."""
    shared = llama_tensors(1)["model.embed_tokens.weight"]
    target = write_llama(folder / "target", tensors=llama_tensors(1))
    draft = write_llama(
        folder / "draft", tensors=llama_tensors(2, layers=1) | {"model.embed_tokens.weight": shared}, num_hidden_layers=1
    )
    return target, draft


def write_eagle3(folder: Path, *, draft_vocab=40, **changes) -> Path:
    """Write an EAGLE-3 head in the speculators format, with its vocabulary maps."""
    rng = np.random.default_rng(3)
    chosen = np.sort(rng.choice(VOCAB, size=draft_vocab, replace=False))
    mask = np.zeros(VOCAB, dtype=bool)
    mask[chosen] = True
    plain = {
        "architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3", "speculators_version": "0.3.0",
        "draft_vocab_size": draft_vocab, "target_hidden_size": HIDDEN, "eagle_aux_hidden_state_layer_ids": [0, 1],
        "norm_before_residual": False, "transformer_layer_config": llama_config(num_hidden_layers=1, vocab_size=VOCAB),
        "speculators_config": {
            "algorithm": "eagle3", "default_proposal_method": "greedy",
            "proposal_methods": [
                {"proposal_type": "greedy", "speculative_tokens": 3, "verifier_accept_k": 1, "accept_tolerance": 0.0}
            ],
            "verifier": {"name_or_path": "private/builder/llama", "architectures": ["LlamaForCausalLM"]},
        },
    }  # fmt: skip
    write_json(folder / "config.json", plain | changes)
    weights = {
        "fc.weight": rng.normal(size=(HIDDEN, 3 * HIDDEN)).astype(np.float32),
        "d2t": (chosen - np.arange(draft_vocab)).astype(np.int64),
        "t2d": mask,
    }
    save_file(weights, str(folder / "model.safetensors"))
    return folder


def write_quantised(folder: Path) -> Path:
    """Write a target whose linear layers are compressed-tensors int8, with scales."""
    rng = np.random.default_rng(4)
    scheme = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel"}
    config = {
        "quant_method": "compressed-tensors", "format": "int-quantized", "ignore": ["lm_head"],
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": scheme}},
    }  # fmt: skip
    write_tokenizer(folder)
    write_json(folder / "config.json", llama_config(quantization_config=config))
    name = "model.layers.0.self_attn.q_proj"
    weights = {
        "model.embed_tokens.weight": llama_tensors(1)["model.embed_tokens.weight"],
        f"{name}.weight": rng.integers(-127, 127, size=(HIDDEN, HIDDEN), dtype=np.int8),
        f"{name}.weight_scale": rng.random((HIDDEN, 1), dtype=np.float32),
    }
    save_file(weights, str(folder / "model.safetensors"))
    (folder / "README.md").write_text(
        "---\nbase_model:\n- someone/base\nbase_model_relation: quantized\n---\n", encoding="utf-8"
    )
    return folder


def write_sharded(folder: Path) -> Path:
    """Write a model in two shards with their index."""
    write_tokenizer(folder)
    write_json(folder / "config.json", llama_config())
    tensors = llama_tensors(1)
    names = sorted(tensors)
    parts = {
        "model-00001-of-00002.safetensors": names[:1],
        "model-00002-of-00002.safetensors": names[1:],
    }
    for file, mine in parts.items():
        save_file({name: tensors[name] for name in mine}, str(folder / file))
    total = sum(t.nbytes for t in tensors.values())
    weight_map = {name: file for file, mine in parts.items() for name in mine}
    write_json(folder / "model.safetensors.index.json", {"metadata": {"total_size": total}, "weight_map": weight_map})
    return folder
