"""vLLM's HTTP dialect as values: request bodies become a `Call`, answers become the JSON that vLLM would send.

A parameter that changes text and is not implemented here is refused with HTTP 400, never ignored. Pure: no sockets, no model.
Source: vLLM 0.32 entrypoints/openai (completion and chat protocols) and docs/features/speculative_decoding/acceptance_metrics.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from specops.core.outcome import Acceptance, Finish

DEFAULT_MAX_TOKENS = 16  # vLLM's default for /v1/completions
MAX_STOPS = 16
_NEUTRAL: dict[str, tuple[Any, ...]] = {  # values that change nothing; any other value of these is refused
    "n": (1,), "best_of": (1,), "echo": (False,), "suffix": ("",), "logprobs": (False,), "top_logprobs": (),
    "prompt_logprobs": (),
    "presence_penalty": (0, 0.0), "frequency_penalty": (0, 0.0), "repetition_penalty": (1, 1.0), "logit_bias": ({},),
    "min_tokens": (0,), "bad_words": ([],), "allowed_token_ids": (), "use_beam_search": (False,),
    "response_format": ({"type": "text"},), "structured_outputs": (), "guided_json": (), "guided_regex": (),
    "guided_choice": (),
    "guided_grammar": (), "tools": ([],), "tool_choice": ("none",), "prompt_embeds": (),
}  # fmt: skip


class Refused(Exception):  # an answer to a client, not an error of ours
    """A request that is answered with an error body instead of tokens."""

    def __init__(self, message: str, *, status: int = 400, kind: str = "BadRequestError", param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.param = param

    def body(self) -> dict[str, Any]:
        """Return vLLM's error object."""
        return {"error": {"message": str(self), "type": self.kind, "param": self.param, "code": self.status}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a served model can take."""

    model_name: str
    max_model_len: int
    vocab_size: int
    is_speculative: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One checked request."""

    prompt_ids: tuple[int, ...]
    max_tokens: int
    temperature: float
    top_p: float
    top_k: int
    seed: int | None
    stop: tuple[str, ...]
    stop_token_ids: tuple[int, ...]
    ignore_eos: bool
    is_stream: bool
    include_usage: bool
    return_token_ids: bool
    is_chat: bool


def parse(body: object, *, is_chat: bool, limits: Limits, encode: Callable[[str], list[int]]) -> Call:
    """Check a request body.

    Args:
        body: the decoded JSON.
        is_chat: whether it came to /v1/chat/completions.
        limits: what the served model can take.
        encode: text to token ids, special tokens as the tokenizer's own template adds them.

    Raises:
        Refused: with the status and the message that vLLM would give.
    """
    if not isinstance(body, dict):
        raise Refused(f"request body must be a JSON object, got {type(body).__name__}")
    if body.get("model") not in (None, "", limits.model_name):
        raise Refused(f"The model `{body['model']}` does not exist.", status=404, kind="NotFoundError", param="model")
    temperature = _number(body, "temperature", 1.0, low=0.0, high=100.0)
    _refuse_unsupported(body, temperature=temperature, limits=limits)
    prompt_ids = _prompt(body, is_chat=is_chat, limits=limits, encode=encode)
    options = body.get("stream_options") or {}
    if not isinstance(options, dict):
        raise Refused("stream_options must be an object", param="stream_options")
    return Call(
        prompt_ids=prompt_ids,
        max_tokens=_max_tokens(body, len(prompt_ids), is_chat=is_chat, limits=limits),
        temperature=temperature,
        top_p=_number(body, "top_p", 1.0, low=1e-9, high=1.0),
        top_k=max(0, _integer(body, "top_k", 0, low=-1) or 0),
        seed=_integer(body, "seed", None, low=-(2**63)),
        stop=_stops(body.get("stop")),
        stop_token_ids=tuple(_ids(body.get("stop_token_ids") or [], limits, param="stop_token_ids")),
        ignore_eos=_flag(body, "ignore_eos"),
        is_stream=_flag(body, "stream"),
        include_usage=_flag(options, "include_usage"),
        return_token_ids=_flag(body, "return_token_ids"),
        is_chat=is_chat,
    )


def text_field(body: object, name: str) -> str:
    """Return a string field of a body.

    Raises:
        Refused: it is not there.
    """
    value = body.get(name) if isinstance(body, dict) else None
    if not isinstance(value, str):
        raise Refused(f"{name} must be a string", param=name)
    return value


def token_field(body: object, name: str, limits: Limits) -> list[int]:
    """Return a field of token ids of a body.

    Raises:
        Refused: it is not there, or an id is outside the vocabulary.
    """
    return _ids(body.get(name) if isinstance(body, dict) else None, limits, param=name)


def _refuse_unsupported(body: dict[str, Any], *, temperature: float, limits: Limits) -> None:
    # vLLM zeroes min_p for greedy requests before it looks, so it passes there.
    min_p = _number(body, "min_p", 0.0, low=0.0, high=1.0) if temperature > 0 else 0.0
    biased = bool(body.get("logit_bias"))
    if limits.is_speculative and (min_p > 0 or biased):
        raise Refused("The min_p and logit_bias sampling parameters are not yet supported with speculative decoding.")
    if min_p > 0:
        raise Refused("min_p is not supported by this engine; drop it", param="min_p")
    for name, neutral in _NEUTRAL.items():
        value = body.get(name)
        if value is not None and not any(type(value) is type(other) and value == other for other in neutral):
            raise Refused(f"{name}={value!r} is not supported by this engine; drop it", param=name)


def _prompt(body: dict[str, Any], *, is_chat: bool, limits: Limits, encode: Callable[[str], list[int]]) -> tuple[int, ...]:
    prompt = _chat_text(body.get("messages")) if is_chat else body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, str):
        ids = encode(prompt)
    elif isinstance(prompt, list):
        ids = _ids(prompt, limits, param="prompt")
    else:
        raise Refused(f"prompt must be a string or a list of token ids, got {type(prompt).__name__}", param="prompt")
    if not ids:
        raise Refused("The decoder prompt cannot be empty", param="prompt")
    return tuple(ids)


def _ids(values: object, limits: Limits, *, param: str) -> list[int]:
    if not isinstance(values, list) or any(type(value) is not int for value in values):
        raise Refused(f"{param} must be one list of token ids; this engine takes one prompt per request", param=param)
    outside = [value for value in values if not 0 <= value < limits.vocab_size]
    if outside:
        raise Refused(f"Token id {outside[0]} is out of vocabulary (size {limits.vocab_size})", param=param)
    return values


def _chat_text(messages: object) -> str:
    """Join messages by the plain template `role: text`, one a line, and open the assistant's turn."""
    if not isinstance(messages, list) or not messages:
        raise Refused("messages must be a list with at least one message", param="messages")
    return "\n".join([*(_turn(message) for message in messages), "assistant:"])


def _turn(message: object) -> str:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise Refused("every message needs a role and a content", param="messages")
    content = message.get("content")
    if isinstance(content, list):
        if any(not isinstance(part, dict) or part.get("type") != "text" for part in content):
            raise Refused("only text parts are supported in messages", param="messages")
        content = "\n".join(str(part.get("text", "")) for part in content)
    if not isinstance(content, str):
        raise Refused(f"message content must be text, got {type(content).__name__}", param="messages")
    return f"{message['role']}: {content}"


def _max_tokens(body: dict[str, Any], prompt_tokens: int, *, is_chat: bool, limits: Limits) -> int:
    room = limits.max_model_len - prompt_tokens
    if room < 1:
        raise Refused(
            f"This model's maximum context length is {limits.max_model_len} tokens. However, your prompt contains "
            f"{prompt_tokens} tokens and leaves no room for an answer. Please shorten it.", param="prompt",
        )  # fmt: skip
    asked = _integer(body, "max_completion_tokens", None, low=1) if is_chat else None
    if asked is None:
        asked = _integer(body, "max_tokens", None, low=1)
    if asked is None:
        return room if is_chat else min(room, DEFAULT_MAX_TOKENS)
    if asked > room:
        raise Refused(
            f"This model's maximum context length is {limits.max_model_len} tokens. However, you requested {asked} output "
            f"tokens and your prompt contains {prompt_tokens} tokens. Please reduce one of them.", param="max_tokens",
        )  # fmt: skip
    return asked


def _stops(value: object) -> tuple[str, ...]:
    stops = [value] if isinstance(value, str) else (value or [])
    if not isinstance(stops, list) or any(not isinstance(stop, str) or not stop for stop in stops) or len(stops) > MAX_STOPS:
        raise Refused(f"stop must be up to {MAX_STOPS} strings that are not empty", param="stop")
    return tuple(stops)


def _number(body: dict[str, Any], name: str, default: float, *, low: float, high: float) -> float:
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise Refused(f"{name} must be a number in [{low:g}, {high:g}], got {value!r}", param=name)
    return float(value)


def _integer(body: dict[str, Any], name: str, default: int | None, *, low: int) -> int | None:
    value = body.get(name)
    if value is None:
        return default
    if type(value) is not int or not low <= value < 2**63:
        raise Refused(f"{name} must be at least {low}, got {value!r}.", param=name)
    return value


def _flag(body: dict[str, Any], name: str) -> bool:
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise Refused(f"{name} must be true or false, got {value!r}", param=name)
    return bool(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """One round as the client sees it; `finish` is set on the last one."""

    text: str
    token_ids: tuple[int, ...]
    finish: Finish | None = None
    stop_reason: str | int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Times of one ended request, in seconds. `ttft_s` counts from admission (vLLM's per-request meaning), not from arrival."""

    queue_s: float
    ttft_s: float
    decode_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Who is answering: the constant part of every body of one answer."""

    id: str
    model: str
    created: int
    call: Call

    def whole(self, delta: Delta, *, usage: dict[str, int], metrics: dict[str, Any]) -> dict[str, Any]:
        """Return the body of an answer that is not streamed."""
        text: dict[str, Any] = {"text": delta.text}
        if self.call.is_chat:
            text = {"message": {"role": "assistant", "content": delta.text}}
        choice = {"index": 0, **text, **self._ending(delta), **self._ids(delta, is_first=True)}
        return self._head(is_chunk=False) | {"choices": [choice], "usage": usage, "metrics": metrics}

    def chunk(self, delta: Delta, *, is_first: bool) -> dict[str, Any]:
        """Return the body of one streamed round."""
        text: dict[str, Any] = {"text": delta.text}
        if self.call.is_chat:
            text = {"delta": ({"role": "assistant"} if is_first else {}) | {"content": delta.text}}
        choice = {"index": 0, **text, **self._ending(delta), **self._ids(delta, is_first=is_first)}
        return self._head(is_chunk=True) | {"choices": [choice]}

    def last(self, *, usage: dict[str, int], metrics: dict[str, Any]) -> dict[str, Any]:
        """Return the usage chunk: no choices; nulls of the metrics are dropped, as in vLLM."""
        kept = {key: value for key, value in metrics.items() if value is not None}
        if speculation := kept.get("speculative_decoding"):
            kept["speculative_decoding"] = {key: value for key, value in speculation.items() if value is not None}
        return self._head(is_chunk=True) | {"choices": [], "usage": usage, "metrics": kept}

    def _head(self, *, is_chunk: bool) -> dict[str, Any]:
        kind = "text_completion"
        if self.call.is_chat:
            kind = "chat.completion.chunk" if is_chunk else "chat.completion"
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}

    def _ending(self, delta: Delta) -> dict[str, Any]:
        return {"logprobs": None, "finish_reason": delta.finish, "stop_reason": delta.stop_reason}

    def _ids(self, delta: Delta, *, is_first: bool) -> dict[str, Any]:
        if not self.call.return_token_ids:
            return {}
        prompt = {"prompt_token_ids": list(self.call.prompt_ids)} if is_first else {}
        return {"token_ids": list(delta.token_ids), **prompt}


def usage_of(*, prompt_tokens: int, completion_tokens: int) -> dict[str, int]:
    """Return the `usage` object."""
    total = prompt_tokens + completion_tokens
    return {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens, "total_tokens": total}


def metrics_of(timing: Timing, *, completion_tokens: int, acceptance: Acceptance | None, k: int) -> dict[str, Any]:
    """Return the per-request `metrics` object; `acceptance` is None on an engine that does not speculate."""
    later = completion_tokens - 1
    return {
        "time_to_first_token_ms": timing.ttft_s * 1e3,
        "generation_time_ms": timing.decode_s * 1e3,
        "queue_time_ms": timing.queue_s * 1e3,
        "mean_itl_ms": timing.decode_s / later * 1e3 if later > 0 else None,
        "tokens_per_second": later / timing.decode_s if later > 0 and timing.decode_s > 0 else None,
        "speculative_decoding": None if acceptance is None else _speculation(acceptance, k),
    }


def _speculation(acceptance: Acceptance, k: int) -> dict[str, Any]:
    # vLLM reports 1.0 and 0.0 when nothing was drafted; readers must look at num_spec_steps.
    return {
        "mean_acceptance_length": acceptance.length or 1.0,
        "draft_acceptance_rate": acceptance.rate or 0.0,
        "acceptance_histogram": list(acceptance.histogram),
        "num_spec_steps": acceptance.rounds,
        "num_accepted_draft_tokens": acceptance.accepted,
        "num_draft_tokens": acceptance.drafted,
        "num_spec_tokens": k,
        "per_step_accepted": None,
        "per_step_drafted": None,
    }
