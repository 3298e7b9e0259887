"""What can be said of an endpoint before any token is sampled: lossy settings, a trusted path that is none, unlike weights.

Called by `control.verify` with what both servers say about themselves; what they do not say is a remark, never a pass.
Source of the refused parameters: vLLM 0.32, `SamplingParams._validate_spec_decode`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specops.core.lossy import lossy_settings
from specops.errors import IncompatibleRelease

REFUSED_WITH_SPECULATION = ("min_p", "logit_bias")
NOT_MODELLED = ("presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias", "min_tokens", "bad_words")
"""Parameters of a request under which tokens are not verified here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """`lossy` settings break exactness by themselves; `remarks` are what could not be looked at, or differs."""

    lossy: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


def inspect(
    facts: Mapping[str, Any], trusted: Mapping[str, Any], configuration: Mapping[str, Any] | None = None
) -> Gate:
    """Compare what the endpoint and the trusted path say about themselves.

    Args:
        facts: `/server_info` of the endpoint; empty when it has none.
        trusted: the same of the trusted path.
        configuration: the endpoint's speculative configuration, where a person gives it; it comes before the server's own.

    Raises:
        IncompatibleRelease: the trusted path speculates, or has other weights than the endpoint.
    """
    if method := _method(trusted):
        raise IncompatibleRelease(
            f"the trusted path speculates itself ({method}); start the target without speculation and give its URL"
        )
    weights = [_weights(one) for one in (facts, trusted)]
    if all(weights) and weights[0] != weights[1]:
        raise IncompatibleRelease(
            f"the endpoint serves target weights {weights[0]}, the trusted path {weights[1]}; give a path with the same weights"
        )
    own = speculation(facts) if configuration is None else configuration
    remarks = [f"requests with {' or '.join(REFUSED_WITH_SPECULATION)}, which vLLM refuses under speculation"]
    if own is None:
        remarks.append("the endpoint does not tell its speculative configuration: lossy settings were not looked for")
    if not facts or not trusted:
        remarks.append("a server does not describe itself: that its engine is still the same cannot be seen from the scope")
    if not all(weights):
        remarks.append("the servers do not name the digest of their weights: that both serve the same target is taken on trust")
    return Gate(lossy=lossy_settings(_method(own or {}), own or {}), remarks=tuple(remarks))


def speculation(facts: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the speculative configuration in what a server says about itself; None where it says nothing."""
    nested = facts.get("vllm_config")
    for place in (facts, nested if isinstance(nested, Mapping) else {}):
        found = place.get("speculative_config")
        if isinstance(found, Mapping):
            return found
    if "method" in facts:  # the reference engine's words
        known = {key: facts.get(key) for key in ("method", "num_speculative_tokens", "draft_sample_method")}
        return known | {key: value for key, value in facts.items() if key == "rejection_sample_method"}
    return None


def dtype_of(facts: Mapping[str, Any]) -> str | None:
    """Return the dtype that a server names, without torch's prefix; None where it names none."""
    text = facts.get("vllm_config")
    found = re.search(r"\bdtype=torch\.(\w+)", text) if isinstance(text, str) else None
    said = found[1] if found else facts.get("dtype")
    return None if said is None else str(said).removeprefix("torch.")


def _method(facts: Mapping[str, Any]) -> str | None:
    found, text = (speculation(facts) or facts).get("method"), facts.get("vllm_config")
    if found is None and isinstance(text, str) and (said := re.search(r"SpeculativeConfig\(method='([^']+)'", text)):
        found = said[1]  # vLLM prints its configuration as text, and of the speculative one only a part
    return None if found is None else str(found)


def _weights(facts: Mapping[str, Any]) -> str | None:
    target = facts.get("target")
    return str(target["weights_sha256"]) if isinstance(target, Mapping) and target.get("weights_sha256") else None
