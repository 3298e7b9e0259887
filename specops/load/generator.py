"""Open-loop load: every request leaves at its scheduled time, whether earlier ones were answered or not.

Latency is taken from the intended send time too, so a generator or a server that falls behind cannot hide it. The report says
how late requests left; a verdict must not rest on a run whose generator lagged. Called by demo and wiring.
"""

import asyncio
import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import numpy as np

from specops.core.outcome import Acceptance, acceptance_of
from specops.errors import InvalidInput, InvalidRecord

ARM_HEADER = "x-specops-arm"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One request to send: its id (header x-request-id), text or token ids, and parameters of the dialect.

    `key` is the sticky key (header x-specops-key); the id when empty.
    """

    request_id: str
    prompt: str | tuple[int, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """What came of one request. Instants are UTC; durations in seconds.

    `status` is 0 when no HTTP answer came. `error` is None exactly when the answer was complete. `arm` is the gateway's header.
    """

    request_id: str
    intended_at: datetime
    sent_at: datetime
    ended_at: datetime
    first_byte_at: datetime | None = None
    status: int = 0
    arm: str | None = None
    finish: str | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    acceptance: Acceptance | None = None
    text_sha256: str | None = None
    error: str | None = None

    @property
    def lag_s(self) -> float:
        """How late the request left."""
        return (self.sent_at - self.intended_at).total_seconds()

    @property
    def ttft_s(self) -> float | None:
        """From the actual send to the first content."""
        return None if self.first_byte_at is None else (self.first_byte_at - self.sent_at).total_seconds()

    @property
    def ttft_from_intended_s(self) -> float | None:
        """From the intended send to the first content."""
        return None if self.first_byte_at is None else (self.first_byte_at - self.intended_at).total_seconds()

    @property
    def e2e_s(self) -> float:
        """From the actual send to the end."""
        return (self.ended_at - self.sent_at).total_seconds()

    @property
    def e2e_from_intended_s(self) -> float:
        """From the intended send to the end."""
        return (self.ended_at - self.intended_at).total_seconds()

    @property
    def tpot_s(self) -> float | None:
        """Seconds per output token after the first, by the server's count."""
        if self.first_byte_at is None or self.completion_tokens < 2:  # noqa: PLR2004
            return None
        return (self.ended_at - self.first_byte_at).total_seconds() / (self.completion_tokens - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport:
    """The whole run. Lags and rates speak of the generator, not of the server."""

    sent: tuple[Sent, ...]
    asked: int
    duration_s: float

    @property
    def errors(self) -> int:
        """Requests without a complete answer."""
        return sum(record.error is not None for record in self.sent)

    @property
    def sent_per_s(self) -> float:
        """Requests sent per second of the sending time; 0 with fewer than two."""
        instants = sorted(record.sent_at for record in self.sent)
        span_s = (instants[-1] - instants[0]).total_seconds() if instants else 0.0
        return (len(instants) - 1) / span_s if span_s > 0 else 0.0

    def lag_s(self, quantile: float) -> float:
        """Return a quantile in [0, 1] of the send lag; 0 when nothing was sent."""
        return float(np.quantile([record.lag_s for record in self.sent], quantile)) if self.sent else 0.0

    def is_on_time(self, *, limit_s: float = 0.05) -> bool:
        """Return whether 99% of the requests left at most `limit_s` late."""
        return self.lag_s(0.99) <= limit_s


class LoadGenerator:
    """Sends prompts to one address. `stop` may be called from any thread; what is in flight then still ends.

    Args:
        url: base address of a gateway or an engine.
        timeout_s: longest silence on a socket.
        on_finished: called on the event loop with every record.
    """

    def __init__(self, url: str, *, timeout_s: float = 60.0, on_finished: Callable[[Sent], None] | None = None) -> None:
        self._url = url.rstrip("/") + "/v1/completions"
        self._timeout_s = timeout_s
        self._on_finished = on_finished
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._records: list[Sent] = []

    def stop(self) -> None:
        """Send no more; the run ends when the last answer has."""
        loop = self._loop
        if loop is None or loop.is_closed():
            self._stop.set()
        else:
            loop.call_soon_threadsafe(self._stop.set)

    async def run(self, prompts: Iterable[Prompt], times_s: Iterable[float]) -> LoadReport:
        """Send one prompt at each time, until either ends or `stop` is called.

        Args:
            prompts: taken one by one, so a generator may change its mind while the run lasts (traffic shift).
            times_s: seconds from now, in order, such as `Schedule.times_s`; may be endless.

        Raises:
            InvalidInput: the generator ran before; its records would mix.
        """
        if self._loop is not None:
            raise InvalidInput("a load generator runs once; make a new one")
        self._loop, began_s = asyncio.get_running_loop(), time.perf_counter()
        began_at = datetime.now(UTC)
        timeout = aiohttp.ClientTimeout(total=None, sock_read=self._timeout_s, sock_connect=self._timeout_s)
        asked = 0
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session, asyncio.TaskGroup() as group:
            for prompt, at_s in _paired(prompts, times_s):
                if await self._is_stopped_before(began_s + at_s):
                    break
                asked += 1
                clock = _Clock(began_at=began_at, began_s=began_s, intended_s=began_s + at_s)
                group.create_task(self._send(session, prompt, clock))
        return LoadReport(sent=tuple(self._records), asked=asked, duration_s=time.perf_counter() - began_s)

    async def _is_stopped_before(self, due_s: float) -> bool:
        wait_s = due_s - time.perf_counter()
        if wait_s <= 0:
            await asyncio.sleep(0)  # behind schedule: let the started ones leave
            return self._stop.is_set()
        try:
            async with asyncio.timeout(wait_s):
                await self._stop.wait()
        except TimeoutError:
            return False
        return True

    async def _send(self, session: aiohttp.ClientSession, prompt: Prompt, clock: "_Clock") -> None:
        answer = _Answer()
        body = {"max_tokens": 64, "temperature": 0.0, **prompt.options, "prompt": prompt.prompt}
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        headers = {"x-request-id": prompt.request_id, "x-specops-key": prompt.key or prompt.request_id}
        clock.sent_s = time.perf_counter()
        try:
            async with session.post(self._url, json=body, headers=headers) as response:
                answer.status, answer.arm = response.status, response.headers.get(ARM_HEADER)
                if response.status != 200:  # noqa: PLR2004
                    answer.error = f"http {response.status}: {(await response.read())[:200].decode('utf-8', 'replace')}"
                else:
                    async for line in response.content:
                        answer.feed(line)
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as exc:
            answer.error = answer.error or f"{type(exc).__name__}: {exc}"
        record = answer.record(prompt.request_id, clock, ended_s=time.perf_counter())
        self._records.append(record)
        if self._on_finished is not None:
            self._on_finished(record)


def _paired(prompts: Iterable[Prompt], times_s: Iterable[float]) -> Iterator[tuple[Prompt, float]]:
    return zip(prompts, times_s, strict=False)


@dataclass(slots=True, kw_only=True)
class _Clock:
    """Monotonic instants of one request, and the wall-clock time they hang on."""

    began_at: datetime
    began_s: float
    intended_s: float
    sent_s: float = 0.0

    def at(self, instant_s: float) -> datetime:
        return self.began_at + timedelta(seconds=instant_s - self.began_s)


@dataclass(slots=True)
class _Answer:
    """The stream of one answer, folded."""

    status: int = 0
    arm: str | None = None
    error: str | None = None
    is_done: bool = False
    finish: str | None = None
    first_s: float | None = None
    usage: dict[str, Any] = field(default_factory=dict)
    acceptance: Acceptance | None = None
    digest: Any = field(default_factory=hashlib.sha256)

    def feed(self, line: bytes) -> None:
        if not line.startswith(b"data:"):
            return
        payload = line[5:].strip()
        if payload == b"[DONE]":
            self.is_done = True
            return
        try:
            self._take(json.loads(payload))
        except (ValueError, KeyError, TypeError, AttributeError, InvalidRecord) as exc:
            self.error = self.error or f"malformed chunk {payload[:120]!r}: {exc!r}"

    def _take(self, event: dict[str, Any]) -> None:
        if "error" in event:
            self.error = self.error or f"error event: {event['error'].get('message')}"
            return
        for choice in event["choices"]:
            self.first_s = time.perf_counter() if self.first_s is None else self.first_s
            self.digest.update(str(choice.get("text") or "").encode())
            self.finish = choice.get("finish_reason") or self.finish
        self.usage = event.get("usage") or self.usage
        self.acceptance = acceptance_of(event.get("metrics")) or self.acceptance

    def record(self, request_id: str, clock: _Clock, *, ended_s: float) -> Sent:
        error = self.error
        if error is None and not (self.is_done and self.finish):
            error = "stream ended before [DONE]"
        return Sent(
            request_id=request_id, intended_at=clock.at(clock.intended_s), sent_at=clock.at(clock.sent_s),
            ended_at=clock.at(ended_s),
            first_byte_at=None if self.first_s is None else clock.at(self.first_s), status=self.status, arm=self.arm,
            finish=self.finish, prompt_tokens=int(self.usage.get("prompt_tokens", 0)),
            completion_tokens=int(self.usage.get("completion_tokens", 0)), acceptance=self.acceptance,
            text_sha256=self.digest.hexdigest() if error is None else None, error=error,
        )  # fmt: skip

