"""A Hugging Face style folder on disk: config.json and *.safetensors, read so that nothing in it can run code.

Called by `model.load_model`. It decides what is a readable Llama or Qwen and refuses everything else with one line;
what is computed from the tensors is `model`'s business. Pickle files are never opened.

Test: tests/transformer/test_checkpoint.py.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from specops.errors import InvalidWeights
from specops.transformer.rope import Rope, read_rope

PICKLES = (".bin", ".pt", ".pth", ".pkl", ".ckpt")
INDEX = "model.safetensors.index.json"
FAMILIES = ("llama", "qwen2", "qwen3")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Shape of a Llama or Qwen.

    `max_len` is its context in tokens, `eos_ids` the tokens that end its text; `qkv_bias` and `out_bias` say which attention
    products have a bias, `qk_norm` whether each head of q and k is normalised before it turns (Qwen 3).
    """

    vocab_size: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    max_len: int
    rms_eps: float
    rope: Rope
    tied: bool
    eos_ids: tuple[int, ...]
    qkv_bias: bool = False
    out_bias: bool = False
    qk_norm: bool = False

    def __post_init__(self) -> None:
        """Check that the sizes fit together."""
        sizes = (
            self.vocab_size,
            self.hidden,
            self.layers,
            self.heads,
            self.kv_heads,
            self.head_dim,
            self.intermediate,
            self.max_len,
        )
        if min(sizes) < 1 or self.heads % self.kv_heads or self.head_dim % 2:
            raise InvalidWeights(
                f"config sizes do not fit together: {self}; need heads a multiple of kv_heads, an even head_dim",
            )


def read_config(folder: Path) -> Config:
    """Read config.json.

    Raises:
        InvalidWeights: the file is missing or broken, or asks for something this engine does not compute.
    """
    raw = _read_json(folder / "config.json")
    _refuse_unsupported(folder, raw)
    family, bias = raw["model_type"], bool(raw.get("attention_bias", False))
    try:
        heads, hidden, eos = int(raw["num_attention_heads"]), int(raw["hidden_size"]), raw.get("eos_token_id")
        return Config(
            vocab_size=int(raw["vocab_size"]),
            hidden=hidden,
            layers=int(raw["num_hidden_layers"]),
            heads=heads,
            kv_heads=int(raw.get("num_key_value_heads") or heads),
            head_dim=int(raw.get("head_dim") or hidden // heads),
            intermediate=int(raw["intermediate_size"]),
            max_len=int(raw["max_position_embeddings"]),
            rms_eps=float(raw.get("rms_norm_eps", 1e-6)),
            rope=read_rope(raw, str(folder / "config.json")),
            tied=bool(raw.get("tie_word_embeddings", False)),
            eos_ids=tuple(eos) if isinstance(eos, list) else () if eos is None else (int(eos),),
            qkv_bias=bias or family == "qwen2",  # Qwen 2 has these biases without saying so, and none on the output
            out_bias=bias and family != "qwen2",
            qk_norm=family == "qwen3",
        )
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as exc:
        raise InvalidWeights(
            f"{folder / 'config.json'} lacks or spoils a size: {exc!r}; write the config of a {family} checkpoint"
        ) from exc


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """Read all tensors of one safetensors file, or of the shards that an index names.

    Raises:
        InvalidWeights: no safetensors file, a missing or corrupt file, or an index that points out of the folder.
    """
    tensors: dict[str, Tensor] = {}
    for path in _files(folder):
        try:
            tensors |= load_file(path)
        except (SafetensorError, OSError, ValueError) as exc:
            reason = " ".join(str(exc).split())
            raise InvalidWeights(
                f"{path} is missing, truncated or no safetensors file: {reason}; copy it again from its source"
            ) from exc
    return tensors


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise InvalidWeights(f"{folder} is not a folder; expected one with config.json and *.safetensors")
    if (folder / INDEX).is_file():
        names = _read_json(folder / INDEX).get("weight_map")
        if not isinstance(names, dict) or any(not isinstance(n, str) or Path(n).name != n for n in names.values()):
            raise InvalidWeights(f"{folder / INDEX} has no weight_map of plain file names; copy it again from its source")
        return [folder / name for name in sorted(set(names.values()))]
    if (folder / "model.safetensors").is_file():
        return [folder / "model.safetensors"]
    pickles = sorted(path.name for path in folder.iterdir() if path.suffix in PICKLES)
    if pickles:
        way_out = "which runs code when read; convert them to model.safetensors"
        raise InvalidWeights(f"{folder} has its weights as pickle ({pickles[0]}), {way_out}")
    raise InvalidWeights(f"{folder} has no model.safetensors and no {INDEX}; expected one of them")


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        raise InvalidWeights(f"{path} is missing or no JSON: {exc}; copy it again from its source") from exc
    if not isinstance(value, dict):
        raise InvalidWeights(f"{path} holds a {type(value).__name__}, expected a JSON object; copy it again from its source")
    return value


def _refuse_unsupported(folder: Path, raw: dict[str, Any]) -> None:
    sliding = bool(raw.get("use_sliding_window", False)) or (
        raw.get("model_type") == "llama" and raw.get("sliding_window") is not None
    )
    kinds = raw.get("layer_types")
    wanted: tuple[tuple[str, object, tuple[object, ...]], ...] = (
        ("model_type", raw.get("model_type"), FAMILIES),
        ("hidden_act", raw.get("hidden_act", "silu"), ("silu",)),
        ("mlp_bias", bool(raw.get("mlp_bias", False)), (False,)),
        ("sliding window", sliding, (False,)),
        *(("layer type", kind, ("full_attention",)) for kind in (kinds if isinstance(kinds, list) else ())),
        ("quantization_config", raw.get("quantization_config"), (None,)),
    )
    for name, got, expected in wanted:
        if got not in expected:
            computed = ", ".join(map(repr, expected))
            raise InvalidWeights(
                f"{folder / 'config.json'} has {name} {got!r}, this engine computes {computed} only; serve it with vLLM"
            )
