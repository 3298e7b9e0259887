"""Decoding on a CPU: the demo pair against transformers, the floor of its own matrix products, batches, and the trace's cost.

One thread, float32, the shipped held-out prompts; both sides of a row run in turn on the same prompts and the figure is the
median of the paired ratios. transformers' rows are not run where it is not installed. k is 4 on both sides, and transformers
drafts a constant number without its confidence stop, so that both do the same arithmetic.
"""

import importlib.util
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import tokenizers
import torch

from specops.decoding.batch import Batch
from specops.decoding.draft import Draft, ModelDraft
from specops.decoding.loop import Speculation, generate
from specops.decoding.request import Request
from specops.demo.pair import load_pair
from specops.transformer.model import Model, load_model
from tests.benchmarks.row import Row

K, TOKENS, RUNS, PROMPTS, PROMPT_TOKENS, BATCH = 4, 64, 7, 8, 32, 8
MIN_ASSISTED, MIN_PLAIN, MAX_PYTHON_MS, MAX_PYTHON_SHARE, MAX_FLOOR, MIN_BATCH = 3.0, 1.8, 0.4, 0.10, 2.0, 2.5
MAX_TRACE_OFF, LAPS = 0.01, 4


class Timed:
    """A model that adds up the seconds spent in its forwards."""

    def __init__(self, model: Model) -> None:
        self._model, self.seconds = model, 0.0

    def __getattr__(self, name: str) -> Any:  # whatever the model has
        return getattr(self._model, name)

    def forward(self, *args: Any, **options: Any) -> Any:  # the model's own signature
        """Run and time a forward."""
        return self._timed(self._model.forward, *args, **options)

    def forward_rows(self, *args: Any) -> Any:
        """Run and time a forward of several rows."""
        return self._timed(self._model.forward_rows, *args)

    def _timed(self, call: Callable[..., Any], *args: Any, **options: Any) -> Any:
        began_s = time.perf_counter()
        result = call(*args, **options)
        self.seconds += time.perf_counter() - began_s
        return result


def measure() -> Iterator[Row]:
    """Load the pair and yield every row."""
    torch.set_num_threads(1)
    pair = load_pair()
    target, small = load_model(pair.target), load_model(pair.draft)
    tokenizer = tokenizers.Tokenizer.from_file(str(pair.target / "tokenizer.json"))
    texts = [text for domain in pair.prompts.values() for text in domain]
    prompts = [tuple(tokenizer.encode(text).ids[:PROMPT_TOKENS]) for text in texts[:: max(1, len(texts) // PROMPTS)]][:PROMPTS]
    draft = ModelDraft(small, K)
    yield from _against_transformers(pair, target, draft, prompts)
    yield from _python(target, small, prompts)
    yield _floor(target, prompts[0])
    yield from _batches(target, draft, prompts)
    yield _trace_off(target, draft, prompts)
    yield _trace(target, draft, prompts)


def _ask(prompt: tuple[int, ...], **options: Any) -> Request:  # settings of a request
    return Request(prompt_ids=prompt, max_tokens=TOKENS, ignore_eos=True, **options)


def _decode(target: Model, draft: Draft | None, request: Request) -> int:
    return sum(len(step.tokens) for step in generate(target, draft, request))


def _seconds_per_token(run: Callable[[], int]) -> float:
    began_s = time.perf_counter()
    tokens = run()
    return (time.perf_counter() - began_s) / tokens


def _paired(ours: Callable[[int], int], theirs: Callable[[int], int]) -> tuple[float, float, float]:
    """Return the median ratio theirs / ours of seconds per token, and both medians in tokens per second."""
    ours(0), theirs(0)
    pairs = [(_seconds_per_token(lambda i=i: ours(i)), _seconds_per_token(lambda i=i: theirs(i))) for i in range(RUNS)]
    ratio = statistics.median(b / a for a, b in pairs)
    return ratio, 1 / statistics.median(a for a, _ in pairs), 1 / statistics.median(b for _, b in pairs)


def _against_transformers(pair: Any, target: Model, draft: Draft, prompts: list[tuple[int, ...]]) -> Iterator[Row]:
    checks = (
        ("speculative greedy vs assisted generation", draft, 0.0, MIN_ASSISTED),
        ("speculative sampled vs assisted generation", draft, 1.0, MIN_ASSISTED),
        ("plain greedy vs generate", None, 0.0, MIN_PLAIN),
        ("plain sampled vs generate", None, 1.0, MIN_PLAIN),
    )
    if importlib.util.find_spec("transformers") is None:
        for check, _, _, goal in checks:
            yield Row(
                check=check, figure=None, unit="x", goal=f">= {goal}", holds=None, against="transformers", runs=0,
                why="transformers is not installed",
            )  # fmt: skip
        return
    import transformers  # noqa: PLC0415  # a peer that may be absent

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    peer, peer_draft = (
        transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        for folder in (pair.target, pair.draft)
    )
    peer_draft.generation_config.update(
        num_assistant_tokens=K, num_assistant_tokens_schedule="constant", assistant_confidence_threshold=0.0
    )

    def theirs(prompt: tuple[int, ...], proposer: Draft | None, temperature: float) -> int:
        settings = {"do_sample": True, "temperature": temperature, "top_k": 0} if temperature else {"do_sample": False}
        with torch.no_grad():
            ids = peer.generate(
                torch.tensor([prompt]), attention_mask=torch.ones((1, len(prompt)), dtype=torch.long), max_new_tokens=TOKENS,
                assistant_model=peer_draft if proposer else None, eos_token_id=-1, pad_token_id=0, **settings,
            )  # fmt: skip
        return int(ids.shape[1]) - len(prompt)

    for check, proposer, temperature, goal in checks:
        ratio, our_rate, their_rate = _paired(
            lambda i, d=proposer, t=temperature: _decode(target, d, _ask(prompts[i % PROMPTS], temperature=t, seed=i)),
            lambda i, d=proposer, t=temperature: theirs(prompts[i % PROMPTS], d, t),
        )
        against = f"transformers {transformers.__version__}: {their_rate:.0f} tokens/s, ours {our_rate:.0f}"
        yield Row(check=check, figure=ratio, unit="x", goal=f">= {goal}", holds=ratio >= goal, against=against, runs=RUNS)


def _python(model: Model, small: Model, prompts: list[tuple[int, ...]]) -> Iterator[Row]:
    """Time outside the forwards: per round alone, and as a share of the wall with eight."""
    for temperature, name in ((0.0, "greedy"), (1.0, "sampled")):
        per_round_ms = []
        for i in range(RUNS):
            target, draft = Timed(model), Timed(small)
            one = Speculation(target, ModelDraft(draft, K), _ask(prompts[i % PROMPTS], temperature=temperature, seed=i))
            step, rounds = one.prefill(), 0
            target.seconds = draft.seconds = 0.0
            began_s = time.perf_counter()
            while step.finish is None:
                step, rounds = one.round(), rounds + 1
            beyond_s = time.perf_counter() - began_s - target.seconds - draft.seconds
            per_round_ms.append(beyond_s / rounds * 1e3)
        figure = statistics.median(per_round_ms)
        yield Row(
            check=f"Python beyond the forwards, a round, {name}, k = {K}", figure=figure, unit="ms",
            goal=f"<= {MAX_PYTHON_MS}", holds=figure <= MAX_PYTHON_MS, against="wall less forwards, same run", runs=RUNS,
        )  # fmt: skip
    for temperature, name in ((0.0, "greedy"), (1.0, "sampled")):
        shares = []
        for i in range(RUNS):
            target, draft = Timed(model), Timed(small)
            batch = Batch(target=target, draft=ModelDraft(draft, K), slots=BATCH)
            began_s = time.perf_counter()
            _decode_batch(batch, prompts, seed=i, temperature=temperature)
            wall_s = time.perf_counter() - began_s
            shares.append((wall_s - target.seconds - draft.seconds) / wall_s)
        share = statistics.median(shares)
        yield Row(
            check=f"Python beyond the forwards, batch {BATCH}, {name}", figure=share * 100, unit="% of wall",
            goal=f"<= {MAX_PYTHON_SHARE:.0%}", holds=share <= MAX_PYTHON_SHARE, against="wall, same run", runs=RUNS,
        )  # fmt: skip


def _floor(model: Model, prompt: tuple[int, ...]) -> Row:
    """One forward of 1 + k tokens against the products that it cannot do without."""
    weights = [w for layer in model._layers for w in (layer.qkv, layer.out, layer.gate_up, layer.down)]
    inputs = {w.shape[0]: torch.randn(K + 1, w.shape[0]) for w in weights}
    head, hidden = model._head, torch.randn(K + 1, model.config.hidden)
    cache = model.new_cache(PROMPT_TOKENS + 64)
    model.forward(prompt, cache)
    start, block = cache.length, list(prompt[: K + 1])

    @torch.inference_mode()
    def products() -> int:
        for weight in weights:
            torch.mm(inputs[weight.shape[0]], weight)
        torch.nn.functional.linear(hidden, head)
        return 1

    def forward() -> int:
        cache.rewind(start)
        model.forward(block, cache)
        return 1

    products(), forward()
    ratios = [_seconds_per_token(forward) / _seconds_per_token(products) for _ in range(100)]
    figure = statistics.median(ratios)
    return Row(
        check=f"one forward of {K + 1} tokens vs its matrix products", figure=figure, unit="x", goal=f"<= {MAX_FLOOR}",
        holds=figure <= MAX_FLOOR, against="torch.mm over the same weights", runs=len(ratios),
    )  # fmt: skip


def _decode_batch(batch: Batch, prompts: list[tuple[int, ...]], *, seed: int = 0, temperature: float = 0.0) -> int:
    for i in range(BATCH):
        batch.join(_ask(prompts[i % PROMPTS], seed=seed + i, temperature=temperature))
    tokens = 0
    while batch.rows:
        for _, step in batch.round():
            if isinstance(step, Exception):
                raise step
            tokens += len(step.tokens)
    return tokens


def _batches(target: Model, draft: Draft, prompts: list[tuple[int, ...]]) -> Iterator[Row]:
    for name, proposer in (("plain", None), ("speculative", draft)):
        batch = Batch(target=target, draft=proposer, slots=BATCH)  # once, as an engine does
        ratio, together, apart = _paired(
            lambda i, b=batch: _decode_batch(b, prompts, seed=i),
            lambda i, d=proposer: sum(_decode(target, d, _ask(prompts[j % PROMPTS], seed=i + j)) for j in range(BATCH)),
        )
        goal = MIN_BATCH if proposer is None else None
        yield Row(
            check=f"batch {BATCH} vs {BATCH} x batch 1, {name}", figure=ratio, unit="x",
            goal=f">= {goal}" if goal else "reported", holds=ratio >= goal if goal else True,
            against=f"one by one: {apart:.0f} tokens/s, together {together:.0f}", runs=RUNS,
        )  # fmt: skip


def _trace_off(target: Model, draft: Draft, prompts: list[tuple[int, ...]]) -> Row:
    """Measure what a trace that is off costs: LAPS + 2 questions a round whether there is a recorder."""
    shares = []
    for i in range(RUNS):
        one = Speculation(target, draft, _ask(prompts[i % PROMPTS], seed=i))
        step, rounds = one.prefill(), 0
        began_s = time.perf_counter()
        while step.finish is None:
            step, rounds = one.round(), rounds + 1
        round_s, began_s = (time.perf_counter() - began_s) / rounds, time.perf_counter()
        for _ in range(1_000):
            for _ in range(LAPS + 2):
                one._lap()  # asks, and returns
        shares.append((time.perf_counter() - began_s) / 1_000 / round_s)
    figure = statistics.median(shares)
    return Row(
        check="trace off", figure=figure * 100, unit="% of a round", goal=f"<= {MAX_TRACE_OFF:.0%}",
        holds=figure <= MAX_TRACE_OFF, against="a round, greedy, batch 1", runs=RUNS,
    )  # fmt: skip


def _trace(target: Model, draft: Draft, prompts: list[tuple[int, ...]]) -> Row:
    ratio, plain, traced = _paired(
        lambda i: _decode(target, draft, _ask(prompts[i % PROMPTS], temperature=1.0, seed=i)),
        lambda i: _decode(target, draft, _ask(prompts[i % PROMPTS], temperature=1.0, seed=i, trace=True)),
    )
    return Row(
        check="full trace, sampled", figure=(ratio - 1) * 100, unit="% more time", goal="reported", holds=True,
        against=f"trace off: {plain:.0f} tokens/s, on {traced:.0f}", runs=RUNS,
    )  # fmt: skip
