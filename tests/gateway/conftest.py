"""Stub engines that speak vLLM's dialect, and a gateway in the test's own event loop."""

import asyncio
import json
import socket
from dataclasses import dataclass, field

import aiohttp
import pytest
from aiohttp import web

from specops.core.route import Route
from specops.gateway.app import GatewayConfig, make_runner

WORDS = [f" w{n}é" for n in range(20)]
COUNTS = {
    "mean_acceptance_length": 3.0, "draft_acceptance_rate": 0.5, "acceptance_histogram": [1, 2, 3], "num_spec_steps": 6,
    "num_accepted_draft_tokens": 8, "num_draft_tokens": 16, "num_spec_tokens": 2,
}  # fmt: skip
USAGE = {"prompt_tokens": 5, "completion_tokens": 20, "total_tokens": 25}


def sse(value):
    """Return one event as vLLM writes it."""
    return b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n"


def chunk(text, finish=None):
    """Return one chunk of a completion."""
    return {"id": "c", "object": "text_completion", "choices": [{"index": 0, "text": text, "finish_reason": finish}]}


def stream_bytes(*, counts=True):
    """Return a whole stream: 20 chunks, usage, [DONE]."""
    last = {"choices": [], "usage": USAGE, "metrics": {"speculative_decoding": COUNTS if counts else None}}
    events = [sse(chunk(word, "length" if word == WORDS[-1] else None)) for word in WORDS]
    return b"".join([*events, sse(last), b"data: [DONE]\n\n"])


@dataclass
class Stub:
    """An engine whose next answers are set by `mode`."""

    mode: str = "good"
    name: str = "stub"
    url: str = ""
    script: bytes = b""
    seen: list = field(default_factory=list)
    started: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    release: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, request):
        """Note the request and answer as `mode` says."""
        body = await request.read()
        self.seen.append((request, body))
        self.started.set()
        try:
            return await getattr(self, f"_{self.mode}")(request, json.loads(body or b"{}"))
        except asyncio.CancelledError:
            self.cancelled.set()
            raise

    async def _begin(self, request):
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8", "x-engine": self.name})
        await response.prepare(request)
        return response

    async def _write(self, request, *pieces):
        response = await self._begin(request)
        for piece in pieces:
            await response.write(piece)
            await asyncio.sleep(0)
        return response

    async def _good(self, request, body):
        if not body.get("stream"):
            answer = {"choices": [{"index": 0, "text": "".join(WORDS), "finish_reason": "stop"}], "usage": USAGE,
                      "metrics": {"speculative_decoding": COUNTS}}  # fmt: skip
            return web.json_response(answer)
        return await self._write(request, stream_bytes())

    async def _cut_anywhere(self, request, _body):
        whole = stream_bytes()
        return await self._write(request, *(whole[at : at + 7] for at in range(0, len(whole), 7)))

    async def _slow(self, request, _body):
        await self.release.wait()
        return await self._write(request, stream_bytes())

    async def _slow_after_first(self, request, _body):
        response = await self._write(request, sse(chunk(WORDS[0])))
        await self.release.wait()
        return response

    async def _hang_after_done(self, request, _body):
        response = await self._write(request, stream_bytes())
        await self.release.wait()
        return response

    async def _die_midway(self, request, _body):
        await self._write(request, sse(chunk(WORDS[0])), sse(chunk(WORDS[1])), b'data: {"choi')
        await self.release.wait()
        request.transport.abort()

    async def _scripted(self, request, _body):
        return await self._write(request, self.script)

    async def _scripted_then_die(self, request, _body):
        await self._write(request, self.script)
        await self.release.wait()  # a reset at once would take the bytes along
        request.transport.abort()

    async def _die_before(self, request, _body):
        request.transport.abort()

    async def _die_after_headers(self, request, _body):
        await self._begin(request)
        request.transport.abort()

    async def _role_then_die(self, request, _body):
        await self._write(request, sse({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}))
        request.transport.abort()

    async def _error_500(self, _request, _body):
        return web.json_response({"error": {"message": "boom"}}, status=500)

    async def _error_400(self, _request, _body):
        return web.json_response({"error": {"message": "bad prompt"}}, status=400)

    async def _empty(self, request, body):
        if not body.get("stream"):
            return web.json_response({"choices": [{"index": 0, "text": "", "finish_reason": "stop"}]})
        return await self._write(request, b"data: [DONE]\n\n")

    async def _broken_first(self, request, _body):
        return await self._write(request, b"data: {not json\n\n", b"data: [DONE]\n\n")

    async def _broken_later(self, request, _body):
        return await self._write(
            request, sse(chunk("a")), b'data: {"x": NaN}\n\n', sse(chunk("b", "stop")), b"data: [DONE]\n\n"
        )


@dataclass
class Gateway:
    """A running gateway and a client session."""

    url: str
    session: aiohttp.ClientSession
    state_dir: object
    runner: web.AppRunner

    async def put(self, route):
        """Put a route; return status and answer."""
        async with self.session.put(f"{self.url}/-/route", json=route.to_record()) as answer:
            return answer.status, await answer.json()

    async def status(self):
        """Return the state of the route."""
        async with self.session.get(f"{self.url}/-/route") as answer:
            return await answer.json()

    async def outcomes(self, count, after=0):
        """Wait until `count` outcomes are there, and return them."""
        found, epoch = [], None
        async with asyncio.timeout(20):
            while len(found) < count:
                query = {"after": after, "wait_s": 5, "epoch": epoch or (await self.status())["epoch"]}
                async with self.session.get(f"{self.url}/-/outcomes", params=query) as answer:
                    page = await answer.json()
                found, after, epoch = found + page["outcomes"], page["next"], page["epoch"]
        return found

    def complete(self, *, stream=True, key="k", request_id="r-1", **more):
        """Open a completion."""
        body = {"prompt": "hi", "max_tokens": 20, "stream": stream, **more}
        headers = {"x-specops-key": key, "x-request-id": request_id}
        return self.session.post(f"{self.url}/v1/completions", json=body, headers=headers)

    async def ask(self, **more):
        """Send a completion; return status, headers and bytes."""
        async with self.complete(**more) as answer:
            return answer.status, answer.headers, await answer.read()


async def listen(runner):
    """Start a runner on a free port; return its URL."""
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    return f"http://127.0.0.1:{runner.addresses[0][1]}"


@pytest.fixture
async def make_engine():
    """Start stub engines."""
    runners = []

    async def make(mode="good", name="stub"):
        stub = Stub(mode=mode, name=name)
        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", "/{rest:.*}", stub.answer)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1, access_log=None)
        stub.url = await listen(runner)
        runners.append(runner)
        return stub

    yield make
    for runner in runners:
        await runner.cleanup()


@pytest.fixture
async def make_gateway(tmp_path):
    """Start gateways; the same state folder unless told otherwise."""
    runners = []
    session = aiohttp.ClientSession()

    async def make(**settings):
        config = GatewayConfig(**({"port": 0, "state_dir": tmp_path / "state", "drain_s": 0.1} | settings))
        runner = make_runner(config)
        runners.append(runner)
        return Gateway(await listen(runner), session, config.state_dir, runner)

    yield make
    await session.close()
    for runner in runners:
        await runner.cleanup()


@pytest.fixture
async def gateway(make_gateway):
    """One gateway without a route."""
    return await make_gateway()


@pytest.fixture
def refused_url():
    """Return a URL on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


@pytest.fixture
def make_route():
    """Build a route from stubs or URLs."""

    def make(baseline, candidate=None, *, weight=0.0, mirror=0.0, revision=1, below=None):
        return Route(
            revision=revision, baseline_url=getattr(baseline, "url", baseline), baseline_release="plain-1",
            candidate_url=getattr(candidate, "url", candidate), candidate_release="sd-1" if candidate else None,
            rollout_id="ro-1", weight=weight, mirror=mirror, speculate_below=below,
        )  # fmt: skip

    return make


@pytest.fixture
def whole_stream():
    """Return the bytes of a good stream."""
    return stream_bytes()


@pytest.fixture
def counts():
    """Return the acceptance counts every good answer carries."""
    return COUNTS
