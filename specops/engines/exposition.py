"""The numbers of `/metrics`, under vLLM's names, types, labels and buckets, in Prometheus text.

The speculative counters exist only on a server that speculates, as in vLLM. Counted per round in the worker thread, read by the
event loop: one lock. Source: vLLM 0.32 v1/spec_decode/metrics.py, v1/metrics/loggers.py and v1/metrics/buckets.py.
"""

import threading
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass

from specops.core.outcome import Finish

TTFT_BUCKETS_S = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0,
)  # fmt: skip
ITL_BUCKETS_S = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
REQUEST_BUCKETS_S = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0,
    240.0, 480.0, 960.0, 1920.0, 7680.0,
)  # fmt: skip
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_FINISHES = (Finish.STOP, Finish.LENGTH, Finish.ABORT, Finish.ERROR)
_HISTOGRAMS = {
    "time_to_first_token_seconds": (TTFT_BUCKETS_S, "Time to first token, queue included."),
    "inter_token_latency_seconds": (ITL_BUCKETS_S, "Time between rounds of one request."),
    "request_time_per_output_token_seconds": (ITL_BUCKETS_S, "Decode time of a request per token after the first."),
    "e2e_request_latency_seconds": (REQUEST_BUCKETS_S, "Time from arrival to the last token."),
    "request_queue_time_seconds": (REQUEST_BUCKETS_S, "Time spent waiting for a turn."),
    "request_inference_time_seconds": (REQUEST_BUCKETS_S, "Time from admission to the last token."),
    "request_prefill_time_seconds": (REQUEST_BUCKETS_S, "Time from admission to the first token."),
    "request_decode_time_seconds": (REQUEST_BUCKETS_S, "Time from the first to the last token."),
}
_SIZES = {
    "request_prompt_tokens": "Prompt tokens of an ended request.",
    "request_generation_tokens": "Generated tokens of an ended request.",
}
_SPECULATIVE = {
    "spec_decode_num_drafts_total": "Rounds that had at least one drafted token.",
    "spec_decode_num_draft_tokens_total": "Drafted tokens.",
    "spec_decode_num_accepted_tokens_total": "Accepted drafted tokens, bonus excluded.",
}
_PER_POSITION = "spec_decode_num_accepted_tokens_per_pos_total"


@dataclass(slots=True, kw_only=True)
class Histogram:
    """Counts per bucket (upper bounds inclusive), with sum and count."""

    bounds: tuple[float, ...]
    counts: list[int]
    total: float = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def lines(self, name: str, labels: str) -> list[str]:
        """Return the sample lines, cumulative as Prometheus wants them."""
        lines, seen = [], 0
        for bound, count in zip((*(repr(bound) for bound in self.bounds), "+Inf"), self.counts, strict=True):
            seen += count
            lines.append(f'{name}_bucket{{{labels},le="{bound}"}} {seen}')
        return [*lines, f"{name}_count{{{labels}}} {seen}", f"{name}_sum{{{labels}}} {self.total!r}"]


class EngineMetrics:
    """All counters of one engine server; every method may be called from any thread."""

    def __init__(self, *, model_name: str, num_speculative_tokens: int, max_model_len: int) -> None:
        escaped = model_name.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
        self._model = f'model_name="{escaped}"'
        self._labels = f'{self._model},engine="0"'
        self._lock = threading.Lock()
        self._prompt_tokens = self._generation_tokens = self._rejections = 0
        self._traces = [0, 0]  # lost, written
        self._finished = dict.fromkeys(_FINISHES, 0)
        self._speculative = dict.fromkeys(_SPECULATIVE, 0) if num_speculative_tokens else {}
        self._per_position = [0] * num_speculative_tokens
        families = _HISTOGRAMS | {name: (_size_buckets(max_model_len), text) for name, text in _SIZES.items()}
        self._texts = {name: text for name, (_, text) in families.items()}
        self._histograms = {
            name: Histogram(bounds=bounds, counts=[0] * (len(bounds) + 1)) for name, (bounds, _) in families.items()
        }
        self._http: Counter[tuple[str, str, str]] = Counter()

    def count_round(self, *, tokens: int, drafted: int, accepted: int) -> None:
        """Count the tokens kept from one round and, when it drafted, what was accepted."""
        with self._lock:
            self._generation_tokens += tokens
            if not drafted or not self._speculative:
                return
            self._speculative["spec_decode_num_drafts_total"] += 1
            self._speculative["spec_decode_num_draft_tokens_total"] += drafted
            self._speculative["spec_decode_num_accepted_tokens_total"] += accepted
            for position in range(min(accepted, len(self._per_position))):
                self._per_position[position] += 1

    def count_finish(self, finish: Finish, *, prompt_tokens: int) -> None:
        """Count one request that ended."""
        with self._lock:
            self._prompt_tokens += prompt_tokens
            self._finished[finish] += 1

    def count_rejection(self) -> None:
        """Count one request refused because the queue was full."""
        with self._lock:
            self._rejections += 1

    def count_trace(self, *, is_written: bool) -> None:
        """Count one trace that was stored, or lost."""
        with self._lock:
            self._traces[is_written] += 1

    def count_http(self, *, handler: str, method: str, status: int) -> None:
        """Count one answered HTTP request by its route, never by the path that a client made up."""
        with self._lock:
            self._http[handler, method, f"{status // 100}xx"] += 1

    def observe(self, histogram: str, value: float) -> None:
        """Add a value to one of the histograms, named without the `vllm:` prefix."""
        with self._lock:
            self._histograms[histogram].observe(value)

    def render(self, *, running: int, waiting: int) -> str:
        """Return the exposition text."""
        lines: list[str] = []

        def family(name: str, kind: str, text: str, samples: list[str]) -> None:
            lines.extend([f"# HELP vllm:{name} {text}", f"# TYPE vllm:{name} {kind}", *samples])

        def one(name: str, kind: str, text: str, value: int) -> None:
            family(name, kind, text, [f"vllm:{name}{{{self._labels}}} {value}"])

        with self._lock:
            one("num_requests_running", "gauge", "Requests that take turns now.", running)
            one("num_requests_waiting", "gauge", "Requests that wait for a turn.", waiting)
            one("prompt_tokens_total", "counter", "Prompt tokens of ended requests.", self._prompt_tokens)
            one("generation_tokens_total", "counter", "Generated tokens.", self._generation_tokens)
            family("request_success_total", "counter", "Ended requests by reason, errors and aborts too.", [
                f'vllm:request_success_total{{{self._labels},finished_reason="{reason}"}} {count}'
                for reason, count in self._finished.items()
            ])  # fmt: skip
            family("admission_rejections_total", "counter", "Requests refused with 503.", [
                f'vllm:admission_rejections_total{{{self._model},reason="max_num_queued_reqs"}} {self._rejections}'
            ])  # fmt: skip
            for name, value in self._speculative.items():
                one(name, "counter", _SPECULATIVE[name], value)
            if self._speculative:
                family(_PER_POSITION, "counter", "Rounds whose accepted prefix reached the position.", [
                    f'vllm:{_PER_POSITION}{{{self._labels},position="{position}"}} {count}'
                    for position, count in enumerate(self._per_position)
                ])  # fmt: skip
            for name, histogram in self._histograms.items():
                family(name, "histogram", self._texts[name], histogram.lines(f"vllm:{name}", self._labels))
            for name, value in zip(("failed", "written"), self._traces, strict=True):
                lines.extend(
                    [f"# HELP specops_trace_{name}_total Traces {name}.", f"# TYPE specops_trace_{name}_total counter"]
                )
                lines.append(f"specops_trace_{name}_total{{{self._labels}}} {value}")
            lines.extend(["# HELP http_requests_total Answered requests.", "# TYPE http_requests_total counter"])
            lines.extend(
                f'http_requests_total{{handler="{handler}",method="{method}",status="{status}"}} {count}'
                for (handler, method, status), count in sorted(self._http.items())
            )
        return "\n".join(lines) + "\n"


def _size_buckets(most: int) -> tuple[float, ...]:
    """Return 1, 2, 5, 10, ... up to `most`, vLLM's buckets of token counts."""
    return tuple(float(m * 10**e) for e in range(len(str(most))) for m in (1, 2, 5) if m * 10**e <= most)
