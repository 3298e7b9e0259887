"""One request to one engine: send it, hold the answer back until its first content, hand the bytes on, tell what came of it.

Used by `proxying` (live) and `shadow` (mirrored); it knows neither the client nor the route. Errors of the engine never
leave as exceptions: they are `failure`, one of the classes of `Outcome.error`.

A reset on a reused connection says nothing about the engine (it may just have closed an idle connection), so such a request
is sent once more on a fresh one. The bytes of the answer are not changed; only whole events are handed on, so that a broken
stream can be ended with a well-formed error event.
"""

import io
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from specops.core.outcome import Arm, Finish, Kind, Outcome
from specops.gateway.observation import BROKEN, EMPTY, Observation

CONNECT_S = 5.0  # TCP connect to an engine in the same network; longer means it is not there
UNREACHABLE, SERVER_ERROR, TIMEOUT, DISCONNECT = "engine_unreachable", "engine_5xx", "timeout", "client_disconnect"
_LARGE = 2**19
_CLIENT_ERRORS = range(400, 500)
_GOOD = range(200, 300)
_OPEN_CONNECTION_FAILURES = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
_FAILURES = (aiohttp.ClientError, OSError)  # TimeoutError is an OSError


@dataclass(frozen=True, slots=True, kw_only=True)
class Inbound:
    """A client's request as it came, read to its end. `arrived` is on `time.perf_counter`; `target` is path and query, raw."""

    request_id: str
    key: str
    method: str
    target: str
    headers: CIMultiDict[str]
    body: bytes
    arrived: float
    is_judged: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Leg:
    """Which way one exchange goes, fixed when it begins."""

    arm: Arm
    kind: Kind
    url: str
    release_id: str
    revision: int
    assigned: Arm
    retried_on_baseline: bool = False
    share: float | None = None
    is_shed: bool = False


class Sender:
    """The connections to the engines: a pool that can tell whether a connection was reused, and a way around it."""

    def __init__(self) -> None:
        self._pooled: aiohttp.ClientSession | None = None
        self._fresh: aiohttp.ClientSession | None = None

    def open(self) -> None:
        """Open the pool; needs a running event loop."""
        trace = aiohttp.TraceConfig()
        trace.on_connection_reuseconn.append(_note_reuse)
        self._pooled, self._fresh = _session([trace], force_close=False), _session([], force_close=True)

    async def close(self) -> None:
        """Close all connections."""
        for session in (self._pooled, self._fresh):
            if session is not None:
                await session.close()

    async def send(self, inbound: Inbound, url: str) -> aiohttp.ClientResponse:
        """Send and return once the status line and headers are here."""
        assert self._pooled is not None
        assert self._fresh is not None
        passage = SimpleNamespace(is_reused=False)
        whole: dict[str, Any] = {
            "url": URL(url.rstrip("/") + inbound.target, encoded=True),
            "headers": inbound.headers, "data": _payload(inbound.body),
            "allow_redirects": False,
        }  # fmt: skip
        try:
            return await self._pooled.request(inbound.method, trace_request_ctx=passage, **whole)
        except _OPEN_CONNECTION_FAILURES:
            raise
        except _FAILURES:
            if not passage.is_reused:
                raise
        return await self._fresh.request(inbound.method, **whole)


def _payload(body: bytes) -> bytes | io.BytesIO | None:
    return io.BytesIO(body) if len(body) > _LARGE else body or None  # aiohttp writes large bytes in one go, and warns


async def _note_reuse(_session: aiohttp.ClientSession, context: SimpleNamespace, _params: Any) -> None:  # noqa: ANN401
    context.trace_request_ctx.is_reused = True


def _session(traces: list[aiohttp.TraceConfig], *, force_close: bool) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, force_close=force_close),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
        auto_decompress=False,
        trace_configs=traces,
        cookie_jar=aiohttp.DummyCookieJar(),
        skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type", "User-Agent"),
    )


@dataclass(slots=True, kw_only=True)
class Exchange:
    """The state of one request on one leg.

    Attributes:
        failure: class of the engine's failure so far; None while all is well.
        is_aborted: the client left; set by the caller.
        is_cut: the answer ended early after some of it was handed on, and the client has not been told yet.
        body: the whole answer when it is not passed on piece by piece.
    """

    sender: Sender
    inbound: Inbound
    leg: Leg
    in_flight: int
    response: aiohttp.ClientResponse | None = None
    observation: Observation = field(default_factory=Observation)
    failure: str | None = None
    detail: str = ""
    is_aborted: bool = False
    is_cut: bool = False
    body: bytes | None = None
    first_byte_at: float | None = None
    _held: bytes = b""

    @property
    def is_void(self) -> bool:
        """There is nothing to hand on."""
        return self.response is None or (self.failure in {UNREACHABLE, BROKEN} and self.body is None and not self._held)

    async def open(self) -> None:
        """Send, and read until there is something to hand on: the first content of a stream, or a whole other answer."""
        try:
            self.response = await self.sender.send(self.inbound, self.leg.url)
            await self._read_head(self.response)
        except _FAILURES as exc:
            self._fail(UNREACHABLE if self.first_byte_at is None else BROKEN, exc)
        self._judge_head()

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the answer's bytes; a failure on the way ends them and sets `failure`."""
        assert self.response is not None
        if self._held:
            yield self._held
        try:
            while raw := await self.response.content.readany():
                if events := self._take(raw):
                    yield events
        except _FAILURES as exc:
            self._cut(exc)
            return
        if not self.inbound.is_judged:
            return
        self.observation.end()
        if not self.observation.done:  # what is left over is half an event
            self._cut(self.observation.detail)
        elif rest := self.observation.rest:
            yield rest

    def close(self) -> None:
        """Give the connection back, or cut it when the answer has not been read to its end: the engine then stops."""
        if self.response is not None:
            self.response.close()

    def outcome(self) -> Outcome:
        """Return the record of this exchange, ended now."""
        finish, error = self._finish()
        seen = self.observation
        first = seen.first_content_at if seen.first_content_at is not None else self.first_byte_at
        return Outcome(
            request_id=self.inbound.request_id, arm=self.leg.arm, kind=self.leg.kind, release_id=self.leg.release_id,
            at=datetime.now(UTC), finish=finish, error=error, e2e_s=time.perf_counter() - self.inbound.arrived,
            ttft_s=first - self.inbound.arrived if first is not None and seen.has_token else None,
            prompt_tokens=seen.prompt_tokens, completion_tokens=seen.completion_tokens, in_flight=self.in_flight,
            acceptance=seen.acceptance, text_sha256=seen.text_sha256,
            retried_on_baseline=self.leg.retried_on_baseline, assigned=self.leg.assigned,
            share=self.leg.share,
        )  # fmt: skip

    def _finish(self) -> tuple[Finish, str | None]:
        seen = self.observation
        if self.is_aborted and not seen.done:  # many clients hang up on [DONE]: that is no abort
            return Finish.ABORT, DISCONNECT
        if (self.response is not None and self.response.status in _CLIENT_ERRORS) or seen.is_rejected:
            return Finish.REJECTED, None
        if error := self.failure or seen.error or (None if seen.has_token else EMPTY):
            return Finish.ERROR, error
        known = {"length": Finish.LENGTH, "abort": Finish.ABORT}
        return known.get(seen.finish_reason or "", Finish.STOP), None

    async def _read_head(self, response: aiohttp.ClientResponse) -> None:
        if not self.inbound.is_judged:
            return
        if response.status not in _GOOD or response.content_type != "text/event-stream":
            await self._read_whole(response)
            return
        seen, events = self.observation, []
        while not (seen.has_token or seen.done or seen.error):
            raw = await response.content.readany()
            if not raw:
                if self.first_byte_at is not None:
                    seen.end()
                break
            events.append(self._take(raw))
        self._held = b"".join(events)

    async def _read_whole(self, response: aiohttp.ClientResponse) -> None:
        # a whole answer is of use to the client only as a whole, so reading it first costs nothing and allows a retry
        pieces = [await response.content.readany()]
        self.first_byte_at = time.perf_counter()
        while piece := await response.content.readany():
            pieces.append(piece)
        self.body = b"".join(pieces)
        if response.status in _GOOD and self.body:
            self.observation.read_whole(self.body, self.first_byte_at)

    def _judge_head(self) -> None:
        """Name what is wrong before the client has got anything; a rejection is an answer."""
        seen = self.observation
        if self.response is None or self.failure or not self.inbound.is_judged:
            return
        status = self.response.status
        if status in _CLIENT_ERRORS or seen.is_rejected:
            return
        if status not in _GOOD:
            self._fail(SERVER_ERROR, f"HTTP {status}")
        elif not seen.has_token:
            self._fail(seen.error or EMPTY, seen.detail or "HTTP 200 without any token")
        elif seen.error and self.body is not None:
            self._fail(seen.error, seen.detail)

    def _cut(self, cause: Exception | str) -> None:
        self.is_cut = not self.observation.has_error_event  # one error event is enough
        self._fail(BROKEN, cause)

    def _take(self, raw: bytes) -> bytes:
        at = time.perf_counter()
        if self.first_byte_at is None:
            self.first_byte_at = at
        return self.observation.feed(raw, at) if self.inbound.is_judged else raw

    def _fail(self, failure: str, cause: Exception | str) -> None:
        self.failure = failure
        self.detail = cause if isinstance(cause, str) else f"{type(cause).__name__}: {cause}"[:300]
