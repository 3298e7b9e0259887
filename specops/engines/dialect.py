"""vLLM's HTTP dialect, the asking half: a request body becomes a checked `Call`. The answering half is `answers`.

A parameter that changes text and is not implemented here is refused with HTTP 400, never ignored; unknown names are ignored, as
in vLLM. Pure: no sockets, no model. Two differences from vLLM, both because this engine can: `min_p` and `logit_bias` also work
with speculation, and log probabilities have no depth limit below the vocabulary (an answer has a size limit).
Source: vLLM 0.32 entrypoints/openai (completion and chat protocols) and sampling_params.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

from specops.decoding.request import Request
from specops.engines.chat import ChatTemplate
from specops.errors import InvalidInput

DEFAULT_MAX_TOKENS = 16  # vLLM's default for /v1/completions
MAX_STOPS = 16
MAX_STOP_CHARS = 1024  # text held back while it could become a stop string is scanned every round
MAX_LOGPROBS = 1 << 20  # entries of one answer, about 60 bytes of JSON each
_NEUTRAL: dict[str, tuple[Any, ...]] = {  # values that change nothing; any other value of these is refused
    "best_of": (1,), "suffix": ("",), "bad_words": ([],), "allowed_token_ids": (), "use_beam_search": (False,),
    "response_format": ({"type": "text"},), "structured_outputs": (), "guided_json": (), "guided_regex": (),
    "guided_choice": (), "guided_grammar": (), "tools": ([],), "tool_choice": ("none",), "prompt_embeds": (),
    "logprob_token_ids": (), "thinking_token_budget": (), "repetition_detection": (), "watermarking": (False,),
    "chat_template": (), "documents": ([],), "priority": (0,), "truncation_side": ("left",),
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
    """What a served model can take; `max_choices` is how many answers one request may ask for at once."""

    model_name: str
    max_model_len: int
    vocab_size: int
    max_choices: int
    max_prompt_chars: int


class Reader(Protocol):
    """What parsing needs of an engine."""

    limits: Limits
    template: ChatTemplate

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """Return the token ids of a text, with the special tokens that the tokenizer adds if `special`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One checked request: one `Request` per prompt, `n` answers to each; `seed` None draws one per answer.

    `trace` is the request's own word on being traced, None if it has none.
    `echo` puts the prompt before the answer; `is_silent` keeps the generated token out of it (echo with max_tokens 0).
    """

    requests: tuple[Request, ...]
    n: int
    seed: int | None
    stop: tuple[str, ...]
    includes_stop: bool
    skips_special: bool
    logprobs: int | None
    prompt_logprobs: int | None
    echo: bool
    is_silent: bool
    is_stream: bool
    include_usage: bool
    continuous_usage: bool
    return_token_ids: bool
    names_ids: bool
    is_chat: bool
    trace: bool | None

    @property
    def choices(self) -> int:
        """Number of answers."""
        return len(self.requests) * self.n

    @property
    def prompt_tokens(self) -> int:
        """Tokens of all prompts."""
        return sum(len(request.prompt_ids) for request in self.requests)

    def request(self, index: int, drawn_seed: int) -> Request:
        """Return the request of one choice; the i-th answer to a prompt has seed + i, as in vLLM."""
        seed = drawn_seed if self.seed is None else self.seed + index % self.n
        return replace(self.requests[index // self.n], seed=seed)


def parse(body: object, *, is_chat: bool, reader: Reader) -> Call:
    """Check a request body.

    Args:
        body: the decoded JSON.
        is_chat: whether it came to /v1/chat/completions.
        reader: the engine that will answer.

    Raises:
        Refused: with the status and the message that vLLM would give.
    """
    fields, limits = fields_of(body), reader.limits
    if fields.get("model") not in (None, "", limits.model_name):
        asked_for = _shown(fields["model"], quote="`")
        raise Refused(f"The model {asked_for} does not exist.", status=404, kind="NotFoundError", param="model")
    for name, neutral in _NEUTRAL.items():
        value = fields.get(name)
        if value is not None and not any(type(value) is type(other) and value == other for other in neutral):
            raise Refused(f"{name}={_shown(value)} is not supported by this engine; drop it", param=name)
    is_stream, usage, continuous = _streaming(fields)
    echo = not is_chat and _flag(fields, "echo")
    is_silent = echo and fields.get("max_tokens") == 0
    logprobs = _chat_depth(fields, limits) if is_chat else _depth(fields, "logprobs", limits)
    prompt_logprobs = _depth(fields, "prompt_logprobs", limits)
    if prompt_logprobs and is_stream:
        raise Refused("`prompt_logprobs` are not available when `stream=True`.", param="prompt_logprobs")
    echoed = logprobs if echo and prompt_logprobs is None else prompt_logprobs
    common = _sampling(fields, limits)
    requests = []
    for ids in prompts_of(fields, is_chat=is_chat, reader=reader):
        if not ids:
            raise Refused("The decoder prompt cannot be empty", param="prompt")
        asked = 1 if is_silent else _max_tokens(fields, len(ids), is_chat=is_chat, limits=limits)
        if common["min_tokens"] > asked:
            got = common["min_tokens"]
            raise Refused(f"min_tokens must be less than or equal to max_tokens={asked}, got {got}.", param="min_tokens")
        requests.append(_request(common, prompt_ids=ids, max_tokens=asked, logprobs=logprobs, prompt_logprobs=echoed))
    call = Call(
        requests=tuple(requests),
        n=_integer(fields, "n", 1, low=1) or 1,
        seed=_integer(fields, "seed", None, low=-(2**63)),
        stop=_stops(fields.get("stop")),
        includes_stop=_flag(fields, "include_stop_str_in_output"),
        skips_special=_flag(fields, "skip_special_tokens", default=True),
        logprobs=logprobs,
        prompt_logprobs=prompt_logprobs,
        echo=echo,
        is_silent=is_silent,
        is_stream=is_stream,
        include_usage=usage,
        continuous_usage=usage and continuous,
        return_token_ids=_flag(fields, "return_token_ids"),
        names_ids=_flag(fields, "return_tokens_as_token_ids"),
        is_chat=is_chat,
        trace=_flag(fields, "specops_trace") if fields.get("specops_trace") is not None else None,
    )
    _check_size(call, limits)
    return call


def fields_of(body: object) -> dict[str, Any]:
    """Return a body that is an object.

    Raises:
        Refused: it is something else.
    """
    if not isinstance(body, dict):
        raise Refused(f"request body must be a JSON object, got {type(body).__name__}")
    return body


def prompts_of(fields: dict[str, Any], *, is_chat: bool, reader: Reader) -> Iterator[tuple[int, ...]]:
    """Yield the token ids of each prompt of a body: the messages of a chat, a text, token ids, or a list of either.

    Raises:
        Refused: there is none, or it has unknown tokens.
    """
    prompt, special = fields.get("prompt"), _flag(fields, "add_special_tokens", default=True)
    if is_chat:
        prompt = _chat_text(fields, reader.template)
        # A template writes its own special tokens; the plain one has none.
        special = _flag(fields, "add_special_tokens", default=reader.template.sha256 is None)
    kept = _integer(fields, "truncate_prompt_tokens", None, low=-1)
    if not isinstance(prompt, list) or not prompt or type(prompt[0]) not in {str, list}:
        prompt = [prompt]
    elif any(type(one) is not type(prompt[0]) for one in prompt):
        raise Refused("prompt mixes texts and lists of token ids; send a list of one kind", param="prompt")
    for one in prompt:
        ids = _encoded(one, reader, special=special)
        if kept is not None:
            ids = ids[len(ids) - min(len(ids), reader.limits.max_model_len - 1 if kept == -1 else kept) :]
        yield tuple(ids)


def tokens_of(fields: dict[str, Any], limits: Limits) -> list[int]:
    """Return the field `tokens` of a body.

    Raises:
        Refused: it is not there, or an id is outside the vocabulary.
    """
    return _ids(fields.get("tokens"), limits, param="tokens")


def _encoded(prompt: object, reader: Reader, *, special: bool) -> list[int]:
    if not isinstance(prompt, str):
        return _ids(prompt, reader.limits, param="prompt")
    if len(prompt) > reader.limits.max_prompt_chars:
        raise Refused(
            f"This model's maximum context length is {reader.limits.max_model_len} tokens. However, your prompt has "
            f"{len(prompt)} characters, which are more. Please shorten it.", param="prompt",
        )  # fmt: skip
    if not _is_unicode(prompt):
        raise Refused("prompt has half a surrogate pair, which is not text; send valid Unicode", param="prompt")
    return reader.encode(prompt, special=special)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _ids(values: object, limits: Limits, *, param: str) -> list[int]:
    if not isinstance(values, list) or any(type(value) is not int for value in values):
        raise Refused(f"{param} must be text or a list of token ids, or a list of one kind of these", param=param)
    outside = [value for value in values if not 0 <= value < limits.vocab_size]
    if outside:
        raise Refused(f"Token id {_shown(outside[0])} is out of vocabulary (size {limits.vocab_size})", param=param)
    return values


def _chat_text(fields: dict[str, Any], template: ChatTemplate) -> str:
    messages, variables = fields.get("messages"), fields.get("chat_template_kwargs") or {}
    if not isinstance(messages, list) or not messages:
        raise Refused("messages must be a list with at least one message", param="messages")
    if not isinstance(variables, dict):
        raise Refused("chat_template_kwargs must be an object", param="chat_template_kwargs")
    continues = _flag(fields, "continue_final_message")
    opens_answer = _flag(fields, "add_generation_prompt", default=True)
    if continues and fields.get("add_generation_prompt"):
        raise Refused("Cannot set both `continue_final_message` and `add_generation_prompt` to True.")
    turns = [_turn(message) for message in messages]
    try:
        return template.render(turns, opens_answer=opens_answer and not continues, continues=continues, variables=variables)
    except InvalidInput as exc:
        raise Refused(str(exc), param="messages") from exc


def _turn(message: object) -> dict[str, Any]:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise Refused("every message needs a role and a content", param="messages")
    content = message.get("content")
    if isinstance(content, list):
        if any(not isinstance(part, dict) or part.get("type") != "text" for part in content):
            raise Refused("only text parts are supported in messages", param="messages")
        content = "\n".join(str(part.get("text", "")) for part in content)
    if not isinstance(content, str):
        raise Refused(f"message content must be text, got {type(content).__name__}", param="messages")
    return message | {"content": content}


def _streaming(fields: dict[str, Any]) -> tuple[bool, bool, bool]:
    """Return whether to stream, to end with usage, and to send usage with every chunk."""
    is_stream, options = _flag(fields, "stream"), fields.get("stream_options") or {}
    if not isinstance(options, dict):
        raise Refused("stream_options must be an object", param="stream_options")
    if options and not is_stream:
        raise Refused("Stream options can only be defined when `stream=True`.", param="stream_options")
    return is_stream, _flag(options, "include_usage"), _flag(options, "continuous_usage_stats")


def _sampling(fields: dict[str, Any], limits: Limits) -> dict[str, Any]:
    temperature = _number(fields, "temperature", 1.0, low=0.0, high=2.0)
    if temperature == 0 and (_integer(fields, "n", 1, low=1) or 1) > 1:
        raise Refused(f"n must be 1 when using greedy sampling, got {fields['n']}.", param="n")
    top_p = _number(fields, "top_p", 1.0, low=0.0, high=1.0)
    if top_p == 0:
        raise Refused("top_p must be in (0, 1], got 0.", param="top_p")
    repetition = _number(fields, "repetition_penalty", 1.0, low=0.0, high=1e30)
    if repetition == 0:
        raise Refused("repetition_penalty must be greater than zero, got 0.", param="repetition_penalty")
    min_p, top_k = _number(fields, "min_p", 0.0, low=0.0, high=1.0), max(0, _integer(fields, "top_k", 0, low=-1) or 0)
    is_greedy = temperature == 0  # the filters keep the likeliest token, so they change nothing then
    return {
        "temperature": temperature,
        "top_p": 1.0 if is_greedy else top_p,
        "top_k": 0 if is_greedy else top_k,
        "min_p": 0.0 if is_greedy else min_p,
        "repetition_penalty": repetition,
        "presence_penalty": _number(fields, "presence_penalty", 0.0, low=-2.0, high=2.0),
        "frequency_penalty": _number(fields, "frequency_penalty", 0.0, low=-2.0, high=2.0),
        "logit_bias": _bias(fields.get("logit_bias"), limits),
        "min_tokens": _integer(fields, "min_tokens", 0, low=0) or 0,
        "stop_ids": tuple(_ids(fields.get("stop_token_ids") or [], limits, param="stop_token_ids")),
        "ignore_eos": _flag(fields, "ignore_eos"),
    }


def _request(common: dict[str, Any], **own: Any) -> Request:  # noqa: ANN401  # fields of a Request
    try:
        return Request(**common, **own)
    except InvalidInput as exc:
        raise Refused(str(exc)) from exc


def _bias(value: object, limits: Limits) -> tuple[tuple[int, float], ...]:
    if not value:
        return ()
    if not isinstance(value, dict) or len(value) > limits.vocab_size:
        raise Refused("logit_bias must be an object of token ids and numbers", param="logit_bias")
    pairs = []
    for name in value:
        token = int(name) if name.isascii() and name.isdigit() and len(name) < 10 else -1  # noqa: PLR2004  # no id is longer
        if not 0 <= token < limits.vocab_size:
            wrong = f"token_id {_shown(name)} in logit_bias is out of vocabulary (size {limits.vocab_size})"
            raise Refused(wrong, param="logit_bias")
        # OpenAI's range is [-100, 100]; vLLM cuts what lies outside.
        pairs.append((token, min(100.0, max(-100.0, _number(value, name, 0.0, low=-1e30, high=1e30)))))
    if len(dict(pairs)) < len(pairs):
        raise Refused("logit_bias names a token twice", param="logit_bias")
    return tuple(pairs)


def _depth(fields: dict[str, Any], name: str, limits: Limits) -> int | None:
    if fields.get(name) is False:  # some clients send the chat's flag
        return None
    depth = _integer(fields, name, None, low=-1)
    return depth if depth is None else limits.vocab_size if depth == -1 else min(depth, limits.vocab_size)


def _chat_depth(fields: dict[str, Any], limits: Limits) -> int | None:
    depth = _depth(fields, "top_logprobs", limits)
    if _flag(fields, "logprobs"):
        return depth or 0
    if depth:
        raise Refused("when using `top_logprobs`, `logprobs` must be set to true.", param="top_logprobs")
    return None


def _check_size(call: Call, limits: Limits) -> None:
    if call.choices > limits.max_choices:
        raise Refused(
            f"{len(call.requests)} prompts with n={call.n} are {call.choices} answers, "
            f"this engine takes up to {limits.max_choices} at once; send less", param="n",
        )  # fmt: skip
    entries = sum(
        call.n * ((request.logprobs or 0) * request.max_tokens + (request.prompt_logprobs or 0) * len(request.prompt_ids))
        for request in call.requests
    )
    if entries > MAX_LOGPROBS:
        raise Refused(f"{entries} log probabilities are asked for, one answer has up to {MAX_LOGPROBS}; ask for less depth")


def _max_tokens(fields: dict[str, Any], prompt_tokens: int, *, is_chat: bool, limits: Limits) -> int:
    room = limits.max_model_len - prompt_tokens
    if room < 1:
        raise Refused(
            f"This model's maximum context length is {limits.max_model_len} tokens. However, your prompt contains "
            f"{prompt_tokens} tokens and leaves no room for an answer. Please shorten it.", param="prompt",
        )  # fmt: skip
    asked = _integer(fields, "max_completion_tokens", None, low=1) if is_chat else None
    if asked is None:
        asked = _integer(fields, "max_tokens", None, low=1)
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
    if any(len(stop) > MAX_STOP_CHARS for stop in stops):
        raise Refused(f"a stop string may have up to {MAX_STOP_CHARS} characters", param="stop")
    return tuple(stops)


def _number(fields: dict[str, Any], name: str, default: float, *, low: float, high: float) -> float:
    value = fields.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise Refused(f"{name} must be a number in [{low:g}, {high:g}], got {_shown(value)}", param=name)
    return float(value)


def _integer(fields: dict[str, Any], name: str, default: int | None, *, low: int) -> int | None:
    value = fields.get(name)
    if value is None:
        return default
    if type(value) is not int or not low <= value < 2**63:
        raise Refused(f"{name} must be at least {low}, got {_shown(value)}.", param=name)
    return value


def _flag(fields: dict[str, Any], name: str, *, default: bool = False) -> bool:
    value = fields.get(name)
    if value is not None and not isinstance(value, bool):
        raise Refused(f"{name} must be true or false, got {_shown(value)}", param=name)
    return default if value is None else value


def _shown(value: object, *, quote: str = "") -> str:
    """Return a value for a message, not the megabytes that a client may have sent."""
    text = f"{quote}{value}{quote}" if quote else repr(value)
    return text if len(text) <= 80 else text[:77] + "..."  # noqa: PLR2004
