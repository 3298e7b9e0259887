"""The data plane against stub engines: what the client gets, what the engine sees, what is recorded."""

import asyncio
import contextlib
import hashlib
import io
import json
import re

import pytest
from yarl import URL

from specops.core.arms import assign
from specops.core.outcome import Outcome
from specops.core.pairing import is_half


async def test_stream_bytes_pass_untouched(gateway, make_engine, make_route, whole_stream):
    """The client gets the engine's bytes, also when events and characters are cut anywhere on the way."""
    for revision, mode in enumerate(("good", "cut_anywhere"), start=1):
        await gateway.put(make_route(await make_engine(mode), revision=revision))

        status, headers, body = await gateway.ask()

        assert (status, body) == (200, whole_stream)
        assert headers["x-specops-arm"] == "baseline"
        assert (headers["x-request-id"], headers["x-engine"]) == ("r-1", "stub")


async def test_request_reaches_the_engine_untouched(gateway, make_engine, make_route):
    """Path, query, body and end-to-end headers arrive as sent; hop-by-hop headers do not."""
    engine = await make_engine()
    await gateway.put(make_route(engine))
    raw = b'{ "prompt":"\xc3\xa9",  "stream": false }'
    headers = {"Authorization": "Bearer t", "Connection": "x-private", "x-private": "1", "Content-Type": "application/json"}

    url = URL(f"{gateway.url}/v1/completions?a=%2F&b=1", encoded=True)
    async with gateway.session.post(url, data=raw, headers=headers) as answer:
        assert answer.status == 200

    request, body = engine.seen[0]
    assert (request.raw_path, body) == ("/v1/completions?a=%2F&b=1", raw)
    assert request.headers["Authorization"] == "Bearer t"
    assert "x-private" not in request.headers
    assert request.headers.get("Connection") != "x-private"
    assert request.headers["x-request-id"] == answer.headers["x-request-id"]


@pytest.mark.parametrize("stream", [True, False])
async def test_an_answer_becomes_one_outcome(gateway, make_engine, make_route, counts, stream):
    """Usage, counts, digest and times are read on the side from streams and whole answers alike."""
    await gateway.put(make_route(await make_engine(), await make_engine(), weight=1.0))

    await gateway.ask(stream=stream)

    [outcome] = await gateway.outcomes(1)
    text = "".join(f" w{n}é" for n in range(20))
    assert outcome["arm"] == "candidate"
    assert outcome["release_id"] == "sd-1"
    assert outcome["finish"] == ("length" if stream else "stop")
    assert (outcome["prompt_tokens"], outcome["completion_tokens"], outcome["in_flight"]) == (5, 20, 1)
    assert outcome["text_sha256"] == hashlib.sha256(text.encode()).hexdigest()
    assert outcome["acceptance"]["accepted"] == counts["num_accepted_draft_tokens"]
    assert 0 < outcome["ttft_s"] <= outcome["e2e_s"]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("mode", "error"),
    [("error_500", "engine_5xx"), ("die_before", "engine_unreachable"), ("die_after_headers", "engine_unreachable"),
     ("role_then_die", "broken_stream"), ("empty", "empty_answer"), ("broken_first", "malformed_stream")],
)  # fmt: skip
async def test_candidate_failing_first_is_retried(gateway, make_engine, make_route, *, mode, error, stream):
    """Before the first content a failure of the candidate is invisible to the client, and recorded as two outcomes."""
    await gateway.put(make_route(await make_engine("good", "plain"), await make_engine(mode), weight=1.0))

    status, headers, body = await gateway.ask(stream=stream)

    assert (status, headers["x-specops-arm"]) == (200, "baseline")
    assert b"error" not in body
    first, second = await gateway.outcomes(2)
    assert (first["arm"], first["finish"], first["error"]) == ("candidate", "error", error)
    assert (second["arm"], second["retried_on_baseline"], second["assigned"]) == ("baseline", True, "candidate")
    assert second["finish"] in {"stop", "length"}


async def test_stream_dying_midway_ends_with_one_error_event(gateway, make_engine, make_route):
    """After the first byte nothing is retried: whole events, then a well-formed error, then a clean end."""
    baseline, candidate = await make_engine(), await make_engine("die_midway")
    await gateway.put(make_route(baseline, candidate, weight=1.0))

    async with gateway.complete() as answer:
        first = await answer.content.readuntil(b"\n\n")
        candidate.release.set()
        rest = await answer.read()

    events = [json.loads(part.removeprefix(b"data: ")) for part in (first + rest).split(b"\n\n") if part]
    assert [event["choices"][0]["text"] for event in events[:-1]] == [" w0é", " w1é"]
    assert events[-1]["error"]["type"] == "broken_stream"
    assert baseline.seen == []
    [outcome] = await gateway.outcomes(1)
    assert (outcome["finish"], outcome["error"]) == ("error", "broken_stream")


async def test_bad_json_midway_is_recorded_not_hidden(gateway, make_engine, make_route):
    """NaN is no JSON: the bytes pass on, the outcome says what they are."""
    await gateway.put(make_route(await make_engine(), await make_engine("broken_later"), weight=1.0))

    status, _, body = await gateway.ask()

    assert status == 200
    assert b"NaN" in body
    [outcome] = await gateway.outcomes(1)
    assert (outcome["finish"], outcome["error"]) == ("error", "nan_text")


async def test_a_4xx_is_the_clients_and_never_trips(gateway, make_engine, make_route):
    """A rejected prompt is passed on from the candidate and leaves the guard alone."""
    baseline = await make_engine()
    await gateway.put(make_route(baseline, await make_engine("error_400"), weight=1.0))

    for _ in range(4):
        status, _, body = await gateway.ask()
        assert (status, json.loads(body)) == (400, {"error": {"message": "bad prompt"}})

    assert {o["finish"] for o in await gateway.outcomes(4)} == {"rejected"}
    assert (await gateway.status())["tripped"] is None
    assert baseline.seen == []


async def test_baseline_failures_are_the_clients_to_see(gateway, make_engine, make_route, refused_url):
    """A 5xx of the baseline passes as it is; an absent baseline is a 502 that says so."""
    await gateway.put(make_route(await make_engine("error_500")))
    status, _, body = await gateway.ask()
    assert (status, json.loads(body)) == (500, {"error": {"message": "boom"}})

    await gateway.put(make_route(refused_url, revision=2))
    status, _, body = await gateway.ask()
    assert (status, json.loads(body)["error"]["type"]) == (502, "engine_unreachable")


async def test_no_route_says_how_to_set_one(gateway):
    """Without a route the answer is a 503 that names the way out."""
    status, _, body = await gateway.ask()

    assert status == 503
    assert "PUT /-/route" in json.loads(body)["error"]["message"]


async def test_a_key_stays_on_its_arm(gateway, make_engine, make_route):
    """Every key goes where `assign` puts it, each time."""
    await gateway.put(make_route(await make_engine(), await make_engine(), weight=0.5))

    for key in ("a", "b", "c", "d", "e", "f"):
        for attempt in range(2):
            _, headers, _ = await gateway.ask(key=key, request_id=f"{key}-{attempt}")
            assert headers["x-specops-arm"] == assign(key, 0.5, salt="ro-1")


async def test_only_judged_paths_reach_a_candidate(gateway, make_engine, make_route):
    """Other paths pass to the baseline, with no outcome."""
    baseline, candidate = await make_engine(), await make_engine()
    await gateway.put(make_route(baseline, candidate, weight=1.0))

    async with gateway.session.get(f"{gateway.url}/v1/models") as answer:
        assert (await answer.json())["usage"]["completion_tokens"] == 20

    assert (len(baseline.seen), len(candidate.seen)) == (1, 0)
    async with gateway.session.get(f"{gateway.url}/-/outcomes", params={"wait_s": 0}) as answer:
        assert (await answer.json())["outcomes"] == []


@pytest.mark.parametrize("mode", ["slow", "slow_after_first"])
async def test_a_client_that_leaves_stops_the_engine(gateway, make_engine, make_route, mode):
    """A disconnect cuts the engine's connection, before the first token as well as midway; it is no error of the arm."""
    candidate = await make_engine(mode)
    await gateway.put(make_route(await make_engine(), candidate, weight=1.0))
    asking = asyncio.create_task(gateway.ask())
    await candidate.started.wait()

    asking.cancel()

    async with asyncio.timeout(5):
        await candidate.cancelled.wait()
    [outcome] = await gateway.outcomes(1)
    assert (outcome["finish"], outcome["error"]) == ("abort", "client_disconnect")
    assert (await gateway.status())["tripped"] is None


async def test_hanging_up_on_done_is_no_abort(gateway, make_engine, make_route):
    """Many clients close at [DONE], before the transport's own end; the answer was complete."""
    engine = await make_engine("hang_after_done")
    await gateway.put(make_route(engine))

    async with gateway.complete() as answer:
        await answer.content.readuntil(b"[DONE]\n\n")
        answer.close()

    async with asyncio.timeout(5):
        await engine.cancelled.wait()
    [outcome] = await gateway.outcomes(1)
    assert (outcome["finish"], outcome["error"]) == ("length", None)


async def test_large_prompts_pass_and_too_large_ones_do_not(gateway, make_engine, make_route):
    """The limit is 32 MiB: 2 MiB pass whole, 33 MiB are a 413."""
    engine = await make_engine()
    await gateway.put(make_route(engine))

    for size, expected in ((2 * 2**20, 200), (33 * 2**20, 413)):
        body = io.BytesIO(b'{"prompt": "' + b"x" * size + b'"}')
        async with gateway.session.post(f"{gateway.url}/v1/completions", data=body) as answer:
            assert answer.status == expected

    assert [len(body) for _, body in engine.seen] == [2 * 2**20 + 14]


async def test_in_flight_counts_the_request_itself(gateway, make_engine, make_route):
    """Two open at once: the first began alone, the second as the second."""
    engine = await make_engine("slow")
    await gateway.put(make_route(engine))
    first = asyncio.create_task(gateway.ask(request_id="a"))
    await engine.started.wait()
    engine.started.clear()
    second = asyncio.create_task(gateway.ask(request_id="b"))
    await engine.started.wait()

    engine.release.set()
    await asyncio.gather(first, second)
    await gateway.ask(request_id="c")

    assert {o["request_id"]: o["in_flight"] for o in await gateway.outcomes(3)} == {"a": 1, "b": 2, "c": 1}


async def test_open_requests_finish_when_the_gateway_stops(make_gateway, make_engine, make_route, whole_stream):
    """Draining waits for the engine; a long poll does not hold it up."""
    gateway, engine = await make_gateway(drain_s=30), await make_engine("slow")
    await gateway.put(make_route(engine))
    polling = asyncio.create_task(gateway.session.get(f"{gateway.url}/-/outcomes", params={"wait_s": 60}))
    asking = asyncio.create_task(gateway.ask())
    await engine.started.wait()

    stopping = asyncio.create_task(gateway.runner.cleanup())
    async with asyncio.timeout(10):
        (await polling).close()
        assert not stopping.done()
        engine.release.set()
        assert (await asking)[2] == whole_stream
        await stopping


async def read_request(reader):
    """Read one HTTP request to its end, or to the end of the connection."""
    with contextlib.suppress(asyncio.IncompleteReadError):
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(re.search(rb"(?i)content-length: (\d+)", head)[1]))


async def test_an_idle_connection_closed_by_the_engine_is_no_failure(gateway, make_route):
    """An engine that drops a kept connection on its second request gets it once more, on a fresh one."""
    served = []
    answer = b'{"choices": [{"text": "a", "finish_reason": "stop"}]}'
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(answer)

    async def once(reader, writer):
        await read_request(reader)
        served.append(1)
        writer.write(head + answer)
        await read_request(reader)
        writer.close()

    server = await asyncio.start_server(once, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    await gateway.put(make_route("http://127.0.0.1:1", url, weight=1.0))

    for n in range(3):
        assert (await gateway.ask(stream=False, request_id=f"r{n}"))[0] == 200

    assert len(served) == 3
    assert {o["finish"] for o in await gateway.outcomes(3)} == {"stop"}
    server.close()


async def test_a_full_candidate_is_left_to_itself(gateway, make_engine, make_route):
    """Below 2 in flight, itself included: the second request at once is shed, compared by nobody, mirrored to nobody."""
    baseline, candidate = await make_engine("good", "plain"), await make_engine("die_midway")
    await gateway.put(make_route(baseline, candidate, weight=1.0, mirror=1.0, below=2))

    async with gateway.complete(request_id="r-1") as answer:
        await answer.content.readuntil(b"\n\n")
        _, headers, _ = await gateway.ask(request_id="r-2")
        candidate.release.set()
        await answer.read()

    assert headers["x-specops-arm"] == "baseline"
    shed, failed = sorted(await gateway.outcomes(2), key=lambda outcome: outcome["arm"])
    assert (shed["arm"], shed["assigned"], shed["share"], shed["retried_on_baseline"]) == ("baseline", "candidate", None, False)
    assert (failed["arm"], failed["share"], failed["in_flight"]) == ("candidate", 1.0, 1)
    assert Outcome.from_record(shed).is_shed
    assert not is_half(Outcome.from_record(shed))
    assert len(candidate.seen) == 1


async def test_the_baselines_own_requests_are_not_compared_while_the_candidate_is_full(gateway, make_engine, make_route):
    """Only where both arms had a chance does the share say anything: shares of one side would bias every comparison."""
    baseline, candidate = await make_engine("good", "plain"), await make_engine("good")
    await gateway.put(make_route(baseline, candidate, weight=0.5, below=1))

    for i in range(12):
        await gateway.ask(key=f"k{i}", request_id=f"r{i}")

    outcomes = await gateway.outcomes(12)
    assert {o["arm"] for o in outcomes} == {"baseline"}
    assert {o["assigned"] for o in outcomes} == {"baseline", "candidate"}
    assert {o["share"] for o in outcomes} == {None}


@pytest.mark.parametrize("name", [b"x-request-id", b"x-specops-key", b"x-anything"])
async def test_header_bytes_that_are_no_text_hurt_nobody(gateway, make_engine, make_route, name):
    """The request is answered under an id of ours, no arm is blamed, and control can still read what happened."""
    await gateway.put(make_route(await make_engine(), await make_engine(), weight=1.0))
    body = b'{"prompt": "x"}'
    head = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: %d\r\n%s: \xff\xfe\r\n\r\n"

    url = URL(gateway.url)
    reader, writer = await asyncio.open_connection(url.host, url.port)
    writer.write(head % (len(body), name) + body)
    answer = await reader.read()
    writer.close()

    assert answer.startswith(b"HTTP/1.1 200 ")
    [outcome] = await gateway.outcomes(1)
    assert (outcome["arm"], outcome["error"], outcome["request_id"].isascii()) == ("candidate", None, True)
