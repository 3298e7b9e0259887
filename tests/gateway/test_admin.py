"""The gateway's own endpoints over HTTP, and the synchronous client that calls them."""

import asyncio
import socket

import pytest

from specops.errors import GatewayUnavailable, IllegalTransition, InvalidInput
from specops.gateway.admin import is_loopback
from specops.gateway.app import GatewayConfig, serve
from specops.gateway.client import GatewayClient


async def test_routes_apply_by_revision(gateway, make_engine, make_route):
    """A new route applies, the same again is fine, a lower one is a 409."""
    route = make_route(await make_engine(), revision=2)

    assert await gateway.put(route) == (200, {"applied": True, "revision": 2})
    assert (await gateway.put(route))[0] == 200
    status, answer = await gateway.put(make_route("http://x", revision=1))

    assert status == 409
    assert "expected more than 2" in answer["error"]["message"]
    assert (await gateway.status())["route"] == route.to_record()


async def test_a_trip_holds_until_the_next_revision(gateway, make_engine, make_route, refused_url):
    """The first refused request trips without a client error; the next route re-arms."""
    baseline, candidate = await make_engine(), await make_engine()
    await gateway.put(make_route(baseline, refused_url, weight=1.0, revision=1))

    assert [(await gateway.ask())[0] for _ in range(3)] == [200, 200, 200]

    outcomes = await gateway.outcomes(4)
    assert [o["arm"] for o in outcomes] == ["candidate", "baseline", "baseline", "baseline"]
    assert [o["retried_on_baseline"] for o in outcomes] == [False, True, False, False]
    await gateway.put(make_route(baseline, candidate, weight=1.0, revision=2))
    assert (await gateway.ask())[1]["x-specops-arm"] == "candidate"


async def test_a_restart_keeps_the_route_and_changes_the_epoch(make_gateway, make_engine, make_route):
    """A second process on the same folder serves at once, under a new epoch."""
    first = await make_gateway()
    await first.put(make_route(await make_engine()))

    second = await make_gateway()

    assert (await second.ask())[0] == 200
    before, after = await first.status(), await second.status()
    assert before["route"] == after["route"]
    assert before["epoch"] != after["epoch"]


@pytest.mark.parametrize(
    "body", ["[]", "{", '{"revision": 1}', '{"revision":1,"baseline_url":"u","baseline_release":"r","weight":2}']
)
async def test_bad_routes_are_refused(gateway, body):
    """What is no route is a 400, and nothing changes."""
    async with gateway.session.put(f"{gateway.url}/-/route", data=body) as answer:
        assert answer.status == 400

    assert (await gateway.status())["route"] is None


async def test_own_paths_are_never_passed_on(gateway, make_engine, make_route):
    """An unknown /-/ path is the gateway's 404; a bad number is a 400."""
    engine = await make_engine()
    await gateway.put(make_route(engine))

    for path, expected in (
        ("/-/nothing", 404),
        ("/-/outcomes?wait_s=x", 400),
        ("/-/outcomes?after=-1", 400),
        ("/-/health", 200),
    ):
        async with gateway.session.get(gateway.url + path) as answer:
            assert answer.status == expected
    assert engine.seen == []


async def test_metrics_tell_arms_and_trips(gateway, make_engine, make_route, refused_url):
    """Requests by arm and finish, retries, weight, trip and the time to the first token."""
    await gateway.put(make_route(await make_engine(), refused_url, weight=1.0))
    await gateway.ask()

    async with gateway.session.get(f"{gateway.url}/metrics") as answer:
        text = await answer.text()

    assert 'specops_gateway_requests_total{arm="candidate",finish="error"} 1' in text
    assert 'specops_gateway_requests_total{arm="baseline",finish="length"} 1' in text
    assert 'specops_gateway_ttft_seconds_count{arm="baseline"} 1' in text
    for line in ("retries_total 1", "weight 0.0", "tripped 1", "route_revision 1"):
        assert f"specops_gateway_{line}\n" in text


async def test_client_speaks_to_the_gateway(gateway, make_engine, make_route):
    """The synchronous client puts routes, reads the state and polls typed outcomes."""
    route = make_route(await make_engine())
    with GatewayClient(gateway.url) as client:
        await asyncio.to_thread(client.put_route, route)
        with pytest.raises(IllegalTransition):
            await asyncio.to_thread(client.put_route, make_route("http://x", revision=0))
        await gateway.ask()

        batch = await asyncio.to_thread(client.poll, 0, None, 5.0)

        assert (await asyncio.to_thread(client.status))["epoch"] == batch.epoch
        assert ([o.completion_tokens for o in batch.outcomes], batch.next, batch.dropped) == ([20], 1, 0)


async def test_client_reconnects(make_gateway):
    """A connection that the gateway has closed is opened anew; a gateway that is gone is named."""
    gateway = await make_gateway()
    with GatewayClient(gateway.url) as client:
        await asyncio.to_thread(client.status)
        client._commands.connection.sock.shutdown(socket.SHUT_RDWR)

        assert (await asyncio.to_thread(client.status))["route"] is None


def test_client_names_an_absent_gateway(refused_url):
    """No answer is GatewayUnavailable, with the address."""
    with pytest.raises(GatewayUnavailable, match=refused_url):
        GatewayClient(refused_url).status()
    with pytest.raises(InvalidInput, match="expected http://host:port"):
        GatewayClient("localhost:1")


def test_only_loopback_peers_are_ours():
    """/-/ has no authentication: other machines, and peers without an address, are strangers."""
    assert [is_loopback(a) for a in ("127.0.0.1", "::1", "10.0.0.2", "", None)] == [True, True, False, False, False]


def test_a_port_in_use_is_one_clear_line(tmp_path):
    """The error names the port and the way out."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        with pytest.raises(InvalidInput, match=f"port {port} on 127.0.0.1 is in use"):
            serve(GatewayConfig(port=port, state_dir=tmp_path))
