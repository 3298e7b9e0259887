"""A greedy stream whose candidate dies is finished by the baseline, with nothing doubled, missing or made up."""

import asyncio
import contextlib
import hashlib
import itertools
import json
import re
import signal
import subprocess
import sys

import pytest
from aiohttp import web

from specops.gateway.takeover import Cut, Splice, is_replayable

WORDS = ("Zwölf", " 日本", "語 👩‍🚀", " e\u0301", " end")
TEXT = "".join(WORDS)
PLAIN = tuple(TEXT)  # the baseline: one character per event
ROUNDS = (TEXT[:4], TEXT[4:11], TEXT[11:12], TEXT[12:])  # speculation: several at once, and other borders
GREEDY = {"prompt": "hi", "max_tokens": 20, "stream": True, "temperature": 0}
USAGE = {"prompt_tokens": 5, "completion_tokens": 9, "total_tokens": 14}


def sse(value):
    """Return one event."""
    return b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n"


def piece(text, *, chat, first=False, finish=None):
    """Return one event with text."""
    held = {"delta": ({"role": "assistant"} if first else {}) | {"content": text}} if chat else {"text": text}
    return sse({"id": "c-r1", "choices": [{"index": 0, **held, "logprobs": None, "finish_reason": finish}]})


def answer(texts, *, chat=False):
    """Return the events of a whole answer; as in vLLM, the last text carries the finish."""
    last = len(texts) - 1
    parts = [piece(t, chat=chat, first=n == 0, finish="length" if n == last else None) for n, t in enumerate(texts)]
    return [*parts, sse({"id": "c-r1", "choices": [], "usage": USAGE}), b"data: [DONE]\n\n"]


def read(raw):
    """Return text, finish reasons, roles, usages and errors of a stream, and whether [DONE] is its end."""
    *events, end = [part.removeprefix(b"data: ") for part in raw.split(b"\n\n")[:-1]]
    values = [json.loads(e) for e in (events if end == b"[DONE]" else [*events, end])]
    choices = [c for v in values for c in v.get("choices", ())]
    return {
        "text": "".join(c.get("text") or c.get("delta", {}).get("content") or "" for c in choices),
        "finish": [c["finish_reason"] for c in choices if c["finish_reason"]],
        "roles": [c["delta"]["role"] for c in choices if "role" in c.get("delta", {})],
        "usages": [v["usage"] for v in values if "usage" in v],
        "errors": [v["error"]["type"] for v in values if "error" in v],
        "done": end == b"[DONE]",
    }


@pytest.fixture
def break_off(gateway):
    """Ask, let the candidate die once its whole events were delivered, and return the bytes of both parts."""

    async def ask(candidate, *, chat=False, body=GREEDY):
        candidate.release.clear()
        whole = candidate.script[: candidate.script.rfind(b"\n\n") + 2]
        path = "/v1/chat/completions" if chat else "/v1/completions"
        headers = {"x-request-id": "r-1"}
        async with gateway.session.post(f"{gateway.url}{path}", json=body, headers=headers) as got, asyncio.timeout(20):
            before = await got.content.readexactly(len(whole))
            candidate.release.set()
            return before, await got.content.read()

    return ask


@pytest.fixture
async def arms(gateway, make_engine, make_route):
    """Return a baseline and a candidate that dies after its script; all requests go to the candidate."""
    baseline, candidate = await make_engine("scripted", "plain"), await make_engine("scripted_then_die", "sd")
    baseline.script = b"".join(answer(PLAIN))
    candidate.script = piece(ROUNDS[0], chat=False)
    await gateway.put(make_route(baseline, candidate, weight=1.0))
    return baseline, candidate


@pytest.mark.parametrize("chat", [False, True])
@pytest.mark.parametrize("half", [b"", b'data: {"choices": [{"index": 0, "te'])
async def test_a_cut_anywhere_leaves_one_whole_answer(gateway, arms, break_off, make_route, *, chat, half):
    """After whichever event the candidate dies, the client ends up with the baseline's text, finish, usage and [DONE]."""
    baseline, candidate = arms
    baseline.script, events = b"".join(answer(PLAIN, chat=chat)), answer(ROUNDS, chat=chat)

    for delivered in range(1, len(events)):
        await gateway.put(make_route(baseline, candidate, weight=1.0, revision=delivered + 1))
        candidate.script = b"".join(events[:delivered]) + half
        before, after = await break_off(candidate, chat=chat)

        assert before == b"".join(events[:delivered])
        assert read(before + after) == {
            "text": TEXT, "finish": ["length"], "roles": ["assistant"] * chat, "usages": [USAGE], "errors": [], "done": True,
        }  # fmt: skip


async def test_only_the_event_across_the_boundary_is_rewritten(arms, break_off):
    """A role is not told twice, other fields stay, and every byte behind the boundary passes as it came."""
    baseline, candidate = arms
    events = answer((TEXT[:2], TEXT[2:9], TEXT[9:]), chat=True)
    baseline.script, candidate.script = b"".join(events), piece(TEXT[:5], chat=True, first=True)

    _, after = await break_off(candidate, chat=True)

    boundary, *rest = after.split(b"\n\n")
    assert json.loads(boundary.removeprefix(b"data: ")) == {
        "id": "c-r1", "choices": [{"index": 0, "delta": {"content": TEXT[5:9]}, "logprobs": None, "finish_reason": None}],
    }  # fmt: skip
    assert b"\n\n".join(rest) == b"".join(events[2:])


async def test_a_finish_is_kept_when_its_text_was_delivered(arms, break_off):
    """The candidate died between the last text and the finish: the client still learns why the answer ended."""
    _, candidate = arms
    candidate.script = piece(TEXT, chat=False)

    _, after = await break_off(candidate)

    assert read(after) | {"usages": 0} == {
        "text": "", "finish": ["length"], "roles": [], "usages": 0, "errors": [], "done": True,
    }  # fmt: skip


def compositions(text):
    """Return all ways to cut a text into pieces that are not empty."""
    borders = itertools.product((False, True), repeat=len(text) - 1)
    return [re.findall(r"[^|]+", "".join(c + "|" * b for c, b in zip(text, (*cut, False), strict=True))) for cut in borders]


@pytest.mark.parametrize("size", [1, 9, 10_000])
def test_every_chunking_joins_at_every_character(size):
    """However the baseline cuts its text and the network its events, the rest begins at the very character."""
    text = "aé日👩b"
    for delivered, chunks in itertools.product(range(1, len(text) + 1), compositions(text)):
        digest = hashlib.sha256(text[:delivered].encode()).hexdigest()
        cut = Cut(response=web.StreamResponse(), text_chars=delivered, text_sha256=digest, finish_reason=None, has_usage=False,
                  failure="broken_stream", detail="")  # fmt: skip
        splice, raw = Splice(cut), b"".join(answer(chunks))

        rest = b"".join(splice.take(raw[at : at + size]) for at in range(0, len(raw), size))

        seen = read(rest)
        assert (seen["text"], seen["finish"], seen["done"]) == (text[delivered:], ["length"], True)


@pytest.mark.parametrize(
    "texts",
    [("Zwölg", " and so on"), ("Zwö",), ("Zwo\u0308lf", " and so on"), ("",)],
    ids=["other", "shorter", "other normal form", "empty"],
)
async def test_another_text_of_the_baseline_never_reaches_the_client(gateway, arms, break_off, texts):
    """At a near-tie the arms may differ: then the stream ends with the error event, and the baseline is not blamed."""
    baseline, candidate = arms
    candidate.script, baseline.script = piece("Zwölf", chat=False), b"".join(answer(texts))

    _, after = await break_off(candidate)

    assert read(after) == {"text": "", "finish": [], "roles": [], "usages": [], "errors": ["broken_stream"], "done": False}
    first, second = await gateway.outcomes(2)
    assert (first["arm"], first["error"]) == ("candidate", "broken_stream")
    assert second["arm"] == "baseline"
    assert second["finish"] != "error"


@pytest.mark.parametrize(
    "change",
    [{"temperature": None}, {"temperature": 1}, {"temperature": 0.01}, {"n": 2}, {"return_token_ids": True}, {"logprobs": 0}],
    ids=str,
)
async def test_what_is_not_surely_the_same_again_is_not_taken_over(gateway, arms, break_off, change):
    """A sampled answer, or more than text, ends with the error event as ever, and the baseline is not asked."""
    baseline, candidate = arms

    _, after = await break_off(candidate, body=GREEDY | change)

    assert read(after)["errors"] == ["broken_stream"]
    assert baseline.seen == []
    assert len(await gateway.outcomes(1)) == 1


@pytest.mark.parametrize("held", [{"delta": {"tool_calls": [{"id": "t"}]}}, {"text": "a", "index": 1}], ids=str)
async def test_more_than_plain_text_delivered_is_not_taken_over(arms, break_off, held):
    """Tool calls and second choices cannot be joined by a count of characters."""
    baseline, candidate = arms
    candidate.script = sse({"choices": [{"index": 0, "finish_reason": None} | held]})

    _, after = await break_off(candidate)

    assert read(after)["errors"] == ["broken_stream"]
    assert baseline.seen == []


@pytest.mark.parametrize("mode", ["error_500", "error_400", "die_before", "die_after_headers", "empty", "good"])
async def test_a_baseline_that_fails_too_is_told(arms, break_off, mode):
    """Without a baseline to take over, the stream ends as before: one well-formed error event."""
    baseline, candidate = arms
    baseline.mode = mode

    _, after = await break_off(candidate)

    assert read(after) | {"text": ""} == {
        "text": "", "finish": [], "roles": [], "usages": [], "errors": ["broken_stream"], "done": False,
    }  # fmt: skip


async def test_an_absent_baseline_is_told(gateway, arms, break_off, make_route, refused_url):
    """Both engines are gone: one error event."""
    await gateway.put(make_route(refused_url, arms[1], weight=1.0, revision=2))

    _, after = await break_off(arms[1])

    assert read(after)["errors"] == ["broken_stream"]


async def test_a_baseline_that_dies_in_the_takeover_ends_with_one_error_event(gateway, arms):
    """What it gave so far stays, then the error event; there is no third attempt."""
    baseline, candidate = arms
    baseline.mode, baseline.script = "scripted_then_die", b"".join(answer(PLAIN)[:9])

    async with gateway.complete(temperature=0) as got, asyncio.timeout(10):
        before = await got.content.readexactly(len(candidate.script))
        candidate.release.set()
        joined = await got.content.readuntil(piece(TEXT[8], chat=False))
        baseline.release.set()
        after = await got.content.read()

    assert read(before + joined)["text"] == TEXT[:9]
    assert (read(after)["text"], read(after)["errors"]) == ("", ["broken_stream"])
    assert len(baseline.seen) == 1


async def test_outcomes_metrics_and_the_request(gateway, arms, break_off):
    """The candidate failed, the baseline answered in its place, with the same body; the count says so."""
    baseline, candidate = arms

    await break_off(candidate)

    first, second = await gateway.outcomes(2)
    assert (first["arm"], first["finish"], first["error"]) == ("candidate", "error", "broken_stream")
    assert (second["arm"], second["finish"], second["error"]) == ("baseline", "length", None)
    assert (second["retried_on_baseline"], second["assigned"]) == (True, "candidate")
    assert second["text_sha256"] == hashlib.sha256(TEXT.encode()).hexdigest()
    assert 0 < second["ttft_s"] <= second["e2e_s"] < first["e2e_s"] + second["e2e_s"]
    assert baseline.seen[0][1] == candidate.seen[0][1]
    async with gateway.session.get(f"{gateway.url}/metrics") as page:
        assert 'specops_gateway_takeovers_total{result="complete"} 1' in await page.text()


async def test_the_guard_does_not_wait_for_takeovers(gateway, arms):
    """Three cut streams trip the guard while the baseline has yet to give its first token."""
    baseline, candidate = arms
    baseline.mode = "slow"
    async with contextlib.AsyncExitStack() as stack, asyncio.timeout(10):
        streams = [await stack.enter_async_context(gateway.complete(temperature=0, request_id=f"r{n}")) for n in range(3)]
        for stream in streams:
            await stream.content.readexactly(len(candidate.script))

        candidate.release.set()

        assert {o["arm"] for o in await gateway.outcomes(3)} == {"candidate"}
        assert "broken_stream" in (await gateway.status())["tripped"]
        baseline.release.set()


@pytest.mark.parametrize("mode", ["slow", "scripted_then_die"])
async def test_a_client_that_leaves_in_a_takeover_stops_the_baseline(gateway, arms, mode):
    """Before the baseline's first token as well as after: it is no failure of the baseline, and stays one of the candidate."""
    baseline, candidate = arms
    baseline.mode, baseline.script = mode, b"".join(answer(PLAIN)[:9])

    async with gateway.complete(temperature=0) as got, asyncio.timeout(10):
        await got.content.readexactly(len(candidate.script))
        candidate.release.set()
        await baseline.started.wait()
        if mode != "slow":
            await got.content.readuntil(piece(TEXT[8], chat=False))
        got.close()
        await baseline.cancelled.wait()

    outcomes = await gateway.outcomes(2)
    assert [(o["arm"], o["finish"]) for o in outcomes] == [("candidate", "error"), ("baseline", "abort")]


@pytest.mark.parametrize(
    ("change", "expected"),
    [({}, True), ({"temperature": 0.0}, True), ({"n": 1}, True), ({"logprobs": None}, True), ({"logprobs": False}, True),
     ({"prompt": [1, 2]}, True), ({"temperature": False}, False), ({"temperature": "0"}, False), ({"stream": 1}, False),
     ({"prompt": ["a", "b"]}, False), ({"top_logprobs": 3}, False), ({"best_of": 2}, False), ({"n": True}, False)],
    ids=str,
)  # fmt: skip
def test_what_can_be_replayed(change, expected):
    """One streamed greedy answer of plain text, said so in so many words."""
    assert is_replayable(json.dumps(GREEDY | change).encode()) is expected


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\x1f\x8b\x08", b'{"stream": true}'])
def test_what_cannot_be_read_is_not_replayed(body):
    """No JSON object, or one without a temperature (the engine's default samples)."""
    assert not is_replayable(body)


DYING = """
import asyncio, sys
async def serve(reader, writer):
    await reader.readuntil(b"\\r\\n\\r\\n")
    event = sys.argv[1].encode() + b"\\n\\n"
    writer.write(b"HTTP/1.1 200 OK\\r\\ncontent-type: text/event-stream\\r\\ntransfer-encoding: chunked\\r\\n\\r\\n")
    writer.write(b"%x\\r\\n%s\\r\\n" % (len(event), event))
    await asyncio.sleep(60)
async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
"""


@pytest.mark.flow
async def test_kill_9_of_the_candidate_is_no_error_for_the_client(gateway, arms, make_route):
    """SIGKILL while it streams: this client gets the whole answer, and the next request trips the guard at once."""
    event = piece(ROUNDS[0], chat=False)
    engine = subprocess.Popen([sys.executable, "-c", DYING, event.decode().strip()], stdout=subprocess.PIPE)  # noqa: ASYNC220
    url = f"http://127.0.0.1:{int(await asyncio.to_thread(engine.stdout.readline))}"
    await gateway.put(make_route(arms[0], url, weight=1.0, revision=2))

    async with gateway.complete(temperature=0) as got:
        before = await got.content.readexactly(len(event))
        engine.send_signal(signal.SIGKILL)
        after = await got.read()

    assert (read(before + after)["text"], read(before + after)["done"]) == (TEXT, True)
    assert (await gateway.ask(temperature=0))[0] == 200
    assert "unreachable" in (await gateway.status())["tripped"]
    engine.stdout.close()
    await asyncio.to_thread(engine.wait)
