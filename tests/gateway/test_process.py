"""A gateway as a real process: killed, restarted, stopped."""

import socket
import sys

import pytest

from specops.errors import GatewayUnavailable
from specops.gateway.client import GatewayClient
from specops.gateway.process import GatewayProcess

SERVE = """
import sys, pathlib
from specops.gateway.app import GatewayConfig, serve
serve(GatewayConfig(port=int(sys.argv[2]), state_dir=pathlib.Path(sys.argv[4])))
"""
pytestmark = pytest.mark.flow


@pytest.fixture
def process(tmp_path):
    """Return a process that serves without the command line."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = GatewayProcess(port=port, state_dir=tmp_path, launcher=(sys.executable, "-c", SERVE))
    yield process
    process.kill()


def test_a_killed_gateway_comes_back_with_its_route(process, make_route):
    """SIGKILL loses outcomes, which the epoch tells, but not the route; SIGTERM ends with 0."""
    client = GatewayClient(process.base_url)
    process.start().wait_ready()
    client.put_route(make_route("http://127.0.0.1:1", revision=7))
    before = client.status()

    process.kill()
    assert process.pid is None
    process.start().wait_ready()

    after = client.status()
    assert after["route"] == before["route"]
    assert after["epoch"] != before["epoch"]
    client.close()
    assert process.stop() == 0


def test_a_process_that_ends_at_once_shows_its_log(process):
    """The error of `wait_ready` carries the end of the log."""
    process.launcher = (sys.executable, "-c", "raise SystemExit('no such thing')")

    with pytest.raises(GatewayUnavailable, match=r"ended while starting.*no such thing"):
        process.start().wait_ready()
