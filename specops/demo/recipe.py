"""Run the recipe from corpus to shipped files: target, draft, stale, prompts and the record that lineage keeps."""

import json
import subprocess
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from tokenizers import Tokenizer

from specops.demo import train
from specops.demo.corpus import Corpus, build

PROMPT_TOKENS = 64
PROMPTS = {"code": 700, "prose": 400}


def run(out: Path, recipe: train.Recipe | None = None) -> None:
    """Train the target and both drafts and write everything under `out`; prints progress. `half` is a stage, not shipped."""
    recipe = recipe or train.Recipe()
    corpus = build()
    tokenizer = train.train_tokenizer(corpus, recipe.target.vocab)
    train.save(train.train_half(tokenizer, corpus, recipe, _print), tokenizer, out / "half")
    train.save(train.grow(train.load(out / "half"), tokenizer, corpus, recipe, _print), tokenizer, out / "target")
    drafts(out, recipe, corpus, tokenizer)


def drafts(out: Path, recipe: train.Recipe, corpus: Corpus, tokenizer: Tokenizer) -> None:
    """Distil both drafts from the target saved under `out` and write prompts and record."""
    target = train.load(out / "target")  # as shipped: in half precision
    for name, documents, steps in (("draft", corpus.code, recipe.draft_steps), ("stale", corpus.prose, recipe.stale_steps)):
        stream = train.stream_of(tokenizer, documents)
        prompts = recipe.greedy_prompts if name == "draft" else recipe.greedy_prompts // 6
        greedy = train.write_greedily(
            target, stream, replace(recipe, greedy_prompts=prompts), torch.Generator().manual_seed(recipe.seed)
        )
        train.save(
            train.distil(target, stream, greedy, recipe, steps, partial(_report, name, steps)),
            tokenizer,
            out / name,
        )
    _write(out / "prompts.json", held_out_prompts(tokenizer, corpus, recipe.seed))
    _write(
        out / "recipe.json",
        {"recipe": recipe.as_record(), "corpus": corpus.origin(), "commit": _commit(), "torch": torch.__version__},
    )


def held_out_prompts(tokenizer: Tokenizer, corpus: Corpus, seed: int) -> dict[str, list[str]]:
    """Cut prompts of 64 tokens out of held-out documents; none was seen in training."""
    rng = torch.Generator().manual_seed(seed)
    prompts = {}
    for name, documents in (("code", corpus.code_held_out), ("prose", corpus.prose_held_out)):
        stream = train.stream_of(tokenizer, documents)
        starts = torch.randperm(len(stream) - PROMPT_TOKENS, generator=rng)[: PROMPTS[name]].tolist()
        prompts[name] = [tokenizer.decode(stream[s : s + PROMPT_TOKENS].tolist()) for s in starts]
    return prompts


def _report(stage: str, steps: int, step: int, loss: float) -> None:
    _print(stage, step, steps, loss)


def _print(stage: str, step: int, steps: int, loss: float) -> None:
    if step % 50 == 0 or step == steps:
        print(f"{stage}: step {step} of {steps}, loss {loss:.3f}", flush=True)  # noqa: T201  # the recipe is a batch job


def _write(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _commit() -> str:
    done = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False, cwd=Path(__file__).parent)  # noqa: S607
    return done.stdout.strip() or "not a git checkout"
