"""The recipe of the demo pair: a target that knows code and prose, and drafts distilled from it.

`specops demo train` runs it; whoever doubts the shipped weights can rerun it. The target is grown: half its layers are trained
first, then each is doubled and training goes on (progressive stacking, Gong et al. 2019, ICML), which reaches a given loss in
about two thirds of the time. A draft is distilled on the target's own law over code, on corpus text and on text that the target
wrote greedily, because greedy text is what the draft must foresee at temperature 0. The `stale` draft learns from prose
only and stands for a draft whose traffic has moved on.
"""

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor, nn

from specops.demo.corpus import Corpus

EOS = "<|endoftext|>"
Report = Callable[[str, int, int, float], None]  # stage, step, steps, loss


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Size of a Llama: layers, widths, heads; head size is hidden / heads."""

    layers: int
    hidden: int
    heads: int
    intermediate: int
    vocab: int = 1024
    context: int = 1024
    rope_theta: float = 10000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Everything that decides the weights, apart from the corpus and the machine's arithmetic."""

    seed: int = 20261129
    target: Shape = Shape(layers=12, hidden=192, heads=3, intermediate=512)
    draft: Shape = Shape(layers=1, hidden=128, heads=2, intermediate=384)
    code_share: float = 0.6
    sequence: int = 256
    batch: int = 6
    grow_steps: int = 2200
    target_steps: int = 800
    draft_steps: int = 2400
    stale_steps: int = 500
    learning_rate: float = 2.5e-3
    greedy_prompt: int = 64
    greedy_prompts: int = 3072
    greedy_tokens: int = 96

    def as_record(self) -> dict[str, object]:
        """Return the recipe as JSON-ready values for the lineage."""
        return asdict(self)


def train_tokenizer(corpus: Corpus, vocab: int) -> Tokenizer:
    """Train a byte-level BPE with `vocab` entries on the training documents of both domains."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=[EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    code = corpus.code[::3]  # prose is a third of the size: both domains get an equal say in the merges
    tokenizer.train_from_iterator([*code, *corpus.prose], trainer)
    return tokenizer


class Block(nn.Module):
    """One Llama layer, with parameter names as in Hugging Face checkpoints."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        d, f = shape.hidden, shape.intermediate
        self.input_layernorm = nn.RMSNorm(d, eps=1e-5)
        self.self_attn = nn.ModuleDict({f"{n}_proj": nn.Linear(d, d, bias=False) for n in "qkvo"})
        self.post_attention_layernorm = nn.RMSNorm(d, eps=1e-5)
        self.mlp = nn.ModuleDict(
            {
                "gate_proj": nn.Linear(d, f, bias=False),
                "up_proj": nn.Linear(d, f, bias=False),
                "down_proj": nn.Linear(f, d, bias=False),
            },
        )

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, past: list[Tensor] | None = None) -> Tensor:
        """Map [batch, length, hidden] to the same shape, causally; `past` holds earlier keys and values and is extended."""
        b, t, d = x.shape
        y = self.input_layernorm(x)
        q, k, v = (self.self_attn[f"{n}_proj"](y).view(b, t, self.heads, -1).transpose(1, 2) for n in "qkv")
        q, k = _rotate(q, cos, sin), _rotate(k, cos, sin)
        causal = True
        if past is not None:
            causal = not past  # one new token sees everything before it
            k, v = (torch.cat((old, new), dim=2) for old, new in zip(past, (k, v), strict=True)) if past else (k, v)
            past[:] = k, v
        a = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        x = x + self.self_attn["o_proj"](a.transpose(1, 2).reshape(b, t, d))
        y = self.post_attention_layernorm(x)
        grown: Tensor = x + self.mlp["down_proj"](F.silu(self.mlp["gate_proj"](y)) * self.mlp["up_proj"](y))
        return grown


class Llama(nn.Module):
    """A Llama for training; tied embeddings, no cache."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embed_tokens = nn.Embedding(shape.vocab, shape.hidden)
        self.layers = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.hidden, eps=1e-5)
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                scale = 0.02 / math.sqrt(2 * shape.layers) if name.endswith(("o_proj.weight", "down_proj.weight")) else 0.02
                nn.init.normal_(parameter, std=scale)

    def forward(self, ids: Tensor, past: list[list[Tensor]] | None = None, start: int = 0) -> Tensor:
        """Return logits float32 [batch, length, vocab] for ids int64 [batch, length] at positions from `start`."""
        head = self.shape.hidden // self.shape.heads
        inverse = self.shape.rope_theta ** (-torch.arange(0, head, 2, dtype=torch.float32) / head)
        angles = torch.outer(torch.arange(start, start + ids.shape[1], dtype=torch.float32), inverse).repeat(1, 2)
        x = self.embed_tokens(ids)
        for i, block in enumerate(self.layers):
            x = block(x, angles.cos(), angles.sin(), past[i] if past is not None else None)
        return F.linear(self.norm(x), self.embed_tokens.weight)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-b, a), dim=-1) * sin


def stream_of(tokenizer: Tokenizer, documents: tuple[str, ...]) -> Tensor:
    """Return all documents as one int64 stream of token ids, each ended by EOS."""
    eos = int(tokenizer.token_to_id(EOS) or 0)
    ids: list[int] = []
    for encoding in tokenizer.encode_batch(list(documents)):
        ids += [*encoding.ids, eos]
    return torch.tensor(ids)


def _windows(streams: list[tuple[float, Tensor]], recipe: Recipe, rng: torch.Generator) -> Iterator[Tensor]:
    shares = torch.tensor([share for share, _ in streams])
    while True:
        picks = torch.multinomial(shares, recipe.batch, replacement=True, generator=rng).tolist()
        rows = []
        for pick in picks:
            stream = streams[pick][1]
            start = int(torch.randint(len(stream) - recipe.sequence - 1, (1,), generator=rng))
            rows.append(stream[start : start + recipe.sequence + 1])
        yield torch.stack(rows)


def _optimise(
    model: Llama, steps: int, rate: float, loss_of: Callable[[], Tensor], report: Callable[[int, float], None], *, decay: float
) -> None:
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() == 1]
    groups = [{"params": matrices, "weight_decay": 0.05}, {"params": vectors, "weight_decay": 0.0}]
    optimiser = torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.97), fused=True)
    for step in range(steps):
        warm = min(1.0, (step + 1) / 60)
        left = (steps - step) / steps
        scale = warm * (min(1.0, left / decay) if decay else 1.0)
        for group in optimiser.param_groups:
            group["lr"] = rate * max(scale, 0.01)
        loss = loss_of()
        optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it bare
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        report(step + 1, float(loss.detach()))


def _cross_entropy(model: Llama, rows: Tensor) -> Tensor:
    return F.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())


def train_half(tokenizer: Tokenizer, corpus: Corpus, recipe: Recipe, report: Report) -> Llama:
    """Train the first half: a target with half the layers, at a constant rate."""
    torch.manual_seed(recipe.seed)
    windows = _both_domains(tokenizer, corpus, recipe, torch.Generator().manual_seed(recipe.seed))
    half = Llama(Shape(**{**asdict(recipe.target), "layers": recipe.target.layers // 2}))
    _optimise(
        half,
        recipe.grow_steps,
        recipe.learning_rate,
        lambda: _cross_entropy(half, next(windows)),
        lambda s, x: report("target, half depth", s, recipe.grow_steps, x),
        decay=0.0,
    )
    return half


def grow(half: Llama, tokenizer: Tokenizer, corpus: Corpus, recipe: Recipe, report: Report) -> Llama:
    """Double every layer of the half-depth target and train on, the rate falling to zero."""
    windows = _both_domains(tokenizer, corpus, recipe, torch.Generator().manual_seed(recipe.seed + 2))
    full = Llama(recipe.target)
    full.load_state_dict({k: v for k, v in half.state_dict().items() if not k.startswith("layers.")}, strict=False)
    for i, block in enumerate(full.layers):
        block.load_state_dict(half.layers[i // 2].state_dict())
        for name in ("self_attn.o_proj.weight", "mlp.down_proj.weight"):
            block.get_parameter(name).data.mul_(0.6)  # two copies must not add twice
    _optimise(
        full,
        recipe.target_steps,
        recipe.learning_rate * 0.8,
        lambda: _cross_entropy(full, next(windows)),
        lambda s, x: report("target, full depth", s, recipe.target_steps, x),
        decay=1.0,
    )
    return full


def _both_domains(tokenizer: Tokenizer, corpus: Corpus, recipe: Recipe, rng: torch.Generator) -> Iterator[Tensor]:
    code, prose = stream_of(tokenizer, corpus.code), stream_of(tokenizer, corpus.prose)
    return _windows([(recipe.code_share, code), (1 - recipe.code_share, prose)], recipe, rng)


@torch.no_grad()
def write_greedily(model: Llama, stream: Tensor, recipe: Recipe, rng: torch.Generator) -> Tensor:
    """Let the target continue random prompts at temperature 0.

    Returns:
        int64 [greedy_prompts, greedy_prompt + greedy_tokens].
    """
    prompt = recipe.greedy_prompt
    starts = torch.randint(len(stream) - prompt, (recipe.greedy_prompts,), generator=rng)
    rows = torch.stack([stream[s : s + prompt] for s in starts.tolist()])
    done = []
    for chunk in rows.split(128):  # type: ignore[no-untyped-call]  # torch leaves it bare
        past: list[list[Tensor]] = [[] for _ in range(model.shape.layers)]
        ids, new, start = chunk, chunk, 0
        for _ in range(recipe.greedy_tokens):
            token = model(new, past, start)[:, -1].argmax(-1, keepdim=True)
            start = ids.shape[1]
            ids, new = torch.cat((ids, token), dim=1), token
        done.append(ids)
    return torch.cat(done)


def distil(
    target: Llama, stream: Tensor, greedy: Tensor, recipe: Recipe, steps: int, report: Callable[[int, float], None]
) -> Llama:
    """Train a draft: three steps in four on the target's greedy text, one on its full law over corpus text.

    Greedy text is its own label: the next token is the target's choice. The full law keeps the draft useful above
    temperature 0.
    """
    torch.manual_seed(recipe.seed + 1)
    rng = torch.Generator().manual_seed(recipe.seed + 1)
    windows = _windows([(1.0, stream)], recipe, rng)
    draft = Llama(recipe.draft)
    turn = 0

    def loss_of() -> Tensor:
        nonlocal turn
        turn += 1
        if turn % 4:
            rows = greedy[torch.randint(len(greedy), (recipe.batch * 4,), generator=rng)]
            logits = draft(rows[:, :-1])[:, recipe.greedy_prompt - 1 :]
            return F.cross_entropy(logits.flatten(0, 1), rows[:, recipe.greedy_prompt :].flatten())
        rows = next(windows)[:, :-1]
        with torch.no_grad():
            law = F.log_softmax(target(rows), dim=-1)
        mine = F.log_softmax(draft(rows), dim=-1)
        return F.kl_div(mine.flatten(0, 1), law.flatten(0, 1), log_target=True, reduction="batchmean")

    _optimise(draft, steps, recipe.learning_rate * 1.6, loss_of, report, decay=0.8)
    return draft


def save(model: Llama, tokenizer: Tokenizer, folder: Path) -> None:
    """Write a checkpoint folder as Hugging Face would: fp16 safetensors, config, tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    shape = model.shape
    tensors = {f"model.{name}": value.detach().to(torch.float16).contiguous() for name, value in model.state_dict().items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)  # safetensors writes for the owner alone
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "torch_dtype": "float16",
        "vocab_size": shape.vocab,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.heads,
        "head_dim": shape.hidden // shape.heads,
        "max_position_embeddings": shape.context,
        "rms_norm_eps": 1e-5,
        "rope_theta": shape.rope_theta,
        "tie_word_embeddings": True,
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": None,
        "eos_token_id": 0,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps(
            {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": EOS, "model_max_length": shape.context}, indent=1
        )
        + "\n"
    )


def load(folder: Path) -> Llama:
    """Read a checkpoint that `save` wrote, in float32."""
    config = json.loads((folder / "config.json").read_text())
    model = Llama(
        Shape(
            layers=config["num_hidden_layers"],
            hidden=config["hidden_size"],
            heads=config["num_attention_heads"],
            intermediate=config["intermediate_size"],
            vocab=config["vocab_size"],
            context=config["max_position_embeddings"],
        )
    )
    model.load_state_dict({k.removeprefix("model."): v.float() for k, v in load_file(folder / "model.safetensors").items()})
    return model
