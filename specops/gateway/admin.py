"""The gateway's own endpoints: /-/ for the control plane, /metrics for Prometheus. Called by `app`.

It has no authentication, so /-/ answers only peers on the loopback interface unless the configuration says otherwise.
"""

import ipaddress
import math
from dataclasses import dataclass

import orjson
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from specops.core.route import Route
from specops.errors import InvalidInput, InvalidRecord, SpecopsError, http_status
from specops.gateway.exposition import Counters, render
from specops.gateway.proxying import error_answer
from specops.gateway.ring import Ring
from specops.gateway.routing import Routing

MAX_WAIT_S = 60.0
MAX_LIMIT = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Admin:
    """Handlers of the gateway's own endpoints."""

    routing: Routing
    ring: Ring
    counters: Counters
    is_remote_allowed: bool = False

    def routes(self) -> list[web.RouteDef]:
        """Return the route table."""
        return [
            web.put("/-/route", self.put_route),
            web.get("/-/route", self.get_route),
            web.get("/-/outcomes", self.get_outcomes),
            web.get("/-/health", self.get_health),
            web.get("/metrics", self.get_metrics),
        ]

    async def put_route(self, request: web.Request) -> web.Response:
        """Apply a route: 200, or 409 when its revision is not higher."""
        route = _parse_route(await request.read())
        self.routing.put(route)
        return _json({"applied": True, "revision": route.revision})

    async def get_route(self, _request: web.Request) -> web.Response:
        """Tell the route in force and what the guard made of it."""
        routing = self.routing
        return _json(
            {
                "route": routing.route.to_record() if routing.route else None,
                "effective_weight": routing.effective_weight,
                "effective_mirror": routing.effective_mirror,
                "tripped": routing.tripped,
                "epoch": self.ring.epoch,
                "applied_at": routing.applied_at,
            }
        )

    async def get_outcomes(self, request: web.Request) -> web.Response:
        """Hand out outcomes after a sequence number, waiting for the first one if need be."""
        page = await self.ring.poll(
            after=int(_number(request, "after", 0, math.inf)),
            epoch=request.query.get("epoch") or None,
            limit=int(_number(request, "limit", 500, MAX_LIMIT)),
            wait_s=_number(request, "wait_s", 1, MAX_WAIT_S),
        )
        outcomes = [outcome.to_record() for outcome in page.outcomes]
        answer = {"epoch": page.epoch, "next": page.next, "dropped": page.dropped, "tripped": self.routing.tripped}
        return _json(answer | {"outcomes": outcomes})

    async def get_health(self, _request: web.Request) -> web.Response:
        """Tell that the process serves."""
        return _json({"status": "ok", "has_route": self.routing.route is not None, "epoch": self.ring.epoch})

    async def get_metrics(self, _request: web.Request) -> web.Response:
        """Return the Prometheus text."""
        text = render(self.counters, self.routing).encode()
        return web.Response(body=text, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    async def get_unknown(self, request: web.Request) -> web.Response:
        """Refuse an unknown /-/ path: the gateway's own space is never passed on."""
        return error_answer(404, "not_found", f"the gateway has no {request.method} {request.path}")

    @property
    def guard(self) -> Middleware:
        """The middleware that keeps strangers out and turns our errors into answers."""

        @web.middleware
        async def keep(request: web.Request, handler: Handler) -> web.StreamResponse:
            """Let a request through, or answer with what is wrong."""
            if not request.path.startswith("/-/"):
                return await handler(request)
            if not (self.is_remote_allowed or is_loopback(request.remote)):
                return error_answer(403, "forbidden", "/-/ answers only the machine it runs on")
            try:
                return await handler(request)
            except SpecopsError as exc:
                return error_answer(http_status(exc), type(exc).__name__, str(exc))

        return keep


def is_loopback(address: str | None) -> bool:
    """Tell whether a peer's address belongs to this machine's loopback interface."""
    try:
        return ipaddress.ip_address(address or "").is_loopback
    except ValueError:
        return False


def _parse_route(body: bytes) -> Route:
    try:
        record = orjson.loads(body)
    except orjson.JSONDecodeError as exc:
        raise InvalidRecord(f"the route is not JSON: {exc}") from exc
    if not isinstance(record, dict):
        raise InvalidRecord(f"the route is {type(record).__name__}, expected an object")
    return Route.from_record(record)


def _number(request: web.Request, name: str, default: float, most: float) -> float:
    text = request.query.get(name, str(default))
    try:
        value = float(text)
    except ValueError as exc:
        raise InvalidInput(f"{name} is {text!r}, expected a number") from exc
    if not 0 <= value <= most or value == math.inf:
        raise InvalidInput(f"{name} is {text}, expected 0 to {most:g}")
    return value


def _json(value: dict[str, object]) -> web.Response:
    return web.Response(body=orjson.dumps(value), content_type="application/json")
