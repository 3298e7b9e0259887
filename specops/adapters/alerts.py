"""Alerts for a person on call, in Alertmanager's v2 form, and a small receiver of the same form.

Called by the outbox after a verdict was committed; a lost alert never changes a verdict. What is told, and when it ends, is for
`control.alarms`; here it is checked, sent and received. An alert's identity is its label set.
Source: Alertmanager `api/v2/openapi.yaml`, `docs/alerts_api.md`.
"""

import contextlib
import json
import re
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

from specops.errors import InvalidInput, InvalidRecord, Unavailable

ALERTS_PATH = "/api/v2/alerts"
MAX_BODY_BYTES = 1 << 20
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One alert. `labels` are its identity; readings go into `annotations`. `ends_at` resolves it."""

    name: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str] = field(default_factory=dict)
    starts_at: datetime
    ends_at: datetime | None = None
    generator_url: str | None = None

    def __post_init__(self) -> None:
        """Check names and zones."""
        bad = [name for name in (*self.labels, *self.annotations) if not _LABEL.fullmatch(name)]
        if bad or "alertname" in self.labels or not self.name:
            raise InvalidRecord(
                f"alert {self.name!r} has bad label names {bad}; use [a-zA-Z_][a-zA-Z0-9_]*, alertname is the name"
            )
        if self.starts_at.tzinfo is None or (self.ends_at is not None and self.ends_at.tzinfo is None):
            raise InvalidRecord(f"alert {self.name} has a time without zone; use UTC")

    def resolved(self, at: datetime) -> "Alert":
        """Return the same alert, ended at a time; posting it closes the incident."""
        return replace(self, ends_at=at)

    def to_record(self) -> dict[str, Any]:
        """Return Alertmanager's postableAlert."""
        record: dict[str, Any] = {
            "labels": {"alertname": self.name, **self.labels},
            "annotations": dict(self.annotations),
            "startsAt": self.starts_at.isoformat(),
        }
        if self.ends_at is not None:
            record["endsAt"] = self.ends_at.isoformat()
        if self.generator_url is not None:
            record["generatorURL"] = self.generator_url
        return record

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        """Build an alert from a postableAlert (the outbox keeps them as JSON).

        Raises:
            InvalidRecord: a field is missing or malformed.

        """
        problem = fault(record)
        if problem is not None:
            raise InvalidRecord(f"not an alert: {problem}")
        labels = dict(record["labels"])
        ends_at = record.get("endsAt")
        return cls(
            name=labels.pop("alertname"),
            labels=labels,
            annotations=dict(record.get("annotations") or {}),
            starts_at=datetime.fromisoformat(record["startsAt"]),
            ends_at=datetime.fromisoformat(ends_at) if ends_at else None,
            generator_url=record.get("generatorURL"),
        )


def post(url: str, alerts: Sequence[Alert], timeout_s: float = 5.0) -> None:
    """Send alerts to an Alertmanager, which takes repeats of the same alert as one.

    Args:
        url: base URL of the Alertmanager, with or without `/api/v2/alerts`.
        alerts: what to send; with `ends_at`, resolved.
        timeout_s: seconds to wait for connection and answer.

    Raises:
        InvalidInput: the URL is not http or https.
        Unavailable: it did not answer, or did not accept; the caller keeps the alerts and tries again.

    """
    if not url.startswith(("http://", "https://")):
        raise InvalidInput(f"alert URL {url!r} is neither http nor https; give the Alertmanager's base URL")
    address = url if url.endswith(ALERTS_PATH) else url.rstrip("/") + ALERTS_PATH
    body = json.dumps([alert.to_record() for alert in alerts]).encode()
    request = urllib.request.Request(address, data=body, headers={"Content-Type": "application/json"}, method="POST")  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=timeout_s):  # noqa: S310  # scheme checked above
            return
    except urllib.error.HTTPError as exc:
        with exc:
            said = exc.read(500).decode(errors="replace")
        raise Unavailable(f"alert receiver {address} answered {exc.code}: {said}; {len(alerts)} alerts kept") from exc
    except (OSError, ValueError) as exc:
        raise Unavailable(f"alert receiver {address} did not answer: {exc}; {len(alerts)} alerts kept") from exc


class Receiver:
    """An on-call receiver: accepts what an Alertmanager accepts, and appends it to a JSON Lines file.

    Use as a context manager; it listens on 127.0.0.1 at a free port (`url`) from `__enter__` to `__exit__`.
    """

    def __init__(self, log: Path, *, port: int = 0) -> None:
        """Bind the port; alerts go to the file `log`, one object with `received_at` and `alert` a line."""
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", port), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    @property
    def url(self) -> str:
        """Base URL to post to."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        """Start to listen."""
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Stop and close the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def store(self, alerts: Sequence[Mapping[str, Any]]) -> None:
        """Append alerts to the log; flushed before the sender hears that they arrived."""
        received_at = datetime.now(UTC).isoformat()
        lines = "".join(json.dumps({"received_at": received_at, "alert": alert}, sort_keys=True) + "\n" for alert in alerts)
        with self._lock, self.log.open("a", encoding="utf-8") as file:
            file.write(lines)

    def received(self) -> tuple[Alert, ...]:
        """Return every alert stored so far, oldest first."""
        if not self.log.exists():
            return ()
        lines = self.log.read_text(encoding="utf-8").splitlines()
        return tuple(Alert.from_record(json.loads(line)["alert"]) for line in lines)


def fault(record: object) -> str | None:
    """Return what is wrong with a postableAlert in plain words, or None."""
    if not isinstance(record, Mapping):
        return f"alert is {type(record).__name__}, expected an object"
    labels = record.get("labels")
    if not _is_text_map(labels) or not cast("dict[str, str]", labels).get("alertname"):
        return "labels must map label names to texts and hold alertname"
    if not _is_text_map(record.get("annotations") or {}):
        return "annotations must map label names to texts"
    unknown = set(record) - {"labels", "annotations", "startsAt", "endsAt", "generatorURL"}
    if unknown:
        return f"unknown fields {sorted(unknown)}"
    bad_times = [name for name in ("startsAt", "endsAt") if name in record and not _is_time(record[name])]
    return f"{' and '.join(bad_times)} must be RFC 3339 with zone" if bad_times else None


def _is_text_map(value: object) -> bool:
    """Return whether a value maps valid label names to texts."""
    return isinstance(value, Mapping) and all(
        isinstance(name, str) and _LABEL.fullmatch(name) and isinstance(text, str) for name, text in value.items()
    )


def _is_time(value: object) -> bool:
    """Return whether a value is an RFC 3339 time with zone."""
    with contextlib.suppress(ValueError):
        return isinstance(value, str) and datetime.fromisoformat(value).tzinfo is not None
    return False


def _handler(receiver: Receiver) -> type[BaseHTTPRequestHandler]:
    """Return a request handler bound to a receiver."""

    class Handler(BaseHTTPRequestHandler):
        """Speaks POST /api/v2/alerts and GET /-/healthy."""

        def do_GET(self) -> None:  # named by http.server
            """Say that the receiver is up."""
            self._answer(200, "OK") if self.path == "/-/healthy" else self._answer(404, "not found")

        def do_POST(self) -> None:
            """Validate and store a batch."""
            length = int(self.headers.get("Content-Length") or 0)
            if length > MAX_BODY_BYTES:
                self.close_connection = True
                return self._answer(413, f"body of {length} bytes is more than {MAX_BODY_BYTES}")
            body = self.rfile.read(length)
            if self.path != ALERTS_PATH:
                return self._answer(404, f"not found; post to {ALERTS_PATH}")
            status, said = _accept(receiver, body)
            return self._answer(status, said)

        def _answer(self, status: int, said: str) -> None:
            """Send a JSON text."""
            body = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # signature of http.server
            """Stay silent; the JSON Lines file is the log."""

    return Handler


def _accept(receiver: Receiver, body: bytes) -> tuple[int, str]:
    """Return status and message for a body; 400 is no JSON, 422 the wrong shape, as Alertmanager does."""
    try:
        alerts = json.loads(body)
    except ValueError as exc:
        return 400, f"body is not JSON: {exc}"
    if not isinstance(alerts, list):
        return 422, f"body is {type(alerts).__name__}, expected an array of alerts"
    faults = [f"alert {i}: {said}" for i, said in enumerate(map(fault, alerts)) if said]
    if faults:
        return 422, "; ".join(faults)
    receiver.store([{"startsAt": datetime.now(UTC).isoformat(), **alert} for alert in alerts])
    return 200, "accepted"
