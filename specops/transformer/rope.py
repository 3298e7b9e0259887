"""Rotary positions: how fast each pair of a head turns, in the variants that Llama and Qwen checkpoints use.

Read by `checkpoint` from config.json, used by `model` once at load time. A variant that is not computed here is refused, since
ignoring it would change the law without a sign. Test: tests/transformer/test_model.py (against transformers).
Source: Su et al. 2021, arXiv 2104.09864; YaRN: Peng et al. 2023, arXiv 2309.00071, section 3; llama3: Llama 3.1's model card.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from specops.errors import InvalidWeights

NEEDED = {
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
    "yarn": ("factor", "original_max_position_embeddings"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rope:
    """A variant: `theta` is the base of the rates, `options` the numbers that the config gives for `kind`."""

    kind: str = "default"
    theta: float = 10_000.0
    options: Mapping[str, float] = field(default_factory=dict)

    def rates(self, head_dim: int) -> tuple[Tensor, float]:
        """Return radians per position, float32 [head_dim / 2], and what the rotated parts of q and k are multiplied by."""
        rates = self.theta ** (-torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
        if self.kind == "linear":
            return rates / self.options["factor"], 1.0
        if self.kind == "llama3":
            return self._llama3(rates), 1.0
        if self.kind == "yarn":
            return self._yarn(rates, head_dim), self._yarn_gain()
        return rates, 1.0

    def _llama3(self, rates: Tensor) -> Tensor:
        """Slow pairs are slowed by the factor, fast ones stay, and those between are mixed."""
        o = self.options
        low, high = o["low_freq_factor"], o["high_freq_factor"]
        turns = o["original_max_position_embeddings"] * rates / (2 * math.pi)  # of a pair over the context trained first
        kept = ((turns - low) / (high - low)).clamp(0, 1)
        return rates * (kept + (1 - kept) / o["factor"])

    def _yarn(self, rates: Tensor, head_dim: int) -> Tensor:
        o = self.options

        def pair_of(turns: float) -> float:
            whole = math.log(o["original_max_position_embeddings"] / (turns * 2 * math.pi))
            return head_dim * whole / (2 * math.log(self.theta))

        first, last = pair_of(o.get("beta_fast") or 32), pair_of(o.get("beta_slow") or 1)
        if o.get("truncate", 1):
            first, last = math.floor(first), math.ceil(last)
        first, last = max(first, 0), min(last, head_dim - 1)
        ramp = (torch.arange(head_dim // 2, dtype=torch.float32) - first) / ((last - first) or 0.001)
        slowed = ramp.clamp(0, 1)
        return rates * (1 - slowed + slowed / o["factor"])

    def _yarn_gain(self) -> float:
        o = self.options
        if "attention_factor" in o:
            return o["attention_factor"]

        def gain(scale: float) -> float:
            return 1.0 if o["factor"] <= 1 else 0.1 * scale * math.log(o["factor"]) + 1.0

        if o.get("mscale") and o.get("mscale_all_dim"):
            return gain(o["mscale"]) / gain(o["mscale_all_dim"])
        return gain(1.0)


def read_rope(raw: Mapping[str, Any], where: str) -> Rope:
    """Read the variant from config.json, in the spelling of transformers 4 or 5.

    Raises:
        InvalidWeights: a variant that is not computed here, or one that lacks a number.
    """
    given = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    if not isinstance(given, dict):
        raise InvalidWeights(f"{where} has rope parameters {given!r}, expected a JSON object; copy it again from its source")
    kind = given.get("rope_type", given.get("type", "default"))
    if kind not in NEEDED:
        raise InvalidWeights(f"{where} has rope_type {kind!r}, this engine computes {', '.join(NEEDED)}; serve it with vLLM")
    if (share := given.get("partial_rotary_factor", raw.get("partial_rotary_factor", 1.0))) not in (None, 1.0):
        raise InvalidWeights(f"{where} has partial_rotary_factor {share!r}, this engine turns whole heads; serve it with vLLM")
    theta = given.get("rope_theta") or raw.get("rope_theta") or 10_000.0
    options = {name: float(value) for name, value in given.items() if isinstance(value, (bool, int, float))}
    for name in NEEDED[kind]:
        value = options.get(name, 0.0)
        if not (math.isfinite(value) and value > 0):
            raise InvalidWeights(f"{where} has {name} {given.get(name)!r}, rope_type {kind!r} needs a number > 0; correct it")
    return Rope(kind=kind, theta=float(theta), options=options)
