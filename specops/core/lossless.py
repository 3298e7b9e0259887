"""Whether a verification of `specops verify` still speaks for a candidate: same engine, dtype, hardware, weights and sampling.

A policy asks for it under `lossless`; `control.rollouts` looks at the newest verification of the candidate and at what its
endpoint says about itself today. What an endpoint does not say cannot be compared, so one that says nothing is refused.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

SCOPE = (
    "version", "torch", "device", "dtype", "attention", "method", "num_speculative_tokens", "target", "draft", "hardware",
    "vllm_config", "speculative_config",
)  # fmt: skip
"""What an endpoint says about itself that a verification depends on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lossless:
    """What a policy asks of the newest verification: at most this tolerance (total variation per token), at this sampling."""

    tolerance: float = 0.01
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0

    @property
    def sampling(self) -> dict[str, float]:
        """The settings of sampling alone."""
        return {key: value for key, value in asdict(self).items() if key != "tolerance"}


def described(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of what a server says that a verification depends on, ready for a digest.

    Paths are dropped, which say where a thing lies and not what it is; floats become text, as digests are over whole numbers.
    """
    return {key: plain(facts[key]) for key in SCOPE if key in facts}


def objection(need: Lossless, newest: Mapping[str, Any] | None, today: Mapping[str, Any]) -> str | None:
    """Return why a verification does not speak for an endpoint, None when it does.

    Args:
        need: what the policy asks for.
        newest: the record of the candidate's newest verification; None without one.
        today: what the candidate's endpoint says about itself now.
    """
    if newest is None:
        return "it was never verified"
    if newest["verdict"] != "LOSSLESS WITHIN":
        return f"its newest verification says {newest['words']}"
    if newest["tolerance"] > need.tolerance:
        return f"it was verified within {newest['tolerance']:g}, the policy asks for {need.tolerance:g}"
    off = asdict(Lossless())
    apart = [
        f"{key} {float(newest['sampling'].get(key, off[key])):g}, not {value:g}"
        for key, value in need.sampling.items()
        if newest["sampling"].get(key, off[key]) != value
    ]
    if apart:
        return f"it was verified with {', '.join(apart)}"
    then, now = described(newest["facts"]["endpoint"]), described(today)
    if not then or not now:
        return f"its endpoint {'does' if then else 'did'} not describe itself, so nobody can see that it is the one verified"
    if then != now:
        changed = sorted(key for key in then.keys() | now.keys() if then.get(key) != now.get(key))
        return f"its endpoint changed after it was verified: {', '.join(changed)}"
    return None


def plain(value: Any) -> Any:  # noqa: ANN401  # any JSON value
    """Return a JSON value without paths and floats."""
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items() if key not in ("path", "files")}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return repr(value) if isinstance(value, float) else value
