"""Which requests an engine traces, what it knows of them beyond their rounds, and the thread that stores the traces.

The decoder's worker only collects; a trace is handed to the writer when its request has ended, so a slow disk costs traces,
which are counted, and no request its time. Called by `engines.engine`. Test: tests/engines/test_tracing.py.
"""

import hashlib
import json
import logging
import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from specops.core.outcome import Finish
from specops.core.trace import Alternative, Cap, Control, Cut, Hand, Round, Trace
from specops.decoding.request import Request, Step
from specops.engines.exposition import EngineMetrics
from specops.errors import InvalidInput

MODES = ("off", "sampled", "full")
MOST_WAITING = 256  # traces that wait for the writer
_LOG = logging.getLogger(__name__)
_FACTS = (
    "version", "torch", "device", "dtype", "threads", "attention_kernel", "method", "num_speculative_tokens", "speculation",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceChoice:
    """Which requests are traced: `mode` off, sampled or full, and the share of a sample, in (0, 1]."""

    mode: str = "off"
    share: float = 0.01

    def __post_init__(self) -> None:
        """Check both."""
        if self.mode not in MODES:
            raise InvalidInput(f"trace is {self.mode!r}, expected one of {', '.join(MODES)}")
        if not 0 < self.share <= 1:
            raise InvalidInput(f"trace_sample is {self.share}, expected a share in (0, 1]; --trace off traces nothing")

    def takes(self, request_id: str, asked: bool | None) -> bool:  # the request's own word
        """Return whether a request is traced: as it asks, else by mode; a sample depends on the id alone, so it repeats."""
        if asked is not None:
            return asked
        if self.mode == "sampled":
            number = int.from_bytes(hashlib.sha256(request_id.encode()).digest()[:8], "big")
            return number < self.share * 2**64
        return self.mode == "full"


@dataclass(slots=True, kw_only=True)
class Tracer:
    """Collects one request; called in the decoder's worker thread."""

    request_id: str
    request: Request
    facts: Mapping[str, Any]
    at: datetime = field(default_factory=lambda: datetime.now(UTC))
    first: tuple[int, ...] = ()
    first_alternatives: tuple[Alternative, ...] = ()
    rounds: list[Round] = field(default_factory=list)
    is_first: bool = True

    def add(self, step: Step) -> None:
        """Note a step."""
        if self.is_first:
            self.first, self.first_alternatives, self.is_first = step.tokens, step.first_alternatives, False
        elif step.trace is not None:
            self.rounds.append(step.trace)

    def end(
        self, finish: Finish, *, by_text: bool, by_engine: bool, text_tokens: int, queue_s: float, prefill_s: float
    ) -> Trace:
        """Return the trace of the request, which has ended.

        Args:
            finish: how.
            by_text: a stop string was found.
            by_engine: an abort came from the engine, which is shutting down, and not from the client.
            text_tokens: tokens that reached the client.
            queue_s: seconds before admission.
            prefill_s: seconds from then to the first token.
        """
        ended, at, controls = _cut(finish, by_text=by_text), len(self.rounds), []
        shortened = next((i for i, each in enumerate(self.rounds) if each.cap is Cap.BATCH), None)
        if shortened is not None:
            what = "k was lowered for the batch's size or the acceptance so far"
            controls.append(Control(after_round=shortened, hand=Hand.SOFTWARE, what=what))
        if ended is Cut.STOP_TEXT:
            controls.append(Control(after_round=at, hand=Hand.SOFTWARE, what="a stop string of the request was found"))
        if ended is Cut.ABORT:
            hand, who = (Hand.SOFTWARE, "the engine shut down") if by_engine else (Hand.HUMAN, "the client left")
            controls.append(Control(after_round=at, hand=hand, what=who))
        settings = json.loads(json.dumps(asdict(self.request)))
        return Trace(
            request_id=self.request_id,
            at=self.at,
            engine=self.facts,
            settings={name: value for name, value in settings.items() if name not in {"prompt_ids", "trace"}},
            prompt_ids=self.request.prompt_ids,
            first=self.first,
            first_alternatives=self.first_alternatives,
            queue_s=queue_s,
            prefill_s=prefill_s,
            rounds=tuple(self.rounds),
            ended=ended,
            text_tokens=text_tokens,
            controls=tuple(controls),
        )


def facts_of_trace(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a trace says of its engine: settings, and the digests of what was loaded."""
    draft = facts.get("draft")
    named: dict[str, Any] = json.loads(json.dumps({name: facts[name] for name in _FACTS if name in facts}))
    return named | {
        "target_sha256": facts["target"]["weights_sha256"],
        "draft_sha256": draft["weights_sha256"] if draft else None,
        "tokenizer": facts["tokenizer"],
    }


def _cut(finish: Finish, *, by_text: bool) -> Cut:
    if finish is Finish.STOP:
        return Cut.STOP_TEXT if by_text else Cut.STOP_TOKEN
    return {Finish.LENGTH: Cut.LENGTH, Finish.ABORT: Cut.ABORT}.get(finish, Cut.ERROR)


class TraceWriter:
    """A thread that hands traces to `sink`, one at a time; what does not fit or fails is counted and logged, never raised."""

    def __init__(self, sink: Callable[[Trace], object], metrics: EngineMetrics) -> None:
        self._sink, self._metrics = sink, metrics
        self._waiting: queue.Queue[Trace | None] = queue.Queue(MOST_WAITING)
        self._thread = threading.Thread(target=self._work, name="traces", daemon=True)
        self._thread.start()

    def put(self, trace: Trace) -> None:
        """Hand a trace over; returns at once."""
        try:
            self._waiting.put_nowait(trace)
        except queue.Full:
            self._failed(trace, "the disk is too slow")

    def close(self, *, timeout_s: float = 10.0) -> None:
        """Store what waits, and end."""
        self._waiting.put(None)
        self._thread.join(timeout_s)

    def _work(self) -> None:
        while (trace := self._waiting.get()) is not None:
            try:
                self._sink(trace)
            except Exception as exc:  # noqa: BLE001  # a trace lost is a number, an engine lost is an incident
                self._failed(trace, str(exc))
            else:
                self._metrics.count_trace(is_written=True)

    def _failed(self, trace: Trace, why: str) -> None:
        self._metrics.count_trace(is_written=False)
        _LOG.warning("trace of %s is lost: %s", trace.request_id, why)
