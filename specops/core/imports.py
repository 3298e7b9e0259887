"""What the files of a Hugging Face folder say: what they prove about themselves, and what they merely claim about others.

Called by `adapters.hf_folder` and `adapters.gguf_file` with parsed JSON; reads nothing itself. A property is about these very
bytes (hidden size, vocabulary size) and can be read again. A claim is about something else (a base model's name, a verifier's
path, a licence): kept and shown as a claim, and never turned into an edge by itself.

Sources: Hugging Face `config.json` as read by transformers; speculators_config (vLLM speculators 0.2 and later); model card
metadata (huggingface/hub-docs, modelcard.md).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from specops.core.release import Artifact, Edge
from specops.core.safetensors import shown
from specops.errors import InvalidRecord

MAX_TEXT = 2_000  # characters kept of any text; a card's licence or a path is shorter
MAX_ITEMS = 4_096  # entries kept of a list or mapping; layer lists and module exclusions are shorter
MAX_NESTING = 12
_WHOLE = (
    "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
    "intermediate_size", "max_position_embeddings", "sliding_window", "num_experts", "num_local_experts",
    "num_nextn_predict_layers", "draft_vocab_size", "target_hidden_size", "n_predict", "medusa_num_heads",
)  # fmt: skip
_OTHER = (
    "model_type", "torch_dtype", "dtype", "tie_word_embeddings", "rope_theta", "rope_scaling", "rope_parameters",
    "bos_token_id", "eos_token_id", "pad_token_id", "rms_norm_eps", "hidden_act", "quantization_config",
    "eagle_aux_hidden_state_layer_ids", "norm_before_residual", "architectures", "attention_bias",
)  # fmt: skip
_CARD = ("base_model", "base_model_relation", "license", "datasets", "model_name", "language")


class Role(StrEnum):
    """What a model folder holds: a model of its own, or a head that needs the target's hidden states."""

    MODEL = "model"
    EAGLE = "eagle"
    EAGLE3 = "eagle3"
    MTP = "mtp"
    MEDUSA = "medusa"
    MLP_SPECULATOR = "mlp_speculator"
    DFLASH = "dflash"
    DSPARK = "dspark"

    @property
    def is_head(self) -> bool:
        """It is conditioned on the target's hidden states and cannot run alone."""
        return self is not Role.MODEL


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What an import found, not yet registered. `notes` say in a sentence each what was not taken over, and why."""

    artifacts: tuple[Artifact, ...]
    edges: tuple[Edge, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """What a configuration says. `num_speculative_tokens` is what a draft was made for, None where it does not say."""

    role: Role
    properties: dict[str, Any]
    claims: dict[str, Any]
    num_speculative_tokens: int | None = None


def describe_config(config: object, where: str) -> Description:
    """Read a `config.json`.

    Args:
        config: the parsed file.
        where: its path, for messages.

    Raises:
        InvalidRecord: it is not an object, or a size is no whole number above 0.
    """
    top = _mapping(config, where)
    inner = top.get("transformer_layer_config") or top.get("text_config")  # speculators and multimodal models nest theirs
    merged = (dict(_mapping(inner, f"{where}: nested model config")) if inner is not None else {}) | dict(top)
    properties: dict[str, Any] = {}
    for key in _WHOLE:
        if merged.get(key) is not None:
            properties[key] = _whole(merged[key], f"{where}: {key}")
    properties |= {key: bounded(merged[key], f"{where}: {key}") for key in _OTHER if merged.get(key) is not None}
    claims = {"name_or_path": _text(top["_name_or_path"])} if top.get("_name_or_path") else {}
    speculators = top.get("speculators_config")
    if speculators is None:
        return Description(role=_role(top), properties=properties, claims=claims)
    found = _speculators(_mapping(speculators, f"{where}: speculators_config"), where)
    return Description(
        role=_role(dict(top) | {"algorithm": found["properties"].get("algorithm")}),
        properties=properties | found["properties"],
        claims=claims | found["claims"],
        num_speculative_tokens=found["k"],
    )


def describe_card(metadata: object) -> dict[str, Any]:
    """Return the claims of a model card's YAML head; a card that has none, or is no mapping, claims nothing."""
    if not isinstance(metadata, Mapping):
        return {}
    return {key: bounded(metadata[key], f"model card: {key}") for key in _CARD if metadata.get(key) not in (None, "", [])}


def bounded(value: object, where: str, depth: int = 0) -> Any:  # noqa: ANN401  # any JSON value
    """Return a JSON value that is safe to store: no huge text, list, nesting, nor a number that canonical JSON cannot hold.

    Raises:
        InvalidRecord: it is nested or long beyond reason.
    """
    if depth > MAX_NESTING:
        raise InvalidRecord(f"{where} is nested more than {MAX_NESTING} deep; this is no model configuration")
    if isinstance(value, Mapping | list | tuple) and len(value) > MAX_ITEMS:
        raise InvalidRecord(f"{where} has {len(value)} entries, at most {MAX_ITEMS} are kept; this is no model configuration")
    if isinstance(value, Mapping):
        return {_text(key): bounded(item, where, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [bounded(item, where, depth + 1) for item in value]
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**53 else str(value)[:MAX_TEXT]
    if isinstance(value, float):
        return value if value - value == 0.0 else str(value)  # inf - inf and nan - nan are nan
    return _text(value)


def _speculators(config: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Split a speculators_config into properties, claims and k."""
    methods = config.get("proposal_methods") or []
    if not isinstance(methods, list) or not all(isinstance(m, Mapping) for m in methods):
        raise InvalidRecord(f"{where}: proposal_methods must be a list of objects, got {type(methods).__name__}")
    chosen = config.get("default_proposal_method")
    first = next((m for m in methods if m.get("proposal_type") == chosen), methods[0] if methods else {})
    k = first.get("speculative_tokens")
    verifier = config.get("verifier") or {}
    claims = {}
    if isinstance(verifier, Mapping) and verifier.get("name_or_path"):
        claims["verifier"] = _text(verifier["name_or_path"])
    if isinstance(verifier, Mapping) and verifier.get("architectures"):
        claims["verifier_architectures"] = bounded(verifier["architectures"], f"{where}: verifier.architectures")
    properties = {"proposal_methods": bounded(methods, f"{where}: proposal_methods")}
    if config.get("algorithm") is not None:
        properties["algorithm"] = _text(config["algorithm"])
    return {
        "properties": properties,
        "claims": claims,
        "k": None if k is None else _whole(k, f"{where}: speculative_tokens"),
    }


def _role(config: Mapping[str, Any]) -> Role:
    """Recognise a head by what it says it is; the folder's name is never asked."""
    names = [config.get(key) for key in ("algorithm", "speculators_model_type", "model_type")]
    architectures = config.get("architectures")
    words = " ".join(str(n) for n in (*names, *(architectures if isinstance(architectures, list) else []))).lower()
    order = (Role.EAGLE3, Role.EAGLE, Role.MEDUSA, Role.MLP_SPECULATOR, Role.DFLASH, Role.DSPARK, Role.MTP)
    return next((role for role in order if role.value in words), Role.MODEL)


def _mapping(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidRecord(f"{where} must be a JSON object, got {type(value).__name__}; download it again")
    return value


def _whole(value: object, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 2**53:
        raise InvalidRecord(f"{where} must be a whole number above 0, got {shown(value, 40)}; download the file again")
    return value


def _text(value: object) -> str:
    return str(value)[:MAX_TEXT].replace("\x00", "�")
