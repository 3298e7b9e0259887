"""Which settings trade the target's exact output law for acceptance, and who allowed them.

Called at registration and at the start of a rollout; `core.lineage` uses the tables to say what a difference can change. Exact
acceptance keeps the law (Leviathan et al. 2023, arXiv 2211.17192); the settings below do not. A key of a speculative
configuration that is not known counts as lossy until somebody allows it by name: an engine's next version may bring one.

Sources: vLLM 0.19 to 0.33 (`vllm/config/speculative.py`), transformers' assisted generation, SGLang's and TensorRT-LLM's server
arguments; through the facts gathered for this project.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from specops.core.release import Release
from specops.errors import IncompatibleRelease

RULE = "rejection_sample_method"
LOSSY_KEYS = frozenset(
    {
        "synthetic_acceptance_rate",
        "synthetic_acceptance_rates",
        "synthetic_acceptance_length",
        "posterior_alpha",
        "posterior_threshold",
        "acceptance_method",
        "assistant_ensemble_weight",
        "accept_threshold_single",
        "accept_threshold_acc",
        "accept_tolerance",
        "verifier_accept_k",
        "use_relaxed_acceptance_for_thinking",
        "relaxed_topk",
        "relaxed_delta",
    }
)
"""Settings whose presence loosens acceptance, unless their value is in `_OFF`."""
EXACT_RULES = frozenset({None, "standard", "block", "strict", "probabilistic"})
"""Values of `rejection_sample_method` that keep the law, vLLM 0.19 to 0.33; synthetic and fly do not."""
_OFF: Mapping[str, tuple[Any, ...]] = {
    "acceptance_method": ("rejection_sampler",),
    "accept_threshold_single": (1, 1.0),
    "accept_threshold_acc": (1, 1.0),
    "accept_tolerance": (0, 0.0),
    "verifier_accept_k": (1,),
    "use_relaxed_acceptance_for_thinking": (False,),
}
_PROPOSAL_KEYS = frozenset(
    {
        "num_speculative_tokens", "model", "method", "draft_tensor_parallel_size", "quantization", "moe_backend",
        "attention_backend", "kv_cache_dtype", "max_model_len", "revision", "code_revision", "enforce_eager",
        "index_share_for_mtp_iteration", "disable_padded_drafter_batch", "disable_eagle_block_drop",
        "use_local_argmax_reduction", "use_heterogeneous_vocab", "prompt_lookup_min", "prompt_lookup_max", "parallel_drafting",
        "num_speculative_tokens_per_batch_size", "suffix_decoding_max_tree_depth", "suffix_decoding_max_cached_requests",
        "suffix_decoding_max_spec_factor", "suffix_decoding_min_token_prob", "draft_load_config", RULE,
        "enable_adaptive_verification", "draft_sample_method", "dspark_draft_topk", "disable_lookahead_block_hashes",
        "draft_lm_head_quantization", "xpress_topc", "fly_window_size", "fly_entropy_threshold", "fly_entropy_top_k",
        "target_model_config", "target_parallel_config", "draft_model_config", "draft_parallel_config", "tensor_parallel_size",
        "disable_by_batch_size", "disable_logprobs", "disable_log_stats", "num_lookahead_slots", "speculative_token_tree",
    }
)  # fmt: skip  # the fly_ keys only tune the rule fly, which is flagged itself
_METHODS_LOSSY = frozenset({"extract_hidden_states"})
_PREFIX = "speculative_"  # SGLang writes speculative_accept_threshold_single
_MAX_NODES = 100_000


def lossy_settings(
    method: str | None, speculative_config: Mapping[str, Any], engine: Mapping[str, Any] | None = None
) -> tuple[str, ...]:
    """Return the settings that break exactness, as `key: value`, sorted.

    Args:
        method: how the draft proposes; no known one is lossy by itself, but `extract_hidden_states` is no speculative decoding.
        speculative_config: as given to the engine. A top-level key that is not known counts.
        engine: engine arguments, for engines that take acceptance thresholds there; unknown keys do not count here.

    Raises:
        IncompatibleRelease: a configuration is larger than any real one.
    """
    found = {f"method: {method}"} if method in _METHODS_LOSSY else set()
    found |= {f"{key}: {_text(value)}" for key, value in _walk(speculative_config) if is_lossy(key, value)}
    for key, value in speculative_config.items():
        bare = key.removeprefix(_PREFIX)
        if value is not None and not {key, bare} & (_PROPOSAL_KEYS | LOSSY_KEYS):
            found.add(f"{key}: {_text(value)}")
    found |= {f"{key}: {_text(value)}" for key, value in _walk(engine or {}) if is_lossy(key, value)}
    return tuple(sorted(found))


def is_lossy(key: str, value: object) -> bool:
    """Say whether one setting with this value breaks exactness; a value of None is a setting that is not made."""
    bare = key.removeprefix(_PREFIX)
    if value is None:
        return False
    if bare == RULE:
        return not isinstance(value, str) or value not in EXACT_RULES
    return bare in LOSSY_KEYS and not any(type(value) is type(off) and value == off for off in _OFF.get(bare, ()))


def require_exact(release: Release, allowed: Iterable[str] = ()) -> None:
    """Refuse a release whose acceptance is lossy, unless each such setting is allowed by name.

    Args:
        release: what is to be registered or served.
        allowed: names: `key: value` as `lossy_settings` writes it, or the key alone for any value. The rule of acceptance must
            be named in full, or by its value (`fly`).

    Raises:
        IncompatibleRelease: names the settings that nobody allowed, or that the release does not declare in `lossy`.
    """
    names = frozenset(allowed)
    settings = lossy_settings(release.method, release.speculative_config, release.engine)
    if missing := [setting for setting in settings if not _is_allowed(setting, names)]:
        raise IncompatibleRelease(
            f"release {release.name} is not exact: {'; '.join(missing)}; that changes the output law or is not known to keep "
            f"it. Drop it, or allow it by name (--allow-lossy {missing[0]!r} at registration, allow_lossy in the policy)"
        )
    if settings != release.lossy:
        raise IncompatibleRelease(
            f"release {release.name} declares lossy settings {list(release.lossy)}, its configuration has {list(settings)}; "
            "build it with lossy_settings()"
        )


def _is_allowed(setting: str, names: frozenset[str]) -> bool:
    """Say whether a setting was allowed: in full, by its key, or for the rule of acceptance and the method by the value."""
    key, _, value = setting.partition(": ")
    return setting in names or (value if key.removeprefix(_PREFIX) in (RULE, "method") else key) in names


def _walk(config: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """Yield every key with its value, at any depth."""
    waiting: list[object] = [config]
    for seen, item in enumerate(waiting):  # grows while it is walked
        if seen > _MAX_NODES:
            raise IncompatibleRelease(f"the configuration holds more than {_MAX_NODES} values; no engine's does")
        if isinstance(item, Mapping):
            yield from ((str(key), value) for key, value in item.items())
            waiting += item.values()
        elif isinstance(item, list | tuple):
            waiting += item


def _text(value: object) -> str:
    return str(value)[:80]
