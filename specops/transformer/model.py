"""A Llama or Qwen for decoding: few, large operations per layer, and a cache that belongs to the request, not to the model.

Called by every stage that needs logits. At batch 1 on a CPU the dispatch of an operation costs as much as its arithmetic, so
the weights are rearranged once at load time, without changing the function:
 (1) q, k, v and gate, up are one product each; the norms' weights and the attention's scale are multiplied into them;
 (2) rows of q and k are reordered so that a rotary pair is one complex number, and the rotation one multiplication;
 (3) the rotation runs over v too, with angle 0, so that k and v enter the cache in one copy.
It decides nothing about tokens. Test: tests/transformer/test_model.py.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.nn.attention import SDPBackend

from specops.errors import InvalidInput, InvalidWeights
from specops.transformer.checkpoint import Config, read_config, read_tensors

_View = tuple[Tensor, Tensor, Tensor]  # of one layer: where k and v are stored, keys, values

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class KVCache:
    """Keys and values of one request, allocated once; rewinding is setting `length` lower, nothing is copied.

    It is one slot of `pool` [layers, slots, 2, kv_heads, capacity, head_dim], which requests that run together share. What lies
    beyond `length` is stale and never weighs.
    """

    __slots__ = ("capacity", "kv", "length", "pool", "slot")

    def __init__(self, pool: Tensor, slot: int, capacity: int) -> None:
        """Take a slot of the pool for at most `capacity` positions."""
        self.pool, self.slot, self.capacity = pool, slot, capacity
        self.kv = pool[:, slot, :, :, :capacity]
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
    qkv_bias: Tensor | None  # [(heads + 2 kv_heads) head_dim]
    out_bias: Tensor | None  # [hidden]
    qk_norm: Tensor | None  # [heads + kv_heads, head_dim]


class Model:
    """Read-only weights; safe to share between requests because all state is in their caches."""

    def __init__(self, config: Config, tensors: dict[str, Tensor], *, dtype: torch.dtype, device: torch.device) -> None:
        """Rearrange checkpoint tensors; `load_model` is the usual way in."""
        self.config, self.dtype, self.device = config, dtype, device
        self._is_exact = dtype == torch.float32
        source = _Source(config, tensors)
        gain = math.sqrt(config.hidden)  # `_unit` leaves out the root of the mean, so the weights carry it
        self._embed = source.take("model.embed_tokens.weight", config.vocab_size, config.hidden).to(device, dtype)
        head = "model.embed_tokens.weight" if config.tied else "lm_head.weight"
        self._head = self._embed if config.tied else source.take(head, config.vocab_size, config.hidden).to(device, dtype)
        self._norm = (source.take("model.norm.weight", config.hidden) * gain).to(device, dtype)
        self._layers = tuple(source.layer(i, gain, dtype, device) for i in range(config.layers))
        self._floor = torch.tensor(math.sqrt(config.rms_eps * config.hidden), device=device)
        self._turns = _turns(config, device)
        self.attention_kernel = _kernel(config, dtype, device)

    def new_pool(self, slots: int, capacity: int) -> Tensor:
        """Return room for the caches of `slots` requests; untouched pages cost no memory on a CPU."""
        c = self.config
        return torch.zeros((c.layers, slots, 2, c.kv_heads, capacity, c.head_dim), dtype=self.dtype, device=self.device)

    def new_cache(self, capacity: int | None = None) -> KVCache:
        """Return an empty cache for `capacity` positions, by default and at most the model's context."""
        capacity = min(capacity or self.config.max_len, self.config.max_len)
        return KVCache(self.new_pool(1, capacity), 0, capacity)

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
        start, end = cache.length, _end(cache, ids)
        x = self._embed.narrow(0, ids[0], 1) if len(ids) == 1 else self._embed[torch.tensor(ids, device=self.device)]
        c, n, groups = self.config, end - start, self.config.heads // self.config.kv_heads
        mask = _causal(start, end, groups, x) if n > 1 else None
        kv = cache.kv.flatten(1, 2)  # [layers, 2 kv_heads, capacity, head_dim], a view
        new, seen = kv[:, :, start:end].transpose(1, 2), kv[:, None, :, :end]
        views = zip(new.unbind(0), seen[:, :, : c.kv_heads].unbind(0), seen[:, :, c.kv_heads :].unbind(0), strict=True)

        def attend(turned: Tensor, view: _View) -> Tensor:
            slot, keys, values = view
            slot.copy_(turned[:, c.heads :])
            q = turned[:, : c.heads]
            if groups == 1:  # nothing to regroup: views do, and at batch 1 each operation less is time
                q = q.transpose(0, 1).unsqueeze(0)
            else:
                q = q.view(n, c.kv_heads, groups, c.head_dim).permute(1, 2, 0, 3).reshape(1, c.kv_heads, groups * n, -1)
            q = q if self._is_exact else q.to(self.dtype)
            mixed = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask, scale=1.0)
            if groups == 1:
                return mixed.transpose(1, 2).reshape(n, -1)
            return mixed.view(c.kv_heads, groups, n, c.head_dim).permute(2, 0, 1, 3).reshape(n, -1)

        x = self._through_layers(x, self._turns[start:end], views, attend)
        cache.length = end
        return self._logits(x[-1:] if last_only else x)

    @torch.inference_mode()
    def forward_rows(self, rows: Sequence[tuple[Sequence[int], KVCache]]) -> tuple[Tensor, ...]:
        """Run the tokens of several requests in one forward: every product sees all of them at once.

        Args:
            rows: for each request its ids, at least one, and its cache; all caches are different slots of one pool.

        Returns:
            For each row what `forward` returns for it, up to the order of float additions.

        Raises:
            InvalidInput: a cache has no room; then no cache has changed.
        """
        if len(rows) == 1:
            return (self.forward(*rows[0]),)
        ends = [_end(cache, ids) for ids, cache in rows]
        counts = [len(ids) for ids, _ in rows]
        width, slots, longest = max(counts), 1 + max(cache.slot for _, cache in rows), max(ends)
        table = torch.tensor(
            [(t, cache.slot, i, cache.length + i) for ids, cache in rows for i, t in enumerate(ids)], device=self.device
        )
        flat, slot, column, position = table.unbind(1)
        c, groups, total = self.config, self.config.heads // self.config.kv_heads, len(table)
        x = self._embed[flat]
        # Rows are aligned to slots, so idle slots are computed along; they, and padding, look at position 0 and go nowhere.
        reach = torch.zeros((slots, width), dtype=torch.long, device=self.device).index_put_((slot, column), position)
        hidden = torch.arange(longest, device=self.device) > reach.unsqueeze(-1)
        mask = torch.zeros_like(hidden, dtype=self.dtype).masked_fill_(hidden, -torch.inf).repeat(1, groups, 1).unsqueeze(1)
        pool = rows[0][1].pool
        views = zip(pool.flatten(2, 3).unbind(0), *pool[:, :slots, :, :, :longest].unbind(2), strict=True)
        padded = torch.zeros((slots, width, c.heads, c.head_dim), dtype=self.dtype, device=self.device)

        def attend(turned: Tensor, view: _View) -> Tensor:
            store, keys, values = view
            store[slot, :, position] = turned[:, c.heads :].to(self.dtype)
            padded[slot, column] = turned[:, : c.heads].to(self.dtype)
            q = padded.view(slots, width, c.kv_heads, groups, -1).permute(0, 2, 3, 1, 4)
            q = q.reshape(slots, c.kv_heads, groups * width, -1)
            mixed = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask, scale=1.0)
            mixed = mixed.view(slots, c.kv_heads, groups, width, -1).permute(0, 3, 1, 2, 4)
            return mixed[slot, column].reshape(total, -1)

        x = self._through_layers(x, self._turns[position], views, attend)
        for (_, cache), end in zip(rows, ends, strict=True):
            cache.length = end
        parts: tuple[Tensor, ...] = torch.split(self._logits(x), counts)
        return parts

    @torch.inference_mode()
    def forward_fixed(self, ids: Tensor, start: Tensor, pool: Tensor, reach: int) -> Tensor:
        """Run as many tokens for every row of a pool, with no shape and no branch that depends on a value.

        That is what a CUDA graph can capture: lengths are numbers on the device, so each row attends over `reach` positions
        and masks those ahead of it. Nothing is read back to the host, and nothing is checked.

        Args:
            ids: int64 [rows, n], token ids.
            start: int64 [rows], position of each row's first token. What would lie beyond the pool lands on its last position,
                which the caller keeps free for rows that are to leave no trace.
            pool: of `new_pool`, with at least `rows` slots; row i writes to slot i.
            reach: positions that are looked at, more than any row has that counts.

        Returns:
            float32 logits [rows, n, vocab].
        """
        c, (rows, n), groups = self.config, ids.shape, self.config.heads // self.config.kv_heads
        last = pool.shape[-2] - 1
        position = (start[:, None] + torch.arange(n, device=self.device)).clamp_(max=last)
        flat, slot = position.flatten(), torch.arange(rows, device=self.device).repeat_interleave(n)
        hidden = torch.arange(reach, device=self.device) > position[..., None]
        mask = torch.zeros(hidden.shape, dtype=self.dtype, device=self.device).masked_fill_(hidden, -torch.inf)
        mask = mask.repeat(1, groups, 1).unsqueeze(1)  # [rows, 1, groups n, reach]
        views = zip(pool.flatten(2, 3).unbind(0), *pool[:, :rows, :, :, :reach].unbind(2), strict=True)

        def attend(turned: Tensor, view: _View) -> Tensor:
            store, keys, values = view
            store[slot, :, flat] = turned[:, c.heads :].to(self.dtype)
            q = turned[:, : c.heads].to(self.dtype).view(rows, n, c.kv_heads, groups, -1).permute(0, 2, 3, 1, 4)
            q = q.reshape(rows, c.kv_heads, groups * n, -1)
            mixed = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask, scale=1.0)
            return mixed.view(rows, c.kv_heads, groups, n, -1).permute(0, 3, 1, 2, 4).reshape(rows * n, -1)

        x = self._through_layers(self._embed[ids.flatten()], self._turns[flat.clamp(max=len(self._turns) - 1)], views, attend)
        return self._logits(x).view(rows, n, -1)

    def _through_layers(
        self, x: Tensor, turns: Tensor, views: Iterable[_View], attend: Callable[[Tensor, _View], Tensor]
    ) -> Tensor:
        """Run all layers over x [n, hidden]; `attend` stores k and v of a layer and mixes what each position sees."""
        c, n, exact = self.config, len(x), self._is_exact
        turned_heads = c.heads + c.kv_heads
        still = torch.ones_like(turns).expand(-1, c.kv_heads, -1)
        turns = torch.cat((turns.expand(-1, turned_heads, -1), still), dim=1)
        unit = self._unit
        for layer, view in zip(self._layers, views, strict=True):
            qkv = torch.mm(unit(x), layer.qkv) if layer.qkv_bias is None else torch.addmm(layer.qkv_bias, unit(x), layer.qkv)
            qkv = qkv if exact else qkv.float()
            if layer.qk_norm is not None:
                qkv = qkv.view(n, -1, c.head_dim)
                heads = F.rms_norm(qkv[:, :turned_heads], (c.head_dim,), eps=c.rms_eps)
                qkv = torch.cat((heads * layer.qk_norm, qkv[:, turned_heads:]), dim=1)
            pairs = torch.view_as_complex(qkv.view(n, -1, c.head_dim // 2, 2))
            mixed = attend(torch.view_as_real(pairs * turns).view(n, -1, c.head_dim), view)
            x = torch.addmm(x, mixed, layer.out) if layer.out_bias is None else x + _product(mixed, layer.out, layer.out_bias)
            gate, up = torch.mm(unit(x), layer.gate_up).chunk(2, -1)
            x = torch.addmm(x, F.silu(gate) * up, layer.down)
        return x

    def _logits(self, x: Tensor) -> Tensor:
        return F.linear(self._unit(x) * self._norm, self._head).float()

    def _unit(self, x: Tensor) -> Tensor:
        """Return x / sqrt(sum x^2 + hidden eps): the RMS norm but for a factor sqrt(hidden), which the weights carry."""
        if self._is_exact:  # no casts: even those that do nothing cost time at batch 1
            unit: Tensor = x / torch.linalg.vector_norm(x, dim=-1, keepdim=True).hypot_(self._floor)
            return unit
        norm: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32)
        return (x / norm.hypot_(self._floor)).to(self.dtype)


def load_model(folder: Path, *, dtype: str = "float32", device: str = "cpu", threads: int | None = None) -> Model:
    """Load a Llama, Qwen 2 or Qwen 3 checkpoint.

    Args:
        folder: config.json and model.safetensors, or shards with their index; float16, bfloat16 or float32 weights.
        dtype: what to compute in: float32, bfloat16 or float16.
        device: a torch device, such as cpu or cuda.
        threads: torch's threads for the whole process; None leaves them.

    Raises:
        InvalidWeights: the checkpoint is missing, corrupt, pickled, or of a kind this engine does not compute.
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
        wide, narrow, scale = c.heads * c.head_dim, c.kv_heads * c.head_dim, 1 / math.sqrt(c.head_dim)
        at = prefix + "self_attn."
        q_scale = 1.0 if c.qk_norm else scale  # a norm would undo it, so there the norm's weight carries it
        q = self.take(at + "q_proj.weight", wide, c.hidden) * q_scale
        k = self.take(at + "k_proj.weight", narrow, c.hidden)
        v = self.take(at + "v_proj.weight", narrow, c.hidden)
        gate, up = (self.take(f"{prefix}mlp.{name}_proj.weight", c.intermediate, c.hidden) for name in ("gate", "up"))
        before = self.take(prefix + "input_layernorm.weight", c.hidden) * gain
        between = self.take(prefix + "post_attention_layernorm.weight", c.hidden) * gain
        parts = (
            torch.cat((self._paired(q), self._paired(k), v)) * before,
            self.take(at + "o_proj.weight", c.hidden, wide),
            torch.cat((gate, up)) * between,
            self.take(prefix + "mlp.down_proj.weight", c.hidden, c.intermediate),
        )
        qkv_bias = out_bias = qk_norm = None
        if c.qkv_bias:
            bias_q, bias_k = self.take(at + "q_proj.bias", wide) * q_scale, self.take(at + "k_proj.bias", narrow)
            qkv_bias = torch.cat((self._paired(bias_q), self._paired(bias_k), self.take(at + "v_proj.bias", narrow)))
            qkv_bias = qkv_bias.to(device, dtype)
        if c.out_bias:
            out_bias = self.take(at + "o_proj.bias", c.hidden).to(device, dtype)
        if c.qk_norm:
            norm_q = self._paired(self.take(at + "q_norm.weight", c.head_dim) * scale).expand(c.heads, -1)
            qk_norm = torch.cat((norm_q, self._paired(self.take(at + "k_norm.weight", c.head_dim)).expand(c.kv_heads, -1)))
            qk_norm = qk_norm.to(device)
        qkv, out, gate_up, down = (part.t().to(device, dtype).contiguous() for part in parts)
        return _Layer(
            qkv=qkv, out=out, gate_up=gate_up, down=down, qkv_bias=qkv_bias, out_bias=out_bias, qk_norm=qk_norm
        )  # fmt: skip

    def _paired(self, weight: Tensor) -> Tensor:
        """Move row i + head_dim / 2 of each head beside row i: the two parts of one complex number."""
        halves = weight.reshape(-1, 2, self.config.head_dim // 2, weight.shape[1] if weight.dim() > 1 else 1)
        return halves.transpose(1, 2).reshape(weight.shape)


def _turns(config: Config, device: torch.device) -> Tensor:
    """Return gain e^(i position rate), complex64 [max_len, 1, head_dim / 2]."""
    rates, gain = config.rope.rates(config.head_dim)
    angles = torch.outer(torch.arange(config.max_len, dtype=torch.float32), rates)
    return torch.polar(torch.full_like(angles, gain), angles).unsqueeze(1).to(device)


def _kernel(config: Config, dtype: torch.dtype, device: torch.device) -> str:
    """Return which of torch's attention kernels runs for this model here: flash, efficient, math or cudnn."""
    q = torch.zeros((1, config.kv_heads, 1, config.head_dim), dtype=dtype, device=device)
    chosen = SDPBackend(torch._fused_sdp_choice(q, q, q, torch.zeros((1, 1), dtype=dtype, device=device), scale=1.0))  # noqa: SLF001  # torch has no public question
    return chosen.name.removesuffix("_ATTENTION").lower()


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return torch.mm(x, weight) if bias is None else torch.addmm(bias, x, weight)


def _end(cache: KVCache, ids: Sequence[int]) -> int:
    """Return the cache's length after these ids, if they fit."""
    end = cache.length + len(ids)
    if end > cache.capacity:
        raise InvalidInput(f"cache holds {cache.capacity} positions, {end} are needed; shorten the prompt or max_tokens")
    return end


def _causal(start: int, end: int, groups: int, like: Tensor) -> Tensor:
    """Return an additive mask [groups * (end - start), end]: 0 where a position may look, -inf ahead of it."""
    mask = torch.full((end - start, end), -torch.inf, dtype=like.dtype, device=like.device).triu_(start + 1)
    return mask if groups == 1 else mask.repeat(groups, 1)
