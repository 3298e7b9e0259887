"""The control plane's way to a gateway: synchronous, standard library only, connections kept alive.

Called by `control` through `wiring`. Every call may be repeated safely, so a stale connection is opened anew once. Polling
and commands use a connection each: a long poll never holds up a route.
"""

import http.client
import threading
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import urlencode, urlsplit

import orjson

from specops.core.outcome import Outcome
from specops.core.route import Route
from specops.errors import GatewayUnavailable, IllegalTransition, InvalidInput, InvalidRecord

TIMEOUT_S = 5.0  # beyond what the call itself may wait
_BAD_REQUEST, _CONFLICT = 400, 409
_FAILURES = (http.client.HTTPException, OSError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Outcomes fetched in one poll. Ask after `next` next time; `dropped` were lost in between.

    `tripped` says why the gateway fell back on its own, None while it follows its route.
    """

    epoch: str
    next: int
    dropped: int
    outcomes: tuple[Outcome, ...]
    tripped: str | None = None


@dataclass(slots=True)
class _Line:
    """One kept-alive connection, used by one thread at a time."""

    host: str
    port: int
    lock: threading.Lock = field(default_factory=threading.Lock)
    connection: http.client.HTTPConnection | None = None

    def call(self, method: str, path: str, body: bytes | None, timeout_s: float) -> tuple[int, bytes]:
        with self.lock:
            is_reused = self.connection is not None
            try:
                return self._call(method, path, body, timeout_s)
            except TimeoutError:
                self.close()
                raise
            except _FAILURES:
                self.close()
                if not is_reused:
                    raise
            try:
                return self._call(method, path, body, timeout_s)
            except _FAILURES:
                self.close()
                raise

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def _call(self, method: str, path: str, body: bytes | None, timeout_s: float) -> tuple[int, bytes]:
        if self.connection is None:
            self.connection = http.client.HTTPConnection(self.host, self.port)
        self.connection.timeout = timeout_s
        if self.connection.sock is not None:
            self.connection.sock.settimeout(timeout_s)
        self.connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
        response = self.connection.getresponse()
        return response.status, response.read()


class GatewayClient:
    """Calls the admin endpoints of one gateway; safe to share between threads."""

    def __init__(self, base_url: str, *, timeout_s: float = TIMEOUT_S) -> None:
        """Remember where the gateway is; nothing is opened yet.

        Raises:
            InvalidInput: the URL is not `http://host:port`.
        """
        parts = urlsplit(base_url)
        if parts.scheme != "http" or not parts.hostname:
            raise InvalidInput(f"gateway URL is {base_url!r}, expected http://host:port")
        self.base_url = base_url
        self._prefix = parts.path.rstrip("/")
        self._timeout_s = timeout_s
        self._commands = _Line(parts.hostname, parts.port or 80)
        self._polling = _Line(parts.hostname, parts.port or 80)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; a later call opens them again."""
        self._commands.close()
        self._polling.close()

    def put_route(self, route: Route) -> None:
        """Make the gateway follow a route; the same route twice is fine.

        Raises:
            GatewayUnavailable: no answer.
            IllegalTransition: the gateway has a higher revision, or another route of this one.
            InvalidRecord: the gateway refuses the route.
        """
        self._call(self._commands, "PUT", "/-/route", orjson.dumps(route.to_record()))

    def status(self) -> dict[str, Any]:
        """Return route, effective_weight, effective_mirror, tripped (reason or None), epoch and applied_at.

        Raises:
            GatewayUnavailable: no answer.
        """
        return self._call(self._commands, "GET", "/-/route")

    def poll(self, after: int, epoch: str | None, wait_s: float, *, limit: int = 500) -> Batch:
        """Return at most `limit` outcomes after `after`, waiting up to `wait_s` seconds (at most 60) for the first.

        Raises:
            GatewayUnavailable: no answer.
        """
        query = urlencode({"after": after, "wait_s": wait_s, "limit": limit} | ({"epoch": epoch} if epoch else {}))
        page = self._call(self._polling, "GET", f"/-/outcomes?{query}", wait_s=wait_s)
        outcomes = tuple(Outcome.from_record(record) for record in page["outcomes"])
        return Batch(
            epoch=page["epoch"], next=page["next"], dropped=page["dropped"], outcomes=outcomes, tripped=page.get("tripped")
        )

    def _call(self, line: _Line, method: str, path: str, body: bytes | None = None, *, wait_s: float = 0.0) -> dict[str, Any]:
        try:
            status, raw = line.call(method, self._prefix + path, body, self._timeout_s + wait_s)
        except _FAILURES as exc:
            raise GatewayUnavailable(f"the gateway at {self.base_url} does not answer: {exc!r}; is it running?") from exc
        return self._read(status, raw)

    def _read(self, status: int, raw: bytes) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = orjson.loads(raw)
        except orjson.JSONDecodeError as exc:
            raise GatewayUnavailable(f"{self.base_url} answered HTTP {status} without JSON; is it a gateway?") from exc
        if status < _BAD_REQUEST:
            return answer
        message = str((answer.get("error") or {}).get("message", raw[:200]))
        if status == _CONFLICT:
            raise IllegalTransition(message)
        if status == _BAD_REQUEST:
            raise InvalidRecord(message)
        raise GatewayUnavailable(f"the gateway at {self.base_url} answered HTTP {status}: {message}")
