"""The gateway as a process: assembles its parts, listens, and drains on SIGTERM.

Called by the command line, and by tests in process.

It is the data plane only: it serves without the control plane, from the last route it was given.
"""

import asyncio
import contextlib
import errno
import logging
import signal
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from specops.errors import InvalidInput
from specops.gateway.admin import Admin
from specops.gateway.exchange import Sender
from specops.gateway.exposition import Counters
from specops.gateway.proxying import Proxy
from specops.gateway.recording import Recorder
from specops.gateway.ring import CAPACITY, Ring
from specops.gateway.routing import Routing
from specops.gateway.shadow import LIMIT, TIME_LIMIT_S, Shadow

MAX_BODY_BYTES = 32 * 2**20

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayConfig:
    """Where a gateway listens and keeps its route.

    `drain_s`: how long open requests may go on after SIGTERM. `is_admin_remote`: let /-/ answer peers on other machines; there
    is no authentication, so leave it off unless the port is fenced otherwise.
    """

    host: str = "127.0.0.1"
    port: int
    state_dir: Path
    shadow_limit: int = LIMIT
    shadow_time_limit_s: float = TIME_LIMIT_S
    ring_capacity: int = CAPACITY
    drain_s: float = 30.0
    is_admin_remote: bool = False


def build_app(config: GatewayConfig) -> web.Application:
    """Return the application; connections open when it starts.

    Raises:
        InvalidRecord: the stored route is damaged.
    """
    routing, counters = Routing(config.state_dir), Counters()
    ring = Ring(uuid.uuid4().hex, config.ring_capacity)
    recorder = Recorder(ring=ring, counters=counters, routing=routing)
    sender = Sender()
    shadow = Shadow(sender=sender, recorder=recorder, limit=config.shadow_limit, time_limit_s=config.shadow_time_limit_s)
    proxy = Proxy(sender=sender, recorder=recorder, routing=routing, shadow=shadow)
    admin = Admin(routing=routing, ring=ring, counters=counters, is_remote_allowed=config.is_admin_remote)

    async def connections(_app: web.Application) -> AsyncIterator[None]:
        """Hold the connections to the engines while the application runs."""
        sender.open()
        yield
        await shadow.close()
        await sender.close()

    async def wake(_app: web.Application) -> None:
        """Answer the long polls that wait."""
        ring.wake()  # long polls must not hold up the drain

    app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[admin.guard])
    app.add_routes(
        [*admin.routes(), web.route("*", "/-/{rest:.*}", admin.get_unknown), web.route("*", "/{rest:.*}", proxy.handle)]
    )
    app.cleanup_ctx.append(connections)
    app.on_shutdown.append(wake)
    return app


def make_runner(config: GatewayConfig) -> web.AppRunner:
    """Return the runner with the settings that a proxy needs."""
    return web.AppRunner(
        build_app(config),
        handler_cancellation=True,  # a client that leaves before the first token must stop the engine
        auto_decompress=False,  # request bodies go on as they came
        access_log=None,
        shutdown_timeout=config.drain_s,
    )


def serve(config: GatewayConfig) -> None:
    """Serve until SIGTERM or SIGINT, then finish open requests and return.

    Raises:
        InvalidInput: the address cannot be listened on.
        InvalidRecord: the stored route is damaged.
    """
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(config))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415  # not on Windows
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


async def _serve(config: GatewayConfig) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError):  # Windows
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
    runner = make_runner(config)
    await runner.setup()
    try:
        await _listen(runner, config)
        _log.info("gateway listens on http://%s:%s", config.host, config.port)
        await stop.wait()
        _log.info("gateway drains for at most %s s", config.drain_s)
    finally:
        await runner.cleanup()


async def _listen(runner: web.AppRunner, config: GatewayConfig) -> None:
    try:
        await web.TCPSite(runner, config.host, config.port).start()
    except OSError as exc:
        if exc.errno == errno.EADDRINUSE:
            message = (
                f"port {config.port} on {config.host} is in use, expected a free one; stop that process or choose another port"
            )
        else:
            message = f"cannot listen on {config.host}:{config.port}: {exc.strerror or exc}; choose another host or port"
        raise InvalidInput(message) from exc
