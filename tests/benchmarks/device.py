"""Decoding on a CUDA device: a round as one graph against its bare forwards, and against transformers' assisted generation.

Two pairs. The demo pair is trained, its acceptance is real. The 1B-shaped pair has random weights and is for speed only: the
draft is the target's first layers and the layers behind them are damped until it agrees most of the time, so its acceptance is
synthetic by construction, for both sides alike. Without a CUDA device no row is measured and every row says so.
"""

import importlib.util
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from specops.decoding.draft import ModelDraft
from specops.decoding.request import Request
from specops.demo.pair import load_pair
from specops.device.batch import DeviceBatch
from specops.device.round import MIN_REACH, DeviceRound, spare
from specops.transformer.model import KVCache, Model, load_model
from tests.benchmarks.row import Row

K, TOKENS, RUNS, ROUNDS, PROMPT = 4, 128, 7, 20, tuple(range(5, 37))
MAX_ROUND, MIN_ASSISTED = 1.25, 4.0
DAMPED = 0.02  # weight of what the layers behind the draft's add, in the synthetic pair


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """A Llama's shape; `shared` of its layers are the draft's."""

    hidden: int
    layers: int
    shared: int
    heads: int
    kv_heads: int
    intermediate: int
    vocab: int
    context: int = 2048


BILLION = Sizes(hidden=2048, layers=16, shared=2, heads=32, kv_heads=8, intermediate=8192, vocab=128_256)  # Llama 3.2 1B's


def measure(device: str = "cuda", sizes: Sizes = BILLION, dtype: str = "bfloat16") -> Iterator[Row]:
    """Yield every row, of both pairs."""
    if device == "cuda" and not torch.cuda.is_available():
        for name in ("demo pair", "1B-shaped pair, synthetic acceptance"):
            for rule in ("greedy", "sampled"):
                yield _row(f"{name}: a round vs bare forwards, {rule}", None, f"<= {MAX_ROUND}", "its forwards in one graph")
                yield _row(f"{name}: vs assisted generation, {rule}", None, f">= {MIN_ASSISTED}", "transformers, same pair")
        return
    demo = load_pair()
    yield from _pair("demo pair", demo.target, demo.draft, device, "float32")
    with tempfile.TemporaryDirectory() as folder:
        target, draft = write_pair(Path(folder), sizes)
        yield from _pair("1B-shaped pair, synthetic acceptance", target, draft, device, dtype)


def _row(check: str, figure: float | None, goal: str, against: str, runs: int = 0) -> Row:
    limit, is_floor = float(goal.split()[1]), goal.startswith(">=")
    holds = None if figure is None else figure >= limit if is_floor else figure <= limit
    why = "" if figure is not None else "no CUDA device here: not run"
    return Row(check=check, figure=figure, unit="x", goal=goal, holds=holds, against=against, runs=runs, why=why)


def write_pair(folder: Path, sizes: Sizes) -> tuple[Path, Path]:
    """Write a random target and the draft that shares its first layers, in bfloat16."""
    rng, head_dim = torch.Generator().manual_seed(0), sizes.hidden // sizes.heads

    def weight(*shape: int, gain: float = 1.0) -> torch.Tensor:
        drawn: torch.Tensor = torch.randn(*shape, generator=rng) * gain / shape[-1] ** 0.5
        return drawn.bfloat16()

    one = torch.ones(sizes.hidden, dtype=torch.bfloat16)
    tensors = {"model.embed_tokens.weight": weight(sizes.vocab, sizes.hidden), "model.norm.weight": one}
    for i in range(sizes.layers):
        at, gain = f"model.layers.{i}.", 1.0 if i < sizes.shared else DAMPED
        wide, narrow = sizes.heads * head_dim, sizes.kv_heads * head_dim
        tensors |= {
            f"{at}input_layernorm.weight": one.clone(), f"{at}post_attention_layernorm.weight": one.clone(),
            f"{at}self_attn.q_proj.weight": weight(wide, sizes.hidden),
            f"{at}self_attn.k_proj.weight": weight(narrow, sizes.hidden),
            f"{at}self_attn.v_proj.weight": weight(narrow, sizes.hidden),
            f"{at}self_attn.o_proj.weight": weight(sizes.hidden, wide, gain=gain),
            f"{at}mlp.gate_proj.weight": weight(sizes.intermediate, sizes.hidden),
            f"{at}mlp.up_proj.weight": weight(sizes.intermediate, sizes.hidden),
            f"{at}mlp.down_proj.weight": weight(sizes.hidden, sizes.intermediate, gain=gain),
        }  # fmt: skip
    return _write(folder / "target", sizes, sizes.layers, tensors), _write(folder / "draft", sizes, sizes.shared, tensors)


def _write(folder: Path, sizes: Sizes, layers: int, tensors: dict[str, torch.Tensor]) -> Path:
    folder.mkdir()
    config = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_act": "silu", "vocab_size": sizes.vocab,
        "hidden_size": sizes.hidden, "num_hidden_layers": layers, "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.kv_heads, "head_dim": sizes.hidden // sizes.heads, "intermediate_size": sizes.intermediate,
        "max_position_embeddings": sizes.context, "rms_norm_eps": 1e-5, "rope_theta": 500_000.0, "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    own = {n: t for n, t in tensors.items() if not n.startswith("model.layers.") or int(n.split(".")[2]) < layers}
    save_file(own, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def _pair(name: str, target: Path, draft: Path, device: str, dtype: str) -> Iterator[Row]:
    models = load_model(target, dtype=dtype, device=device), load_model(draft, dtype=dtype, device=device)
    for rule, temperature in (("greedy", 0.0), ("sampled", 1.0)):
        figure, note = _round(*models, temperature, device)
        yield _row(f"{name}: a round vs bare forwards, {rule}", figure, f"<= {MAX_ROUND}", f"one graph: {note}", RUNS)
    if importlib.util.find_spec("transformers") is None:
        return
    peers = _peers(target, draft, device, dtype)
    for rule, temperature in (("greedy", 0.0), ("sampled", 1.0)):
        figure, note = _assisted(*models, peers, temperature, device)
        yield _row(f"{name}: vs assisted generation, {rule}", figure, f">= {MIN_ASSISTED}", note, RUNS)


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def _seconds(run: Callable[[], object], device: str, times: int) -> float:
    _wait(device)
    began_s = time.perf_counter()
    for _ in range(times):
        run()
    _wait(device)
    return (time.perf_counter() - began_s) / times


def _round(target: Model, draft: Model, temperature: float, device: str) -> tuple[float, str]:
    """One round with its host side, against its k draft forwards and one target forward of the same shapes, captured alone."""
    pool = target.new_pool(1, target.config.max_len + spare(K))
    rounds = DeviceRound(target, draft, K, pool)
    request = Request(prompt_ids=PROMPT, max_tokens=TOKENS, temperature=temperature)
    target.forward(PROMPT, KVCache(pool, 0, target.config.max_len), last_only=True)
    draft.forward(PROMPT, KVCache(rounds.draft_pool, 0, target.config.max_len), last_only=True)
    coins = {0: tuple(torch.rand(2 * K + 1, dtype=torch.float64).tolist())}
    reach = min(MIN_REACH, pool.shape[-2])
    two, one, block = (torch.full((1, n), 7, dtype=torch.long, device=device) for n in (2, 1, K + 1))
    start = torch.full((1,), len(PROMPT), dtype=torch.long, device=device)

    def forwards() -> None:
        draft.forward_fixed(two, start, rounds.draft_pool, reach)
        for _ in range(K - 1):
            draft.forward_fixed(one, start, rounds.draft_pool, reach)
        target.forward_fixed(block, start, pool, reach)

    bare = _captured(forwards) if device == "cuda" else forwards
    ratios, ours_s = [], []
    for _ in range(RUNS):
        rounds.put(0, (*PROMPT, 1), request)
        rounds.run(coins)  # the capture is not timed
        full_s, bare_s = _seconds(lambda: rounds.run(coins), device, ROUNDS), _seconds(bare, device, ROUNDS)
        ratios.append(full_s / bare_s)
        ours_s.append(full_s)
    return statistics.median(ratios), f"a round takes {statistics.median(ours_s) * 1e3:.2f} ms"


def _captured(run: Callable[[], None]) -> Callable[[], object]:
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(side):
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def _peers(target: Path, draft: Path, device: str, dtype: str) -> tuple[Any, Any]:
    import transformers  # noqa: PLC0415  # a peer that may be absent

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    peer, assistant = (
        transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).to(device).eval()
        for folder in (target, draft)
    )
    assistant.generation_config.update(
        num_assistant_tokens=K, num_assistant_tokens_schedule="constant", assistant_confidence_threshold=0.0
    )
    return peer, assistant


def _assisted(target: Model, draft: Model, peers: tuple[Any, Any], temperature: float, device: str) -> tuple[float, str]:
    batch = DeviceBatch(target, ModelDraft(draft, K), 1)
    rounds: list[int] = []

    def ours(seed: int) -> int:
        batch.join(Request(prompt_ids=PROMPT, max_tokens=TOKENS, temperature=temperature, seed=seed, ignore_eos=True))
        steps = []
        while batch.rows:
            for _, step in batch.round():
                if isinstance(step, Exception):
                    raise step
                steps.append(step)
        rounds.append(len(steps) - 1)
        return sum(len(step.tokens) for step in steps)

    def theirs() -> int:
        settings = {"do_sample": True, "temperature": temperature, "top_k": 0} if temperature else {"do_sample": False}
        prompt = torch.tensor([PROMPT], device=device)
        with torch.no_grad():
            ids = peers[0].generate(
                prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=TOKENS, assistant_model=peers[1],
                eos_token_id=-1, pad_token_id=0, **settings,
            )  # fmt: skip
        return int(ids.shape[1]) - len(PROMPT)

    ours(0), theirs()
    rounds.clear()
    pairs = []
    for i in range(RUNS):
        tokens: list[int] = []
        ours_s = _seconds(lambda i=i, into=tokens: into.append(ours(i)), device, 1) / tokens[0]
        pairs.append((ours_s, _seconds(lambda into=tokens: into.append(theirs()), device, 1) / tokens[1]))
    rates = [1 / statistics.median(side) for side in zip(*pairs, strict=True)]
    note = f"transformers: {rates[1]:.0f} tokens/s, ours {rates[0]:.0f}, {TOKENS / statistics.mean(rounds):.2f} tokens a round"
    return statistics.median(b / a for a, b in pairs), note
