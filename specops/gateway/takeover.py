"""A greedy stream of the candidate that broke off is finished by the baseline: may it be, where does it join, what goes on.

Called by `proxying` once the candidate's stream is cut after some text was delivered. At temperature 0 both arms produce the
same text (speculation keeps the target's greedy choice), so the baseline can be asked again and the text that the client has
already got be left out of its answer. The gateway keeps no text, only its length and SHA-256; they decide:

1. Only what is greedy and plain text is taken over (`is_replayable`, `Cut`).
2. The baseline's first characters must have the digest of those delivered; otherwise nothing of it reaches the client.
3. Events wholly covered are dropped, the one across the boundary is shortened, all later bytes pass untouched.

What ends the stream when this fails, and the outcomes, belong to `proxying`. See docs/decisions/0007-greedy-takeover.md.
"""

import hashlib
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

import orjson
from aiohttp import web

from specops.core.outcome import Arm
from specops.gateway.exchange import UNREACHABLE, Exchange
from specops.gateway.observation import BROKEN, EventSplitter, choice_text, event_data, is_plain

_DONE = b"[DONE]"
_MORE_THAN_TEXT = ("return_token_ids", "logprobs", "top_logprobs", "prompt_logprobs", "use_beam_search")
_MALFORMED = (ValueError, TypeError, AttributeError, KeyError)  # JSON that is not shaped like an answer


class Result(StrEnum):
    """How a takeover ended."""

    COMPLETE = "complete"
    MISMATCH = "mismatch"
    FAILED = "failed"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Where the candidate's stream broke off: what the client has got, and the response that is still open to it.

    Attributes:
        text_chars: characters (code points) of text delivered.
        text_sha256: their digest.
        finish_reason: delivered already, if at all.
        has_usage: the usage event was delivered already.
        failure: class of the candidate's failure.
        detail: what is known of it.
    """

    response: web.StreamResponse
    text_chars: int
    text_sha256: str
    finish_reason: str | None
    has_usage: bool
    failure: str
    detail: str

    @classmethod
    def of(cls, exchange: Exchange, response: web.StreamResponse) -> Self | None:
        """Describe the cut; None when the baseline must not finish this answer."""
        seen, digest = exchange.observation, exchange.observation.text_sha256
        if not exchange.is_cut or exchange.leg.arm is not Arm.CANDIDATE or exchange.failure not in {UNREACHABLE, BROKEN}:
            return None
        if digest is None or not seen.is_plain or seen.error not in {None, BROKEN} or not is_replayable(exchange.inbound.body):
            return None
        return cls(
            response=response, text_chars=seen.text_chars, text_sha256=digest, finish_reason=seen.finish_reason,
            has_usage=seen.has_usage_event, failure=exchange.failure, detail=exchange.detail,
        )  # fmt: skip


def is_replayable(body: bytes) -> bool:
    """Tell whether a second run of this request gives the same plain text: streamed, greedy, one answer, nothing but text."""
    try:
        asked = orjson.loads(body)
    except orjson.JSONDecodeError:
        return False
    if not isinstance(asked, dict) or asked.get("stream") is not True:
        return False
    if any(asked.get(name) is not None and asked[name] is not False for name in _MORE_THAN_TEXT):
        return False  # logprobs=0 asks for them too
    return _is_number(asked.get("temperature"), 0) and _is_single(asked)


def _is_number(value: object, wanted: int) -> bool:
    return not isinstance(value, bool) and isinstance(value, int | float) and value == wanted


def _is_single(asked: dict[str, Any]) -> bool:
    prompt = asked.get("prompt")
    is_batch = isinstance(prompt, list) and not all(isinstance(item, int) for item in prompt)
    return not is_batch and all(asked.get(name) is None or _is_number(asked[name], 1) for name in ("n", "best_of"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a takeover ended, and what the client must still be told; empty when it has got its ending."""

    result: Result
    problem: str = ""


async def resume(cut: Cut, exchange: Exchange) -> Ending:
    """Write the rest of the answer from the baseline's `exchange` to the open response; its end is left to the caller.

    Raises:
        ConnectionResetError: the client has left.
    """
    await exchange.open()
    if exchange.failure or exchange.response is None or exchange.body is not None:
        return Ending(result=Result.FAILED, problem=exchange.detail or "the baseline did not answer with a stream")
    splice = Splice(cut)
    async for piece in exchange.chunks():
        try:
            rest = splice.take(piece)
        except _MALFORMED as exc:
            exchange.is_aborted = True  # we hang up: its answer is of no use, which says nothing about the baseline
            return Ending(result=Result.MISMATCH, problem=f"the baseline's answer does not continue it: {exc}")
        if rest:
            await cut.response.write(rest)
    if exchange.is_cut:
        return Ending(result=Result.FAILED, problem=exchange.detail)
    return Ending(result=Result.FAILED if exchange.observation.error else Result.COMPLETE)


class Splice:
    """Joins the baseline's stream to what the client has got of the candidate's."""

    __slots__ = ("_cut", "_digest", "_is_joined", "_left", "_splitter")

    def __init__(self, cut: Cut) -> None:
        self._cut = cut
        self._left = cut.text_chars
        self._digest = hashlib.sha256()
        self._splitter = EventSplitter()
        self._is_joined = False

    def take(self, piece: bytes) -> bytes:
        """Return what the client lacks of these bytes, cut anywhere; everything once the streams are joined.

        Raises:
            ValueError: the baseline's answer is not the one that was begun.
        """
        if self._is_joined:
            return piece
        lacking = b"".join([self._take_event(event) for event in self._splitter.feed(piece)])
        return lacking + self._splitter.rest if self._is_joined else lacking

    def _take_event(self, event: bytes) -> bytes:
        data = event_data(event)
        if self._is_joined or data is None:
            return event
        value = {} if data.strip() == _DONE else orjson.loads(data)
        if value.get("error"):
            raise ValueError("it reports an error")
        if value.get("choices"):
            return self._take_choice(event, value)
        if self._left:
            raise ValueError("it is shorter than the text delivered")
        if self._cut.has_usage and value.get("usage"):
            return b""
        self._is_joined = True
        return event

    def _take_choice(self, event: bytes, value: dict[str, Any]) -> bytes:
        [choice] = value["choices"]
        is_whole = self._left == 0
        rest = self._uncovered(choice)
        if rest is None:
            return b""
        self._is_joined = True
        return event if is_whole else _rewritten(event, value, choice, rest)

    def _uncovered(self, choice: dict[str, Any]) -> str | None:
        """Return the text of this choice that was not delivered; None when the client has got all that it says."""
        text, finish = choice_text(choice), choice.get("finish_reason")
        covered = text[: self._left]
        self._digest.update(covered.encode())
        self._left -= len(covered)
        if self._left:
            if finish or not is_plain(choice):
                raise ValueError("it ends, or is more than text, before the end of the text delivered")
            return None
        if self._digest.hexdigest() != self._cut.text_sha256:
            raise ValueError("its text differs from the text delivered")
        rest = text[len(covered) :]
        if self._cut.finish_reason and (rest or finish not in {None, self._cut.finish_reason}):
            raise ValueError(f"it goes on where the text delivered ended with {self._cut.finish_reason}")
        has_news = rest or not is_plain(choice) or (finish and not self._cut.finish_reason)
        return rest if has_news else None


def _rewritten(event: bytes, value: dict[str, Any], choice: dict[str, Any], rest: str) -> bytes:
    """Return the event with its text shortened to the rest, and all else but the role, which was delivered."""
    if "text" in choice:
        choice["text"] = rest
    else:
        choice["delta"].pop("role", None)
        choice["delta"]["content"] = rest
    others = [line + b"\n" for line in event.splitlines() if line and not line.startswith(b"data:")]
    return b"".join([*others, b"data: ", orjson.dumps(value), b"\n\n"])
