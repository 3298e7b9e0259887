"""One engine: models, tokenizer, worker and counters behind the HTTP server.

It turns a checked `Call` into rounds of `specops.decoding`, and every round into a `Delta` of text. It knows nothing of HTTP.
Called by `engines.server`. What a server says about itself (`facts`) is read from the files it loaded, not from its arguments.
"""

import importlib.metadata
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import tokenizers
import torch

from specops.core.outcome import Acceptance, Finish
from specops.core.trace import Trace
from specops.decoding.draft import Draft
from specops.decoding.loop import Request, Step, generate
from specops.engines.answers import Delta, Timing
from specops.engines.chat import read_chat_template
from specops.engines.config import ServerConfig
from specops.engines.detokenize import TextStream
from specops.engines.dialect import Call, Limits
from specops.engines.exposition import EngineMetrics
from specops.engines.preflight import check_folders, refuse
from specops.engines.scheduler import Job, Scheduler
from specops.engines.tokenizer import tokenizer_digest
from specops.engines.tracing import Tracer, TraceWriter, facts_of_trace
from specops.engines.weights import content_files, weights_digest
from specops.errors import InvalidInput, LineageBroken
from specops.transformer.model import Model, load_model

Event = Delta | Exception | None  # None: the answer was cancelled


class Answer:
    """One request on its way: the callbacks of its job, and what they measured.

    `deliver` is called in the worker thread with every `Delta`; after the last one, or an error, or None, nothing more comes.
    """

    def __init__(
        self, engine: "Engine", call: Call, request: Request, deliver: Callable[[Event], None], tracer: Tracer | None = None
    ) -> None:
        self._engine, self._request, self._deliver, self._tracer = engine, request, deliver, tracer
        self._text = TextStream(
            decoder=engine.tokenizer, stops=call.stop, includes_stop=call.includes_stop, min_tokens=request.min_tokens,
            skips_special=call.skips_special,
        )  # fmt: skip
        self._stop_ids = frozenset(request.stop_ids) | (frozenset() if request.ignore_eos else engine.eos_ids)
        self._arrived_s = time.perf_counter()
        self._admitted_s = self._first_s = self._last_s = self._arrived_s
        self._finish: Finish | None = None
        self._histogram = [0] * (engine.k + 1)
        self._per_round: list[tuple[int, int]] = []
        self.completion_tokens = 0
        self.job = Job(open=self._open, on_step=self._on_step, on_end=self._on_end)

    @property
    def acceptance(self) -> Acceptance | None:
        """Counts of the rounds so far; None on an engine that does not speculate."""
        if not self._engine.k:
            return None
        return Acceptance(
            rounds=len(self._per_round),
            drafted=sum(drafted for drafted, _ in self._per_round),
            accepted=sum(accepted for _, accepted in self._per_round),
            histogram=tuple(self._histogram),
        )

    @property
    def per_round(self) -> tuple[tuple[int, int], ...]:
        """(drafted, accepted) of each round that had drafts."""
        return tuple(self._per_round)

    @property
    def timing(self) -> Timing:
        """Times of the answer; meaningful once it ended."""
        return Timing(
            queue_s=self._admitted_s - self._arrived_s,
            ttft_s=self._first_s - self._admitted_s,
            decode_s=self._last_s - self._first_s,
        )

    def cancel(self) -> None:
        """End the answer before its next round; no effect once it ended."""
        self.job.is_cancelled.set()

    def _open(self) -> Request:
        self._admitted_s = time.perf_counter()
        self._engine.metrics.observe("request_queue_time_seconds", self._admitted_s - self._arrived_s)
        return self._request

    def _on_step(self, step: Step) -> bool:
        if self._tracer:
            self._tracer.add(step)
        delta = self._delta(step)
        self._count(step, kept=len(delta.token_ids))
        self._finish = delta.finish
        if delta.finish is not None:
            self._count_end(delta.finish)
        self._deliver(delta)
        return delta.finish is None

    def _delta(self, step: Step) -> Delta:
        finish = Finish(step.finish) if step.finish else None
        # The token that ended the answer is counted and returned, but it is not text (as in vLLM).
        ender = step.tokens[-1:] if finish is Finish.STOP and step.tokens[-1] in self._stop_ids else ()
        shown = step.tokens[: len(step.tokens) - len(ender)]
        kept, token_ids = self._text.push(shown), shown
        reason: str | int | None = None
        if (stop := self._text.stopped_by) is not None:
            finish, reason, token_ids = Finish.STOP, stop, shown[:kept]
        elif ender:
            reason, token_ids = ender[0] if ender[0] in self._request.stop_ids else None, shown + ender
        return Delta(
            text=self._text.take(final=finish is not None),
            token_ids=token_ids,
            finish=finish,
            stop_reason=reason,
            logprobs=None if step.logprobs is None else step.logprobs[: len(token_ids)],
            prompt_logprobs=step.prompt_logprobs,
        )

    def _count(self, step: Step, *, kept: int) -> None:
        now_s, metrics = time.perf_counter(), self._engine.metrics
        if not self.completion_tokens:
            self._first_s = now_s
            metrics.observe("time_to_first_token_seconds", now_s - self._arrived_s)
        else:
            metrics.observe("inter_token_latency_seconds", now_s - self._last_s)
        self._last_s = now_s
        self.completion_tokens += kept
        if step.drafted:
            self._per_round.append((step.drafted, step.accepted))
            self._histogram[step.accepted] += 1
        metrics.count_round(tokens=kept, drafted=step.drafted, accepted=step.accepted)

    def _count_end(self, finish: Finish) -> None:
        metrics = self._engine.metrics
        metrics.count_finish(finish, prompt_tokens=len(self._request.prompt_ids))
        metrics.observe("e2e_request_latency_seconds", self._last_s - self._arrived_s)
        metrics.observe("request_inference_time_seconds", self._last_s - self._admitted_s)
        metrics.observe("request_prefill_time_seconds", self._first_s - self._admitted_s)
        metrics.observe("request_decode_time_seconds", self._last_s - self._first_s)
        metrics.observe("request_prompt_tokens", len(self._request.prompt_ids))
        metrics.observe("request_generation_tokens", self.completion_tokens)
        if self.completion_tokens > 1:
            per_token_s = (self._last_s - self._first_s) / (self.completion_tokens - 1)
            metrics.observe("request_time_per_output_token_seconds", per_token_s)

    def _on_end(self, error: Exception | None) -> None:
        is_cut_off = self._finish is None
        self._finish = self._finish or (Finish.ERROR if error else Finish.ABORT)
        if self._tracer:
            self._engine.store(self._trace(self._tracer, self._finish))
        if is_cut_off:
            self._engine.metrics.count_finish(self._finish, prompt_tokens=len(self._request.prompt_ids))
            self._deliver(error)

    def _trace(self, tracer: Tracer, finish: Finish) -> Trace:
        return tracer.end(
            finish,
            by_text=self._text.stopped_by is not None,
            by_engine=not self._engine.scheduler.is_alive,
            text_tokens=self.completion_tokens,
            queue_s=self._admitted_s - self._arrived_s,
            prefill_s=max(0.0, self._first_s - self._admitted_s),
        )


class Engine:
    """A loaded engine. `facts` is what `/server_info` says; `k` is 0 without speculation."""

    def __init__(
        self, config: ServerConfig, *, target: Model, draft: Draft | None, facts: dict[str, Any],
        sink: Callable[[Trace], object] | None = None,
    ) -> None:  # fmt: skip
        self.config, self.facts = config, facts
        self.k = config.num_speculative_tokens
        self.tokenizer = tokenizers.Tokenizer.from_file(str(config.model / "tokenizer.json"))
        self.template = read_chat_template(config.model)
        self.eos_ids = frozenset(target.config.eos_ids)
        self._target, self._draft = target, draft
        self.limits = Limits(
            model_name=config.name,
            max_model_len=target.config.max_len,
            vocab_size=target.config.vocab_size,
            max_choices=config.max_running + config.max_waiting,
            # No token of the vocabulary has more characters; the rest is room for what normalisation takes away.
            max_prompt_chars=4 * max(map(len, self.tokenizer.get_vocab())) * target.config.max_len,
        )
        self.metrics = EngineMetrics(
            model_name=config.name, num_speculative_tokens=self.k, max_model_len=target.config.max_len
        )  # fmt: skip
        self._writer = TraceWriter(sink, self.metrics) if sink else None
        self.scheduler = Scheduler(
            target=target,
            draft=draft,
            max_running=config.max_running,
            max_waiting=config.max_waiting,
            dynamic=config.speculation.dynamic,
        )

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """Return the token ids of a text, with the special tokens that the tokenizer adds if `special`."""
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=special).ids
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of token ids, special tokens included."""
        text: str = self.tokenizer.decode(ids, skip_special_tokens=False)
        return text

    def submit(self, call: Call, index: int, deliver: Callable[[Event], None], *, request_id: str = "") -> Answer:
        """Queue one choice of a request, under the id that its trace will have.

        Raises:
            EngineUnavailable: the queue is full.
        """
        request = replace(call.request(index, secrets.randbits(63)), rule=self.config.speculation.rule)
        tracer = None
        if self._writer and self.config.trace.takes(request_id, call.trace):
            request = replace(request, trace=True)
            tracer = Tracer(request_id=request_id, request=request, facts=facts_of_trace(self.facts))
        answer = Answer(self, call, request, deliver, tracer)
        self.scheduler.submit(answer.job)
        return answer

    def generate(self, request: Request) -> Iterator[Step]:
        """Return the rounds of a decoder request."""
        return generate(self._target, self._draft, request)

    def close(self) -> None:
        """Cancel what runs, end the worker, and store the traces that wait."""
        self.scheduler.close()
        if self._writer:
            self._writer.close()

    def store(self, trace: Trace) -> None:
        """Hand over a finished trace; returns at once."""
        if self._writer:
            self._writer.put(trace)


def open_engine(config: ServerConfig, *, sink: Callable[[Trace], object] | None = None) -> Engine:
    """Check the files, load the models and run a first short request, so that no client pays for the warm-up.

    `sink` stores the traces of those requests that the config or their own word choose; without it nothing is traced.

    Raises:
        InvalidWeights: a checkpoint cannot be read safely.
        InvalidInput: the chat template cannot be read.
        IncompatibleRelease: target and draft do not belong together.
        LineageBroken: the weights are not the expected ones.
    """
    refuse(check_folders(config.model, config.draft))
    facts = _facts(config)
    torch.set_num_threads(config.threads)
    target = _load(config.model, config)
    facts["attention_kernel"] = target.attention_kernel
    model = _load(config.draft, config) if config.draft else None
    draft = config.speculation.draft(config.method, config.num_speculative_tokens, model)
    engine = Engine(config, target=target, draft=draft, facts=facts, sink=sink)
    _warm_up(engine)
    return engine


def _load(folder: Path, config: ServerConfig) -> Model:
    return load_model(folder, dtype=config.dtype, device=config.device, threads=config.threads)


def _warm_up(engine: Engine) -> None:
    room = engine.limits.max_model_len
    request = Request(prompt_ids=(0,) * max(1, min(8, room - 8)), max_tokens=8, ignore_eos=True)
    for _ in engine.generate(request):
        pass


def _facts(config: ServerConfig) -> dict[str, Any]:
    target, how = _checkpoint(config.model, expected=config.weights_digest), config.speculation
    return {
        "version": importlib.metadata.version("specops"),
        "torch": torch.__version__,
        "device": config.device,
        "dtype": config.dtype,
        "threads": config.threads,
        "attention": "torch.nn.functional.scaled_dot_product_attention",
        "served_model_name": config.name,
        "target": target,
        "draft": _checkpoint(config.draft, expected=config.draft_weights_digest) if config.draft else None,
        "tokenizer": target["tokenizer"],
        "chat_template": read_chat_template(config.model).sha256,
        "method": config.method,
        "num_speculative_tokens": config.num_speculative_tokens,
        "draft_sample_method": how.draft_sample_method if config.draft else None,  # at temperature 0 greedy anyway
        "rejection_sample_method": how.rejection_sample_method if config.method else None,
        "speculation": how.to_record(),
        "ngram": {"max": how.prompt_lookup_max, "min": how.prompt_lookup_min} if config.method == "ngram" else None,
    }


def _checkpoint(folder: Path, *, expected: str | None) -> dict[str, Any]:
    files = content_files(folder)
    digest = weights_digest(folder, known=files)
    if expected is not None and digest != expected:
        raise LineageBroken(f"weights of {folder} are {digest}, expected {expected}; restore the registered checkpoint")
    return {
        "path": str(folder.resolve()),
        "weights_sha256": digest,
        "tokenizer": tokenizer_digest(folder),
        "files": [{"path": file.path, "size": file.size, "sha256": file.sha256} for file in files],
    }


def check_config(config: ServerConfig) -> None:
    """Refuse what can be refused before anything is loaded.

    Raises:
        InvalidInput: the model folder does not exist, or no CUDA device does.
    """
    if config.device == "cuda" and not torch.cuda.is_available():
        raise InvalidInput("device is cuda, but torch finds no CUDA device here; pass --device cpu, or install torch for CUDA")
    for folder in (config.model, config.draft):
        if folder is not None and not folder.is_dir():
            raise InvalidInput(f"no model folder {folder}; check --model and --draft")
