"""A Llama for decoding: few, large operations per layer, and a cache that belongs to the request, not to the model.

Called by every stage that needs logits. At batch 1 on a CPU the dispatch of an operation costs as much as its arithmetic, so
the weights are rearranged once at load time, without changing the function:
 (1) q, k, v and gate, up are one product each; the norms' weights and the attention's scale are multiplied into them;
 (2) rows of q and k are reordered so that a rotary pair is one complex number, and the rotation one multiplication;
 (3) the rotation runs over v too, with angle 0, so that k and v enter the cache in one copy.
It decides nothing about tokens. Test: tests/decoding/test_model.py.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from specops.decoding.checkpoint import Config, read_config, read_tensors
from specops.errors import InvalidInput, InvalidWeights

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class KVCache:
    """Keys and values of one request, allocated once; rewinding is setting `length` lower, nothing is copied.

    Memory beyond `length` is uninitialised or stale and never read.
    """

    __slots__ = ("capacity", "kv", "length")

    def __init__(self, config: Config, capacity: int, *, dtype: torch.dtype, device: torch.device) -> None:
        """Allocate room for `capacity` positions; untouched pages cost no memory on a CPU."""
        shape = (config.layers, 2, 1, config.kv_heads, capacity, config.head_dim)
        self.kv = torch.empty(shape, dtype=dtype, device=device)
        self.capacity = capacity
        self.length = 0

    def rewind(self, length: int) -> None:
        """Forget all positions from `length` on; a longer length changes nothing."""
        self.length = min(self.length, length)


@dataclass(frozen=True, slots=True)
class _Layer:
    qkv: Tensor  # [hidden, (heads + 2 kv_heads) head_dim]
    out: Tensor  # [heads head_dim, hidden]
    gate_up: Tensor  # [hidden, 2 intermediate]
    down: Tensor  # [intermediate, hidden]


class Model:
    """Read-only weights; safe to share between requests because all state is in their caches."""

    def __init__(self, config: Config, tensors: dict[str, Tensor], *, dtype: torch.dtype, device: torch.device) -> None:
        """Rearrange checkpoint tensors; `load_model` is the usual way in."""
        self.config, self.dtype, self.device = config, dtype, device
        source = _Source(config, tensors)
        gain = math.sqrt(config.hidden)  # `_unit` leaves out the root of the mean, so the weights carry it
        self._embed = source.take("model.embed_tokens.weight", config.vocab_size, config.hidden).to(device, dtype)
        head = "model.embed_tokens.weight" if config.tied else "lm_head.weight"
        self._head = self._embed if config.tied else source.take(head, config.vocab_size, config.hidden).to(device, dtype)
        self._norm = (source.take("model.norm.weight", config.hidden) * gain).to(device, dtype)
        self._layers = tuple(source.layer(i, gain, dtype, device) for i in range(config.layers))
        self._floor = torch.tensor(math.sqrt(config.rms_eps * config.hidden), device=device)
        self._turns = _turns(config, device)

    def new_cache(self, capacity: int | None = None) -> KVCache:
        """Return an empty cache for `capacity` positions, by default and at most the model's context."""
        return KVCache(
            self.config, min(capacity or self.config.max_len, self.config.max_len), dtype=self.dtype, device=self.device
        )

    @torch.inference_mode()
    def forward(self, ids: Sequence[int], cache: KVCache, *, last_only: bool = False) -> Tensor:
        """Run tokens that follow the cache's positions, and add them to it.

        Args:
            ids: at least one token id in [0, vocab).
            cache: of this model; its length grows by len(ids).
            last_only: compute the last row of logits only, as a prefill needs.

        Returns:
            float32 logits [len(ids), vocab], or [1, vocab].

        Raises:
            InvalidInput: the cache has no room.
        """
        start, end = cache.length, cache.length + len(ids)
        if end > cache.capacity:
            raise InvalidInput(f"cache holds {cache.capacity} positions, {end} are needed; shorten the prompt or max_tokens")
        x = self._embed.narrow(0, ids[0], 1) if len(ids) == 1 else self._embed[torch.tensor(ids, device=self.device)]
        x = self._through_layers(x, cache, start, end)
        cache.length = end
        return F.linear(self._unit(x[-1:] if last_only else x) * self._norm, self._head).float()

    def _through_layers(self, x: Tensor, cache: KVCache, start: int, end: int) -> Tensor:
        c, n = self.config, end - start
        groups = c.heads // c.kv_heads
        turns = self._turns[start:end]
        still = torch.ones_like(turns).expand(-1, c.kv_heads, -1)
        turns = torch.cat((turns.expand(-1, c.heads + c.kv_heads, -1), still), dim=1)
        mask = _causal(start, end, groups, x) if n > 1 else None
        new = cache.kv[..., start:end, :].view(c.layers, 2 * c.kv_heads, n, c.head_dim).transpose(1, 2).unbind(0)
        seen = cache.kv[..., :end, :]
        for layer, slot, keys, values in zip(self._layers, new, seen[:, 0].unbind(0), seen[:, 1].unbind(0), strict=True):
            qkv = torch.mm(self._unit(x), layer.qkv).view(n, -1, c.head_dim // 2, 2)
            turned = torch.view_as_real(torch.view_as_complex(qkv.float()) * turns).view(n, -1, c.head_dim)
            slot.copy_(turned[:, c.heads :])
            q = (
                turned[:, : c.heads]
                .view(n, c.kv_heads, groups, c.head_dim)
                .permute(1, 2, 0, 3)
                .reshape(1, c.kv_heads, groups * n, -1)
            )
            mixed = F.scaled_dot_product_attention(q.to(self.dtype), keys, values, attn_mask=mask, scale=1.0)
            mixed = mixed.view(c.kv_heads, groups, n, c.head_dim).permute(2, 0, 1, 3).reshape(n, -1)
            x = torch.addmm(x, mixed, layer.out)
            gate, up = torch.mm(self._unit(x), layer.gate_up).chunk(2, -1)
            x = torch.addmm(x, F.silu(gate) * up, layer.down)
        return x

    def _unit(self, x: Tensor) -> Tensor:
        """Return x / sqrt(sum x^2 + hidden eps): the RMS norm but for a factor sqrt(hidden), which the weights carry."""
        norm: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32)
        return (x / norm.hypot_(self._floor)).to(self.dtype)


def load_model(folder: Path, *, dtype: str = "float32", device: str = "cpu", threads: int | None = None) -> Model:
    """Load a Llama checkpoint.

    Args:
        folder: config.json and model.safetensors, or shards with their index; float16, bfloat16 or float32 weights.
        dtype: what to compute in: float32, bfloat16 or float16.
        device: a torch device, such as cpu or cuda.
        threads: torch's threads for the whole process; None leaves them.

    Raises:
        InvalidWeights: the checkpoint is missing, corrupt, pickled, or not a Llama this engine computes.
        InvalidInput: an unknown dtype.
    """
    if dtype not in DTYPES:
        raise InvalidInput(f"dtype is {dtype!r}, expected one of {', '.join(DTYPES)}")
    if threads is not None:
        torch.set_num_threads(threads)
    return Model(read_config(folder), read_tensors(folder), dtype=DTYPES[dtype], device=torch.device(device))


class _Source:
    """Checkpoint tensors by name, checked against the config's shapes."""

    def __init__(self, config: Config, tensors: dict[str, Tensor]) -> None:
        self.config, self.tensors = config, tensors

    def take(self, name: str, *shape: int) -> Tensor:
        """Return a tensor in float32."""
        tensor = self.tensors.get(name)
        if tensor is None:
            raise InvalidWeights(f"checkpoint has no tensor {name}; expected shape {list(shape)}; copy all its files")
        if tensor.shape != shape or not tensor.is_floating_point():
            raise InvalidWeights(
                f"{name} is {tensor.dtype} {list(tensor.shape)}, config says float {list(shape)}; "
                "weights and config belong to different models",
            )
        return tensor.float()

    def layer(self, index: int, gain: float, dtype: torch.dtype, device: torch.device) -> _Layer:
        """Fuse and reorder one layer."""
        c, prefix = self.config, f"model.layers.{index}."
        wide, narrow = c.heads * c.head_dim, c.kv_heads * c.head_dim
        q = self.take(prefix + "self_attn.q_proj.weight", wide, c.hidden) / math.sqrt(c.head_dim)
        k = self.take(prefix + "self_attn.k_proj.weight", narrow, c.hidden)
        v = self.take(prefix + "self_attn.v_proj.weight", narrow, c.hidden)
        gate, up = (self.take(f"{prefix}mlp.{name}_proj.weight", c.intermediate, c.hidden) for name in ("gate", "up"))
        before = self.take(prefix + "input_layernorm.weight", c.hidden) * gain
        between = self.take(prefix + "post_attention_layernorm.weight", c.hidden) * gain
        parts = (
            torch.cat((self._paired(q), self._paired(k), v)) * before,
            self.take(prefix + "self_attn.o_proj.weight", c.hidden, wide),
            torch.cat((gate, up)) * between,
            self.take(prefix + "mlp.down_proj.weight", c.hidden, c.intermediate),
        )
        return _Layer(*(part.t().to(device, dtype).contiguous() for part in parts))

    def _paired(self, weight: Tensor) -> Tensor:
        """Move row i + head_dim / 2 of each head beside row i: the two parts of one complex number."""
        return weight.view(-1, 2, self.config.head_dim // 2, self.config.hidden).transpose(1, 2).reshape(weight.shape)


def _turns(config: Config, device: torch.device) -> Tensor:
    """Return e^(i position theta^(-2j / head_dim)), complex64 [max_len, 1, head_dim / 2]."""
    rates = config.rope_theta ** (-torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim)
    angles = torch.outer(torch.arange(config.max_len, dtype=torch.float32), rates)
    return torch.polar(torch.ones_like(angles), angles).unsqueeze(1).to(device)


def _causal(start: int, end: int, groups: int, like: Tensor) -> Tensor:
    """Return an additive mask [groups * (end - start), end]: 0 where a position may look, -inf ahead of it."""
    mask = torch.full((end - start, end), -torch.inf, dtype=like.dtype, device=like.device).triu_(start + 1)
    return mask if groups == 1 else mask.repeat(groups, 1)
