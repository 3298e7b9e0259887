"""The HTTP server in front of an engine: vLLM's dialect over aiohttp, one process, one model.

A client that leaves cancels its request, also before the first token (`handler_cancellation`). SIGTERM stops listening, lets
running requests end for at most `drain_s`, then exits. Run by `specops engine serve`, or as
`python -m specops.engines.server '<ServerConfig record as JSON>'`.
"""

import asyncio
import errno
import json
import logging
import signal
import socket
import sys
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any

from aiohttp import web

from specops.core.trace import Trace
from specops.engines import process
from specops.engines.answers import Delta, Shape, merged, metrics_of, usage_of
from specops.engines.config import ServerConfig
from specops.engines.dialect import Call, Refused, fields_of, parse, prompts_of, tokens_of
from specops.engines.engine import Answer, Engine, Event, check_config, open_engine
from specops.engines.exposition import CONTENT_TYPE
from specops.errors import EngineUnavailable, InvalidInput, SpecopsError, exit_code

ENGINE = web.AppKey("engine", Engine)
MAX_BODY_BYTES = 8 << 20
_UNCOUNTED = ("/metrics", "/health", "/ping", "/version", "/server_info")  # as in vLLM


def create_app(engine: Engine) -> web.Application:
    """Return the application of one engine; the caller runs it with `handler_cancellation=True` and closes the engine."""
    app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[_guard])
    app[ENGINE] = engine
    app.add_routes(
        [
            web.get("/health", _health), web.get("/ping", _health), web.get("/version", _version),
            web.get("/v1/models", _models), web.get("/metrics", _metrics), web.get("/server_info", _server_info),
            web.post("/tokenize", _tokenize), web.post("/detokenize", _detokenize),
            web.post("/v1/completions", _completions), web.post("/v1/chat/completions", _chat_completions),
        ]
    )  # fmt: skip
    return app


@web.middleware
async def _guard(request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> web.StreamResponse:
    """Answer every error with vLLM's error object, and count the answer."""
    route = request.match_info.route.resource
    path = "none" if route is None else route.canonical
    try:
        response = await handler(request)
    except ConnectionError:  # nobody is there to be told
        raise
    except web.HTTPException as exc:
        message = f"{exc.reason}: {request.method} {path}"
        response = _refused(Refused(message, status=exc.status, kind=exc.reason.replace(" ", "")))
    except Exception as exc:  # noqa: BLE001  # one broken request must not end the others; it is logged
        response = _refused(_refusal(exc))
    if path not in _UNCOUNTED:
        method = request.method if request.method in {"GET", "POST"} else "other"
        request.app[ENGINE].metrics.count_http(handler=path, method=method, status=response.status)
    return response


async def _health(request: web.Request) -> web.Response:
    return web.Response(status=200 if request.app[ENGINE].scheduler.is_alive else 503)


async def _version(request: web.Request) -> web.Response:
    return web.json_response({"version": f"{request.app[ENGINE].facts['version']}+specops"})


async def _models(request: web.Request) -> web.Response:
    engine = request.app[ENGINE]
    entry = {
        "id": engine.limits.model_name, "object": "model", "created": int(time.time()), "owned_by": "specops",
        "root": engine.facts["target"]["path"], "parent": None, "max_model_len": engine.limits.max_model_len,
    }  # fmt: skip
    return web.json_response({"object": "list", "data": [entry]})


async def _metrics(request: web.Request) -> web.Response:
    engine = request.app[ENGINE]
    text = engine.metrics.render(running=engine.scheduler.running, waiting=engine.scheduler.waiting)
    return web.Response(body=text.encode(), headers={"Content-Type": CONTENT_TYPE})


async def _server_info(request: web.Request) -> web.Response:
    engine, limits = request.app[ENGINE], request.app[ENGINE].limits
    sizes = {"max_model_len": limits.max_model_len, "vocab_size": limits.vocab_size}
    return web.json_response({"specops": engine.facts | sizes})


async def _tokenize(request: web.Request) -> web.Response:
    engine, fields = request.app[ENGINE], fields_of(await _body(request))
    (ids, *more) = prompts_of(fields, is_chat="messages" in fields, reader=engine)
    if more:
        raise Refused("prompt must be one text", param="prompt")
    answer = {"count": len(ids), "max_model_len": engine.limits.max_model_len, "tokens": list(ids)}
    texts = {"token_strs": [engine.tokenizer.id_to_token(token) for token in ids]} if fields.get("return_token_strs") else {}
    return web.json_response(answer | texts)


async def _detokenize(request: web.Request) -> web.Response:
    engine = request.app[ENGINE]
    return web.json_response({"prompt": engine.decode(tokens_of(fields_of(await _body(request)), engine.limits))})


async def _completions(request: web.Request) -> web.StreamResponse:
    return await _answer(request, is_chat=False)


async def _chat_completions(request: web.Request) -> web.StreamResponse:
    return await _answer(request, is_chat=True)


async def _body(request: web.Request) -> object:
    try:
        return json.loads(await request.read())
    except (ValueError, RecursionError) as exc:
        raise Refused(f"request body is not JSON: {exc}") from exc


def _refusal(exc: Exception) -> Refused:
    """Return what a client is told of an error; one that is not meant for it goes to the log."""
    if isinstance(exc, Refused):
        return exc
    logging.getLogger(__name__).error("a request failed", exc_info=exc)
    return Refused("the server failed on this request; its log says more", status=500, kind="InternalServerError")


def _refused(refused: Refused) -> web.Response:
    return web.json_response(refused.body(), status=refused.status)


async def _answer(request: web.Request, *, is_chat: bool) -> web.StreamResponse:
    engine = request.app[ENGINE]
    call = parse(await _body(request), is_chat=is_chat, reader=engine)
    prefix = "chatcmpl" if is_chat else "cmpl"
    shape = Shape(
        id=f"{prefix}-{request.headers.get('X-Request-Id') or uuid.uuid4().hex}", model=engine.limits.model_name,
        created=int(time.time()), call=call, piece=lambda token: engine.decode([token]),
    )  # fmt: skip
    exchange = _Exchange(engine, call, shape.id)
    try:
        exchange.open()
        return await (_stream(request, exchange, shape) if call.is_stream else _whole(exchange, shape))
    except EngineUnavailable as exc:
        engine.metrics.count_rejection()
        response = _refused(Refused(str(exc), status=503, kind="ServiceUnavailableError"))
        response.headers["Retry-After"] = str(max(1, round(exc.retry_after_s)))
        return response
    finally:
        exchange.close()


class _Exchange:
    """The answers to one call on the event loop's side: rounds arrive from the worker thread through a queue."""

    def __init__(self, engine: Engine, call: Call, request_id: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[tuple[int, Event]] = asyncio.Queue()
        self._answers: list[Answer] = []
        self.engine, self.call, self.request_id = engine, call, request_id

    def open(self) -> None:
        """Queue every answer.

        Raises:
            EngineUnavailable: the queue has no place for all; the caller closes.
        """
        for index in range(self.call.choices):
            name = self.request_id if self.call.choices == 1 else f"{self.request_id}-{index}"
            self._answers.append(self.engine.submit(self.call, index, partial(self._deliver, index), request_id=name))

    def close(self) -> None:
        """Cancel what still runs: the client left, or there is nothing to do."""
        for answer in self._answers:
            answer.cancel()

    def _deliver(self, index: int, event: Event) -> None:
        try:
            self._loop.call_soon_threadsafe(self._events.put_nowait, (index, event))
        except RuntimeError:  # the loop is closed: nobody listens any more
            self._answers[index].cancel()

    async def deltas(self) -> AsyncIterator[tuple[int, Delta, bool]]:
        """Yield choice, round, and whether it is the choice's first; the last round of each choice has `finish`."""
        fresh, unfinished = set(range(self.call.choices)), self.call.choices
        while unfinished:
            index, event = await self._events.get()
            if event is None:
                raise Refused("the request was aborted because the engine is shutting down", status=503, kind="AbortedError")
            if isinstance(event, Exception):
                raise Refused(f"engine failed: {event!r}", status=500, kind="InternalServerError")
            is_first = index in fresh
            fresh.discard(index)
            unfinished -= event.finish is not None
            yield index, self._echoed(index, event) if is_first and self.call.echo else event, is_first

    def _echoed(self, index: int, delta: Delta) -> Delta:
        """Return the prompt and the first round as one."""
        ids = self.call.requests[index // self.call.n].prompt_ids
        logprobs = None if delta.prompt_logprobs is None else (None, *delta.prompt_logprobs)
        if self.call.is_silent:
            delta = replace(delta, text="", token_ids=(), logprobs=() if delta.logprobs is not None else None)
        prompt = Delta(text=self.engine.decode(ids), token_ids=ids, logprobs=logprobs, prompt_logprobs=delta.prompt_logprobs)
        return merged([prompt, delta])

    def usage(self, index: int, completion_tokens: int) -> dict[str, int]:
        """Return the `usage` of one choice so far."""
        prompt = self.call.requests[index // self.call.n].prompt_ids
        return usage_of(prompt_tokens=len(prompt), completion_tokens=completion_tokens)

    def ending(self) -> dict[str, Any]:
        """Return `usage` and `metrics` of the ended answers; only a lone answer has metrics, as in vLLM."""
        count = sum(answer.completion_tokens for answer in self._answers)
        usage = usage_of(prompt_tokens=self.call.prompt_tokens, completion_tokens=count)
        if len(self._answers) > 1:
            return {"usage": usage, "metrics": None}
        answer, report = self._answers[0], self.engine.config.per_request_spec_decode_metrics
        metrics = metrics_of(
            answer.timing, completion_tokens=count, acceptance=None if report == "none" else answer.acceptance, k=self.engine.k,
            per_round=answer.per_round if report == "detailed" else None,
        )  # fmt: skip
        return {"usage": usage, "metrics": metrics}


async def _whole(exchange: _Exchange, shape: Shape) -> web.Response:
    rounds: list[list[Delta]] = [[] for _ in range(exchange.call.choices)]
    async for index, delta, _ in exchange.deltas():
        rounds[index].append(delta)
    return web.json_response(shape.whole([merged(deltas) for deltas in rounds], **exchange.ending()))


async def _stream(request: web.Request, exchange: _Exchange, shape: Shape) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"})
    chars, tokens = [0] * exchange.call.choices, [0] * exchange.call.choices
    try:
        async for index, delta, is_first in exchange.deltas():
            if not response.prepared:  # not before: an engine that fails at once can still answer 500
                await response.prepare(request)
            body = shape.chunk(index, delta, is_first=is_first, offset=chars[index])
            chars[index] += len(delta.text)
            tokens[index] += len(delta.token_ids)
            if exchange.call.continuous_usage:
                body["usage"] = exchange.usage(index, tokens[index])
            await response.write(_event(body))
        if exchange.call.include_usage:
            await response.write(_event(shape.last(**exchange.ending())))
    except ConnectionError:  # the client left between two chunks; the caller cancels
        return response
    except Exception as exc:
        if not response.prepared:
            raise
        await response.write(_event(_refusal(exc).body()))
    await response.write(b"data: [DONE]\n\n")
    await response.write_eof()
    return response


def _event(body: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(body, separators=(",", ":")).encode() + b"\n\n"


def bind(host: str, port: int) -> socket.socket:
    """Take an address without listening yet, so that a busy port is reported before models are loaded.

    Raises:
        InvalidInput: the port is in use, or the address is not ours.
    """
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as exc:
        sock.close()
        raise _cannot_listen(host, port, exc) from exc
    return sock


def _cannot_listen(host: str, port: int, exc: OSError) -> InvalidInput:
    if exc.errno == errno.EADDRINUSE:
        return InvalidInput(f"port {port} is already in use on {host}; pass --port with a free one (0 picks one)")
    return InvalidInput(f"cannot listen on {host}:{port}: {exc.strerror or exc}; pass --host or --port")


async def start(engine: Engine, sock: socket.socket) -> web.AppRunner:
    """Serve an engine on a bound socket; the caller ends it with `runner.cleanup()`, which drains.

    Raises:
        InvalidInput: another process listens there.
    """
    runner = web.AppRunner(
        create_app(engine), handler_cancellation=True, access_log=None, shutdown_timeout=engine.config.drain_s
    )  # fmt: skip
    await runner.setup()
    try:
        await web.SockSite(runner, sock, backlog=512).start()
    except OSError as exc:
        await runner.cleanup()
        host, port = sock.getsockname()[:2]
        raise _cannot_listen(host, port, exc) from exc
    return runner


def serve(config: ServerConfig, *, sink: Callable[[Trace], object] | None = None) -> None:
    """Run an engine server in this process until SIGTERM or SIGINT; `sink` stores traces, without it nothing is traced.

    Raises:
        InvalidInput: bad folders or a port in use.
        SpecopsError: anything that `open_engine` raises.
    """
    process.watch_parent()
    check_config(config)
    sock = bind(config.host, config.port)
    try:
        engine = open_engine(config, sink=sink)
        try:
            asyncio.run(_serve(engine, sock))
        finally:
            engine.close()
    finally:
        sock.close()


async def _serve(engine: Engine, sock: socket.socket) -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    runner = await start(engine, sock)
    try:
        print(f"specops engine {engine.limits.model_name} listens on {_address(sock)}", flush=True)  # noqa: T201  # its log
        await stop.wait()
        print("specops engine drains", flush=True)  # noqa: T201
    finally:
        await runner.cleanup()


def _address(sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    return f"http://{host}:{port}"


def main(arguments: list[str]) -> int:
    """Serve the config given as one JSON argument; return the exit code."""
    try:
        serve(ServerConfig.from_record(json.loads(arguments[0])))
    except SpecopsError as exc:
        print(f"error: {exc}", file=sys.stderr)  # noqa: T201
        return exit_code(exc)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
