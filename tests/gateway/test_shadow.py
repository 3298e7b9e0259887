"""Mirrored requests: paired, limited, and of no consequence for the primary."""

import asyncio


async def test_a_mirrored_request_pairs_by_id(gateway, make_engine, make_route):
    """The candidate gets the same body under the same id; the client gets the baseline's answer."""
    baseline, candidate = await make_engine("good", "plain"), await make_engine("good", "sd")
    await gateway.put(make_route(baseline, candidate, mirror=1.0))

    _, headers, _ = await gateway.ask(request_id="r-7")

    assert headers["x-engine"] == "plain"
    by_kind = {o["kind"]: o for o in await gateway.outcomes(2)}
    live, shadow = by_kind["live"], by_kind["shadow"]
    assert (live["arm"], shadow["arm"]) == ("baseline", "candidate")
    assert live["request_id"] == shadow["request_id"] == "r-7"
    assert live["text_sha256"] == shadow["text_sha256"]
    assert baseline.seen[0][1] == candidate.seen[0][1]
    assert candidate.seen[0][0].headers["x-request-id"] == "r-7"


async def test_copies_beyond_the_limit_are_dropped_and_counted(make_gateway, make_engine, make_route):
    """A candidate that hangs takes `shadow_limit` copies and slows no answer."""
    gateway = await make_gateway(shadow_limit=2)
    candidate = await make_engine("slow")
    await gateway.put(make_route(await make_engine(), candidate, mirror=1.0))

    async with asyncio.timeout(10):
        statuses = [(await gateway.ask(request_id=f"r{n}"))[0] for n in range(5)]

    assert statuses == [200] * 5
    assert len(candidate.seen) == 2
    async with gateway.session.get(f"{gateway.url}/metrics") as answer:
        assert "specops_gateway_shadow_drops_total 3" in await answer.text()


async def test_a_copy_that_takes_too_long_is_a_timeout(make_gateway, make_engine, make_route):
    """The time limit cuts the engine's connection and is recorded."""
    gateway = await make_gateway(shadow_time_limit_s=0.05)
    candidate = await make_engine("slow")
    await gateway.put(make_route(await make_engine(), candidate, mirror=1.0))

    await gateway.ask()

    shadow = next(o for o in await gateway.outcomes(2) if o["kind"] == "shadow")
    assert (shadow["finish"], shadow["error"]) == ("error", "timeout")
    async with asyncio.timeout(5):
        await candidate.cancelled.wait()


async def test_a_dead_candidate_stops_the_mirror(gateway, make_engine, make_route, refused_url):
    """The first refused copy trips the guard: no more copies, and the clients never notice."""
    await gateway.put(make_route(await make_engine(), refused_url, weight=0.0, mirror=1.0))

    assert (await gateway.ask())[0] == 200
    await gateway.outcomes(2)

    status = await gateway.status()
    assert (status["effective_mirror"], status["tripped"] is not None) == (0.0, True)
    await gateway.ask(request_id="r-2")
    assert [o["kind"] for o in await gateway.outcomes(3)].count("shadow") == 1
