"""Clients of any server that speaks vLLM's dialect: a synchronous one (standard library) and an asynchronous one (aiohttp).

Completions are always streamed, because only a stream shows the time to the first token. Times are taken at this side of the
socket. Called by preflight, the offline evaluation, the fidelity test and readiness checks; the gateway does not use it, it
forwards bytes.
"""

import http.client
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from specops.core.outcome import Acceptance, Finish, acceptance_of
from specops.decoding.request import TokenLogprob
from specops.errors import EngineUnavailable, InvalidInput

if TYPE_CHECKING:
    import aiohttp

DONE = b"[DONE]"
ID_PREFIX = "token_id:"  # how the dialect names a token when `return_tokens_as_token_ids` is set


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One answer. Times in seconds from the moment the request was sent; `ttft_s` is None when no token came.

    `token_ids` is empty unless the request asked for them; `acceptance` is None when the server reported nothing, or no round
    with drafts (no data is not zero). `logprobs` and `top_logprobs` have an entry per token if the request set `logprobs`:
    natural logarithms under the target's raw law, and the likeliest (id, logprob) pairs, falling. `per_round` has (drafted,
    accepted) of every round with drafts if the server reports them in detail.
    """

    text: str
    token_ids: tuple[int, ...]
    finish: Finish
    ttft_s: float | None
    e2e_s: float
    prompt_tokens: int
    completion_tokens: int
    acceptance: Acceptance | None
    logprobs: tuple[float, ...] = ()
    top_logprobs: tuple[tuple[tuple[int, float], ...], ...] = ()
    per_round: tuple[tuple[int, int], ...] = ()

    @property
    def tpot_s(self) -> float | None:
        """Seconds per output token after the first."""
        if self.ttft_s is None or self.completion_tokens < 2:  # noqa: PLR2004
            return None
        return (self.e2e_s - self.ttft_s) / (self.completion_tokens - 1)


@dataclass(slots=True, kw_only=True)
class StreamReader:
    """Fold the lines of one SSE answer into a `Completion`."""

    url: str
    sent_s: float = field(default_factory=time.perf_counter)
    is_done: bool = False
    _text: list[str] = field(default_factory=list)
    _ids: list[int] = field(default_factory=list)
    _finish: Finish | None = None
    _first_s: float | None = None
    _last_s: float | None = None
    _usage: dict[str, Any] = field(default_factory=dict)
    _acceptance: Acceptance | None = None
    _logprobs: list[float] = field(default_factory=list)
    _top: list[tuple[tuple[int, float], ...]] = field(default_factory=list)
    _per_round: tuple[tuple[int, int], ...] = ()

    def feed(self, line: bytes) -> None:
        """Take one line of the stream, with or without its end.

        Raises:
            EngineUnavailable: the server sent an error, or bytes that are not its dialect.
        """
        if not line.startswith(b"data:") or self.is_done:
            return
        payload = line[5:].strip()
        if payload == DONE:
            self.is_done = True
            return
        try:
            event = json.loads(payload)
            self._take(event)
        except (ValueError, KeyError, TypeError, AttributeError) as exc:
            raise EngineUnavailable(f"{self.url} sent a chunk that cannot be read: {payload[:200]!r} ({exc!r})") from exc

    def _take(self, event: dict[str, Any]) -> None:
        if "error" in event:
            raise EngineUnavailable(f"{self.url} ended the stream with an error: {event['error'].get('message')}")
        for choice in event["choices"]:
            self._last_s = time.perf_counter()
            self._first_s = self._last_s if self._first_s is None else self._first_s
            self._text.append(choice["text"] if "text" in choice else choice["delta"].get("content") or "")
            self._ids.extend(choice.get("token_ids") or ())
            if choice.get("finish_reason"):
                self._finish = Finish(choice["finish_reason"])
            if "text" in choice and choice.get("logprobs"):
                self._take_logprobs(choice["logprobs"])
        self._usage = event.get("usage") or self._usage
        metrics = event.get("metrics")
        self._acceptance = acceptance_of(metrics) or self._acceptance
        if self._acceptance is not None and metrics and (accepted := metrics["speculative_decoding"].get("per_step_accepted")):
            self._per_round = tuple(zip(metrics["speculative_decoding"]["per_step_drafted"], accepted, strict=True))

    def _take_logprobs(self, logprobs: dict[str, Any]) -> None:
        self._logprobs += [float(value) for value in logprobs["token_logprobs"]]
        for top in logprobs["top_logprobs"] or ():
            pairs = [(int(name.removeprefix(ID_PREFIX)), float(value)) for name, value in (top or {}).items()]
            self._top.append(tuple(sorted(pairs, key=lambda pair: -pair[1])))

    def completion(self) -> Completion:
        """Return the answer.

        Raises:
            EngineUnavailable: the stream ended before it was complete.
        """
        if not self.is_done or self._finish is None:
            raise EngineUnavailable(f"{self.url} ended the stream before [DONE]; the engine may have died")
        return Completion(
            text="".join(self._text),
            token_ids=tuple(self._ids),
            finish=self._finish,
            ttft_s=None if self._first_s is None else self._first_s - self.sent_s,
            e2e_s=(self._last_s or time.perf_counter()) - self.sent_s,
            prompt_tokens=int(self._usage.get("prompt_tokens", 0)),
            completion_tokens=int(self._usage.get("completion_tokens", len(self._ids))),
            acceptance=self._acceptance,
            logprobs=tuple(self._logprobs),
            top_logprobs=tuple(self._top),
            per_round=self._per_round,
        )


def completion_body(prompt: str | list[int], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of a streamed completion that reports usage, speculation and token ids."""
    fixed = {"prompt": prompt, "stream": True, "stream_options": {"include_usage": True}}
    if options.get("logprobs") is not None:
        fixed["return_tokens_as_token_ids"] = True  # ids, because texts of two tokens can be equal
    return {"temperature": 0.0, "max_tokens": 64, "return_token_ids": True, **options, **fixed}


def score_body(sequences: Sequence[Sequence[int]], top: int, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body that asks for the log probabilities of given tokens; it generates one token, which is thrown away."""
    fixed = {"prompt": [list(ids) for ids in sequences], "prompt_logprobs": top, "max_tokens": 1}
    return {"temperature": 0.0, **options, **fixed}


def read_scores(body: Mapping[str, Any], sequences: Sequence[Sequence[int]], top: int) -> list[tuple[TokenLogprob, ...]]:
    """Read `prompt_logprobs` of an answer: per sequence one entry for each token after its first.

    Raises:
        EngineUnavailable: the answer is not vLLM's dialect, or it skips a token.
    """
    try:
        choices = sorted(body["choices"], key=lambda choice: int(choice["index"]))
        return [
            tuple(_scored(token, entry, top) for token, entry in zip(ids[1:], choice["prompt_logprobs"][1:], strict=True))
            for ids, choice in zip(sequences, choices, strict=True)
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise EngineUnavailable(f"the server's prompt_logprobs cannot be read: {exc!r}; is prompt_logprobs supported?") from exc


def _scored(token: int, entry: Mapping[str, Mapping[str, Any]], top: int) -> TokenLogprob:
    own = entry[str(token)]
    ranked = sorted(entry.items(), key=lambda item: (int(item[1]["rank"]), -float(item[1]["logprob"])))
    best = ranked if top < 0 else ranked[:top]
    pairs = tuple((int(name), float(value["logprob"])) for name, value in best)
    return TokenLogprob(token=token, logprob=float(own["logprob"]), rank=int(own["rank"]), top=pairs)


def _refusal(url: str, status: int, raw: bytes) -> EngineUnavailable | InvalidInput:
    try:
        message = json.loads(raw)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        message = raw[:200].decode("utf-8", "replace")
    text = f"{url} answered {status}: {message}"
    return InvalidInput(text) if 400 <= status < 500 else EngineUnavailable(text)  # noqa: PLR2004


class EngineClient:
    """Synchronous client; one connection per call, safe to share between threads."""

    def __init__(self, base_url: str, *, timeout_s: float = 60.0) -> None:
        """Remember where the server is.

        Args:
            base_url: such as `http://127.0.0.1:8000`.
            timeout_s: longest silence on the socket.
        """
        parts = urlsplit(base_url)
        if parts.scheme != "http" or not parts.hostname:
            raise InvalidInput(f"engine address must look like http://host:port, got {base_url!r}")
        self.base_url = base_url.rstrip("/")
        self._host, self._port = parts.hostname, parts.port or 80
        self._prefix, self._timeout_s = parts.path.rstrip("/"), timeout_s

    def health(self) -> None:
        """Return when the server says it is healthy.

        Raises:
            EngineUnavailable: it does not.
        """
        self._call("GET", "/health", None, lambda answer: answer.read())

    def models(self) -> list[dict[str, Any]]:
        """Return the entries of /v1/models."""
        entries: list[dict[str, Any]] = self._json("GET", "/v1/models")["data"]
        return entries

    def server_info(self, *, as_json: bool = False) -> dict[str, Any]:
        """Return /server_info; `as_json` asks vLLM for its configuration as JSON, which it otherwise prints as text."""
        return self._json("GET", "/server_info?config_format=json" if as_json else "/server_info")

    def metrics(self) -> str:
        """Return the Prometheus text."""
        return str(self._call("GET", "/metrics", None, lambda answer: answer.read().decode()))

    def tokenize(self, prompt: str) -> list[int]:
        """Return the ids that the server makes of a text."""
        ids: list[int] = self._json("POST", "/tokenize", {"prompt": prompt})["tokens"]
        return ids

    def complete(self, prompt: str | list[int], **options: Any) -> Completion:  # noqa: ANN401  # request parameters
        """Send one completion and read its stream to the end.

        Args:
            prompt: text, or token ids.
            options: any parameter of the dialect; temperature 0 and 64 tokens unless given.

        Raises:
            InvalidInput: the server refused the request (HTTP 4xx).
            EngineUnavailable: it is not there, failed, or ended early.
        """
        reader = StreamReader(url=self.base_url)

        def read(answer: http.client.HTTPResponse) -> Completion:
            for line in _lines(answer):
                reader.feed(line)
            return reader.completion()

        result = self._call("POST", "/v1/completions", completion_body(prompt, options), read)
        assert isinstance(result, Completion)
        return result

    def score(
        self, sequences: Sequence[Sequence[int]], *, top: int = 0, batch: int = 8, **options: Any  # noqa: ANN401
    ) -> list[tuple[TokenLogprob, ...]]:
        """Ask what the served model says of given tokens (prompt plus answer, say), without generating.

        Point it at a server that does not speculate: some servers report wrong `prompt_logprobs` while they do.

        Args:
            sequences: token ids, at least two each; each must leave room for one more token in the model's context.
            top: also report this many likeliest tokens per position; -1 reports the vocabulary (a server may limit it).
            batch: sequences per HTTP request.
            options: further parameters of the dialect, such as `model`.

        Returns:
            Per sequence, one entry for each token after the first: natural logarithm under the raw law, rank, likeliest.

        Raises:
            InvalidInput: the server refused the request (HTTP 4xx).
            EngineUnavailable: it is not there, failed, or its answer cannot be read.
        """
        scores: list[tuple[TokenLogprob, ...]] = []
        for at in range(0, len(sequences), batch):
            part = sequences[at : at + batch]
            body = self._json("POST", "/v1/completions", score_body(part, top, options))
            scores += read_scores(body, part, top)
        return scores

    def _json(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        raw = self._call(method, path, body, lambda answer: answer.read())
        try:
            value = json.loads(raw)
        except ValueError as exc:
            raise EngineUnavailable(f"{self.base_url}{path} did not answer with JSON: {raw[:200]!r}") from exc
        if not isinstance(value, dict):
            raise EngineUnavailable(f"{self.base_url}{path} did not answer with an object: {raw[:200]!r}")
        return value

    def _call(self, method: str, path: str, body: object, read: Callable[[http.client.HTTPResponse], Any]) -> Any:  # noqa: ANN401
        connection = http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)
        raw = None if body is None else json.dumps(body).encode()
        try:
            connection.request(method, self._prefix + path, raw, {"Content-Type": "application/json"} if raw else {})
            answer = connection.getresponse()
            if answer.status != 200:  # noqa: PLR2004
                raise _refusal(self.base_url + path, answer.status, answer.read())
            return read(answer)
        except (OSError, http.client.HTTPException) as exc:
            raise EngineUnavailable(f"no answer from {self.base_url}{path}: {exc!r}; is the engine running?") from exc
        finally:
            connection.close()


def _lines(answer: http.client.HTTPResponse) -> Iterator[bytes]:
    # read1 gives what has arrived; readline would wait for nothing more either, but costs a call per byte on chunked bodies.
    pending = b""
    while piece := answer.read1(65536):
        *whole, pending = (pending + piece).split(b"\n")
        yield from whole
    if pending:
        yield pending


class AsyncEngineClient:
    """Asynchronous client; use as `async with`. Connections are kept open and unbounded in number."""

    def __init__(self, base_url: str, *, timeout_s: float = 60.0) -> None:
        self.base_url = base_url.rstrip("/")
        self._timeout_s = timeout_s
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        """Open the connection pool."""
        import aiohttp  # noqa: PLC0415  # the synchronous client must not pay for it

        timeout = aiohttp.ClientTimeout(total=None, sock_read=self._timeout_s, sock_connect=self._timeout_s)
        self._session = aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0))
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connection pool."""
        if self._session is not None:
            await self._session.close()

    async def health(self) -> None:
        """Return when the server says it is healthy.

        Raises:
            EngineUnavailable: it does not.
        """
        await self._get("/health")

    async def models(self) -> list[dict[str, Any]]:
        """Return the entries of /v1/models."""
        entries: list[dict[str, Any]] = json.loads(await self._get("/v1/models"))["data"]
        return entries

    async def server_info(self) -> dict[str, Any]:
        """Return /server_info."""
        facts: dict[str, Any] = json.loads(await self._get("/server_info"))
        return facts

    async def complete(self, prompt: str | list[int], **options: Any) -> Completion:  # noqa: ANN401  # request parameters
        """Send one completion and read its stream to the end; see `EngineClient.complete`."""
        import aiohttp  # noqa: PLC0415

        reader = StreamReader(url=self.base_url)
        body = completion_body(prompt, options)
        try:
            async with self._pool.post(self.base_url + "/v1/completions", json=body) as answer:
                if answer.status != 200:  # noqa: PLR2004
                    raise _refusal(self.base_url, answer.status, await answer.read())
                async for line in answer.content:
                    reader.feed(line)
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as exc:
            raise EngineUnavailable(f"no answer from {self.base_url}: {exc!r}; is the engine running?") from exc
        return reader.completion()

    @property
    def _pool(self) -> "aiohttp.ClientSession":
        if self._session is None:
            raise InvalidInput("the client is not open; use `async with AsyncEngineClient(url) as client`")
        return self._session

    async def _get(self, path: str) -> bytes:
        import aiohttp  # noqa: PLC0415

        try:
            async with self._pool.get(self.base_url + path) as answer:
                raw = await answer.read()
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as exc:
            raise EngineUnavailable(f"no answer from {self.base_url}{path}: {exc!r}; is the engine running?") from exc
        if answer.status != 200:  # noqa: PLR2004
            raise _refusal(self.base_url + path, answer.status, raw)
        return raw
