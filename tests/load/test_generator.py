"""The generator against a small real server that speaks the stream's shape."""

import asyncio
import contextlib
import functools
import hashlib
import json

import pytest
from aiohttp import web

from specops.errors import InvalidInput
from specops.load.generator import LoadGenerator, Prompt

SPECULATION = {"num_spec_steps": 2, "num_draft_tokens": 6, "num_accepted_draft_tokens": 3, "acceptance_histogram": [0, 1, 1, 0]}
USAGE = {"prompt_tokens": 4, "completion_tokens": 6}


@contextlib.asynccontextmanager
async def upstream(handler):
    """Serve a handler on a free port."""
    app = web.Application()
    app.router.add_post("/v1/completions", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def answering(request, *, lines=None):
    """Stream an answer, or only its first lines."""
    events = [
        {"choices": [{"text": "ab"}]},
        {"choices": [{"text": "c", "finish_reason": "length"}]},
        {"choices": [], "usage": USAGE, "metrics": {"speculative_decoding": SPECULATION, "new_key": 1}},
    ]
    response = web.StreamResponse(headers={"x-specops-arm": "candidate"})
    await response.prepare(request)
    for event in events[:lines]:
        await response.write(b"data: " + json.dumps(event).encode() + b"\n\n")
    if lines is None:
        await response.write(b"data: [DONE]\n\n")
    return response


async def test_a_record_holds_what_the_stream_said():
    """Arm, counts, acceptance, digest and both kinds of latency."""
    seen = []
    async with upstream(answering) as url:
        report = await LoadGenerator(url, on_finished=seen.append).run([Prompt(request_id="r1", prompt="x")], [0.0])

    (record,) = report.sent
    assert seen == [record]
    assert (record.status, record.arm, record.finish, record.error) == (200, "candidate", "length", None)
    assert (record.completion_tokens, record.acceptance.accepted) == (6, 3)
    assert record.text_sha256 == hashlib.sha256(b"abc").hexdigest()
    assert record.intended_at <= record.sent_at <= record.first_byte_at <= record.ended_at
    assert record.e2e_from_intended_s == pytest.approx(record.e2e_s + record.lag_s, abs=1e-5)


async def test_the_loop_is_open():
    """Requests leave on time although none of the earlier ones was answered."""
    arrived, release = [], asyncio.Event()

    async def slow(request):
        arrived.append((await request.json(), request.headers["x-request-id"], request.headers["x-specops-key"]))
        if len(arrived) == 5:
            release.set()  # only now may anybody be answered: a closed loop would wait for ever
        await release.wait()
        return await answering(request)

    async with upstream(slow) as url:
        prompts = [Prompt(request_id=f"r{i}", prompt=(1, 2), key="session", options={"max_tokens": 7}) for i in range(5)]
        report = await LoadGenerator(url).run(prompts, [i * 0.01 for i in range(5)])

    assert (report.errors, report.asked, len(report.sent)) == (0, 5, 5)
    body, name, key = arrived[0]
    assert (body["prompt"], body["max_tokens"], body["stream_options"]) == ([1, 2], 7, {"include_usage": True})
    assert (name, key) == ("r0", "session")
    assert report.is_on_time(limit_s=5)


async def test_a_broken_stream_is_an_error_with_its_status():
    """An end without [DONE] is not an answer, though the status was 200."""
    async with upstream(functools.partial(answering, lines=1)) as url:
        (record,) = (await LoadGenerator(url).run([Prompt(request_id="r", prompt="x")], [0.0])).sent

    assert (record.status, record.error, record.text_sha256) == (200, "stream ended before [DONE]", None)


async def test_refusals_and_silence_are_errors():
    """HTTP 4xx keeps its status; a refused connection has none."""

    async def refuse(request):
        return web.json_response({"error": {"message": "no"}}, status=400)

    async with upstream(refuse) as url:
        (refused,) = (await LoadGenerator(url).run([Prompt(request_id="r", prompt="x")], [0.0])).sent
    (silent,) = (await LoadGenerator("http://127.0.0.1:9").run([Prompt(request_id="r", prompt="x")], [0.0])).sent

    assert refused.status == 400
    assert refused.error.startswith("http 400")
    assert silent.status == 0
    assert "ClientConnectorError" in silent.error


async def test_stop_ends_an_endless_schedule():
    """What is in flight still ends; nothing new leaves."""

    def prompts():
        number = 0
        while True:
            number += 1
            yield Prompt(request_id=f"r{number}", prompt="x")

    def times():
        at = 0.0
        while True:
            yield at
            at += 0.01

    async with upstream(answering) as url:
        generator = LoadGenerator(url, on_finished=lambda record: generator.stop() if record.request_id == "r3" else None)
        report = await generator.run(prompts(), times())

    assert 3 <= report.asked == len(report.sent)
    assert report.errors == 0


async def test_a_generator_runs_once():
    """Two runs would mix their records."""
    generator = LoadGenerator("http://127.0.0.1:9")
    await generator.run([], [])

    with pytest.raises(InvalidInput, match="runs once"):
        await generator.run([], [])
