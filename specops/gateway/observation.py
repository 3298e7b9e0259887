"""What one answer said, read on the side from the bytes that pass: usage, finish reason, acceptance, digest of the text.

Used by `exchange`, which forwards the same bytes untouched. It decides only what the answer is (complete, malformed, empty);
what to do about it belongs to `proxying` and `routing`. Fed with raw network chunks: an event, or a UTF-8 character, may be
cut anywhere. Holds no text: one running hash per choice. Dialect: vLLM's completions and chat completions (text/event-
stream, or one JSON body).
"""

import hashlib
import json
import re
from typing import Any

import orjson

from specops.core.outcome import Acceptance
from specops.errors import InvalidRecord

MALFORMED = "malformed_stream"
BROKEN = "broken_stream"
EMPTY = "empty_answer"
NAN_TEXT = "nan_text"
MAX_BANGS = 64  # of an answer of nothing else: what the argmax of NaN, token 0, reads as in most vocabularies
MAX_EVENT_BYTES = 16 * 2**20  # prompt logprobs reach megabytes; beyond this it is no event stream

_BLANK_LINE = re.compile(rb"(?:\r\n|\n|\r(?!\n))(?:\r\n|\n|\r(?!\n))")
_LOOK_BACK = 3  # longest terminator is 4 bytes: at most 3 of them came with the last chunk
_CLIENT_CODES = range(400, 500)


class EventSplitter:
    """Cuts a byte stream into whole server-sent events; the unfinished rest waits."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = bytearray()

    @property
    def rest(self) -> bytes:
        """The bytes after the last whole event."""
        return bytes(self._buffer)

    def feed(self, raw: bytes) -> list[bytes]:
        """Return the events completed by these bytes, each with its terminating blank line.

        Raises:
            ValueError: the unfinished event exceeds MAX_EVENT_BYTES.
        """
        search_from = max(0, len(self._buffer) - _LOOK_BACK)
        self._buffer += raw
        events: list[bytes] = []
        start = 0
        for end in _BLANK_LINE.finditer(self._buffer, search_from):
            events.append(bytes(self._buffer[start : end.end()]))
            start = end.end()
        del self._buffer[:start]
        if len(self._buffer) > MAX_EVENT_BYTES:
            raise ValueError(f"an event exceeds {MAX_EVENT_BYTES} bytes")
        return events


def event_data(event: bytes) -> bytes | None:
    """Return the data of one event, its `data:` lines joined by newlines; None for comments and empty events."""
    lines = [line[5:].removeprefix(b" ") for line in event.splitlines() if line.startswith(b"data:")]
    return b"\n".join(lines) if lines else None


def _part(choice: dict[str, Any]) -> dict[str, Any]:
    return choice.get("delta") or choice.get("message") or {}


def choice_text(choice: dict[str, Any]) -> str:
    """Return the text of one choice, of a completion or a chat completion; empty when it has none."""
    return choice.get("text") or _part(choice).get("content") or ""


def is_plain(choice: dict[str, Any]) -> bool:
    """Tell whether a choice is the first and holds only text, role and finish: no tool call, reasoning, token ids, logprobs."""
    if choice.get("index") or choice.get("token_ids") or choice.get("logprobs"):
        return False
    return not any(held for name, held in _part(choice).items() if name not in {"role", "content"})


class Observation:
    """What is known of one answer so far. Times are seconds on the caller's monotonic clock.

    Attributes:
        first_content_at: when the first content arrived; None before.
        has_token: any token came, also one without text (usage counts it).
        done: the answer says that it is complete (`data: [DONE]`, or a whole JSON body).
        error: `malformed_stream`, `broken_stream` or `nan_text` once seen; sticks.
        has_error_event: the engine put an error into the stream itself.
        is_rejected: the engine sent an error of class 4xx inside the stream.
        has_bad_counts: the engine's acceptance counts contradict each other and were left out.
        has_usage_event: the event with the usage of the whole answer came.
        text_chars: characters (code points) of text so far, all choices together.
        is_plain: nothing but the text of one choice came so far (and roles, finish reason, usage).
    """

    __slots__ = (
        "_bangs", "_choices", "_splitter", "acceptance", "completion_tokens", "detail", "done", "error", "finish_reason",
        "first_content_at", "has_bad_counts", "has_error_event", "has_token", "has_usage_event", "is_plain", "is_rejected",
        "prompt_tokens", "text_chars",
    )  # fmt: skip

    def __init__(self) -> None:
        self._splitter = EventSplitter()
        self._choices: dict[int, Any] = {}
        self._bangs: dict[int, int] = {}  # length so far of choices that hold nothing else
        self.first_content_at: float | None = None
        self.has_token = self.done = self.is_rejected = self.has_bad_counts = self.has_error_event = False
        self.has_usage_event = False
        self.is_plain = True
        self.text_chars = 0
        self.error: str | None = None
        self.detail = ""
        self.finish_reason: str | None = None
        self.prompt_tokens = self.completion_tokens = 0
        self.acceptance: Acceptance | None = None

    @property
    def rest(self) -> bytes:
        """Bytes of an unfinished event, not yet handed out by `feed`."""
        return self._splitter.rest

    @property
    def text_sha256(self) -> str | None:
        """SHA-256 of the text; with several choices, of their digests in order. None when no choice came."""
        digests = [self._choices[index].hexdigest() for index in sorted(self._choices)]
        return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest() if digests else None

    def feed(self, raw: bytes, at: float) -> bytes:
        """Take a raw chunk of an event stream that arrived at `at`; return the bytes that complete events, unchanged."""
        try:
            events = self._splitter.feed(raw)
        except ValueError as exc:
            self._fail(MALFORMED, str(exc))
            return b""
        for event in events:
            self._read_event(event, at)
        return b"".join(events)

    def end(self) -> None:
        """Note that the stream has ended: without `[DONE]` it is broken."""
        if not self.done:
            self._fail(BROKEN, "the stream ended without [DONE]")

    def read_whole(self, body: bytes, first_byte_at: float) -> None:
        """Take a whole JSON answer whose first byte arrived at `first_byte_at`."""
        self._read_json(body, first_byte_at)
        self.done = True

    def _fail(self, error: str, detail: str) -> None:
        if self.error is None:
            self.error, self.detail = error, detail

    def _read_event(self, event: bytes, at: float) -> None:
        data = event_data(event)
        if data is None:
            return
        if data.strip() == b"[DONE]":
            self.done = True
            return
        self._read_json(data, at)

    def _read_json(self, raw: bytes, at: float) -> None:
        try:
            value = orjson.loads(raw)  # refuses NaN and Infinity, which are no JSON
            self._read_value(value, at)
        except (orjson.JSONDecodeError, TypeError, ValueError, AttributeError) as exc:
            if _has_nan(raw):
                self._fail(NAN_TEXT, "a number of the answer is NaN")
            else:
                self._fail(MALFORMED, f"{type(exc).__name__}: {exc}")

    def _read_value(self, value: dict[str, Any], at: float) -> None:
        if value.get("error"):
            self._read_error(value["error"])
            return
        for choice in value.get("choices") or ():
            self._read_choice(choice, at)
        usage = value.get("usage")
        if usage:
            self.has_usage_event = self.has_usage_event or not value.get("choices")
            self.prompt_tokens, self.completion_tokens = _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")
            self.has_token = self.has_token or self.completion_tokens > 0
        counts = (value.get("metrics") or {}).get("speculative_decoding")
        if counts:
            self._read_counts(counts)

    def _read_error(self, error: Any) -> None:  # noqa: ANN401  # engines send objects or strings
        self.has_error_event = True
        code = error.get("code") if isinstance(error, dict) else None
        self.is_rejected = self.is_rejected or code in _CLIENT_CODES
        self._fail(BROKEN, f"the engine reported an error: {str(error)[:200]}")

    def _read_choice(self, choice: dict[str, Any], at: float) -> None:
        part = _part(choice)
        text = choice_text(choice)
        index = int(choice.get("index", 0))
        if index not in self._choices:
            self._choices[index], self._bangs[index] = hashlib.sha256(), 0
        self._choices[index].update(text.encode())
        self.text_chars += len(text)
        if index in self._bangs:
            self._count_bangs(index, text)
        self.is_plain = self.is_plain and is_plain(choice)
        # tool calls, reasoning and bare token ids are content too, though not text
        if text or choice.get("token_ids") or any(held for name, held in part.items() if name != "role"):
            self.has_token = True
            if self.first_content_at is None:
                self.first_content_at = at
        self.finish_reason = choice.get("finish_reason") or self.finish_reason

    def _count_bangs(self, index: int, text: str) -> None:
        if text.strip("!"):
            del self._bangs[index]
            return
        self._bangs[index] += len(text)
        if self._bangs[index] >= MAX_BANGS:
            self._fail(NAN_TEXT, f"the answer is {self._bangs[index]} times '!' and nothing else")

    def _read_counts(self, counts: dict[str, Any]) -> None:
        try:
            self.acceptance = Acceptance(
                rounds=_count(counts, "num_spec_steps"),
                drafted=_count(counts, "num_draft_tokens"),
                accepted=_count(counts, "num_accepted_draft_tokens"),
                histogram=tuple(counts.get("acceptance_histogram") or ()),
            )
        except (InvalidRecord, TypeError, ValueError):  # the text is good all the same: leave the counts out, and say so
            self.has_bad_counts = True


def _has_nan(raw: bytes) -> bool:
    """Tell whether this would be JSON if NaN were a number."""
    seen: list[str] = []
    try:
        json.loads(raw, parse_constant=seen.append)
    except (ValueError, RecursionError):
        return False
    return "NaN" in seen


def _count(record: dict[str, Any], name: str) -> int:
    value = record.get(name) or 0
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"{name} is {value!r}, expected a count")
    return value
