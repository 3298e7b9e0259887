"""One client request from arrival to last byte: assign an arm, try it, and answer from the baseline when the candidate cannot.

Called by `app` for every path that is not the gateway's own. Only requests whose answers can be judged (completions and chat
completions) ever reach a candidate; everything else goes to the baseline. The rules of the answer:

1. Nothing of the candidate's answer has reached the client: a failure is retried on the baseline, and the client sees no error.
2. Something has: the stream ends with one well-formed error event. Never a retry, so text is never doubled.
3. The client leaves, at whatever time: the engine's connection is cut.
4. An engine's 4xx is the client's to see, on either arm; it is never retried.
"""

import asyncio
import time
import uuid
from dataclasses import dataclass

import orjson
from aiohttp import ClientResponse, web
from multidict import CIMultiDict, CIMultiDictProxy

from specops.core.arms import assign
from specops.core.outcome import Arm, Kind
from specops.core.route import Route
from specops.gateway.exchange import Exchange, Inbound, Leg, Sender
from specops.gateway.recording import Recorder
from specops.gateway.routing import Routing
from specops.gateway.shadow import Shadow

JUDGED_PATHS = frozenset({"/v1/completions", "/v1/chat/completions"})
HOP_BY_HOP = frozenset({
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
    "transfer-encoding", "upgrade",
})  # fmt: skip
NOT_FORWARDED = HOP_BY_HOP | {"host", "content-length", "expect", "accept-encoding"}  # a compressed answer could not be judged
KEY_HEADER, ID_HEADER, ARM_HEADER = "x-specops-key", "x-request-id", "x-specops-arm"


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """The data plane of one gateway."""

    sender: Sender
    recorder: Recorder
    routing: Routing
    shadow: Shadow

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one client request."""
        arrived = time.perf_counter()
        inbound = await receive(request, arrived)
        route = self.routing.route  # after the last wait: route and shares must be of one moment
        if route is None:
            return error_answer(503, "no_route", "the gateway has no route yet; send one with PUT /-/route, or start a rollout")
        leg = self._leg(inbound, route)
        if leg.arm is Arm.CANDIDATE:
            response = await self._serve(request, inbound, leg)
            if response is not None:
                return response
            self.recorder.counters.retries += 1
            leg = baseline_leg(route, assigned=Arm.CANDIDATE)
        elif inbound.is_judged and self._is_mirrored(inbound, route):
            self.shadow.offer(inbound, candidate_leg(route, Kind.SHADOW))
        response = await self._serve(request, inbound, leg)
        assert response is not None  # the baseline always answers, be it with an error
        return response

    def _leg(self, inbound: Inbound, route: Route) -> Leg:
        weight = self.routing.effective_weight if inbound.is_judged else 0.0
        arm = assign(inbound.key, weight, salt=route.rollout_id or "")
        return candidate_leg(route, Kind.LIVE) if arm is Arm.CANDIDATE else baseline_leg(route, assigned=Arm.BASELINE)

    def _is_mirrored(self, inbound: Inbound, route: Route) -> bool:
        # its own salt: the mirrored share must not be the keys nearest to the candidate
        salt = f"mirror:{route.rollout_id or ''}"
        return assign(inbound.request_id, self.routing.effective_mirror, salt=salt) is Arm.CANDIDATE

    async def _serve(self, request: web.Request, inbound: Inbound, leg: Leg) -> web.StreamResponse | None:
        """Answer from one arm; None when the candidate failed before anything was sent (rule 1)."""
        exchange = Exchange(sender=self.sender, inbound=inbound, leg=leg, in_flight=self.recorder.begin(leg.arm))
        try:
            await exchange.open()
            if exchange.failure and leg.arm is Arm.CANDIDATE:
                return None
            return await relay(request, exchange)
        except asyncio.CancelledError:
            exchange.is_aborted = True
            raise
        finally:
            exchange.close()  # rule 3
            self.recorder.counters.bad_counts += exchange.observation.has_bad_counts
            outcome = exchange.outcome() if inbound.is_judged else None
            detail = exchange.detail or exchange.observation.detail
            self.recorder.end(leg.arm, outcome, revision=leg.revision, detail=detail)


def candidate_leg(route: Route, kind: Kind) -> Leg:
    """Return the way to the route's candidate."""
    assert route.candidate_url is not None  # a route with a share has one
    assigned = Arm.CANDIDATE if kind is Kind.LIVE else Arm.BASELINE
    return Leg(
        arm=Arm.CANDIDATE, kind=kind, url=route.candidate_url, release_id=route.candidate_release or "",
        revision=route.revision, assigned=assigned,
    )  # fmt: skip


def baseline_leg(route: Route, *, assigned: Arm) -> Leg:
    """Return the way to the route's baseline."""
    return Leg(
        arm=Arm.BASELINE, kind=Kind.LIVE, url=route.baseline_url, release_id=route.baseline_release, revision=route.revision,
        assigned=assigned, retried_on_baseline=assigned is Arm.CANDIDATE,
    )  # fmt: skip


async def receive(request: web.Request, arrived: float) -> Inbound:
    """Read a request to its end; `arrived` is on `time.perf_counter`.

    Raises:
        aiohttp.web.HTTPRequestEntityTooLarge: the body exceeds the application's limit.
    """
    body = await request.read()
    request_id = request.headers.get(ID_HEADER) or uuid.uuid4().hex
    headers = forwarded(request.headers, NOT_FORWARDED)
    headers[ID_HEADER] = request_id
    return Inbound(
        request_id=request_id, key=request.headers.get(KEY_HEADER) or request_id,
        method=request.method, target=request.raw_path, headers=headers, body=body, arrived=arrived,
        is_judged=request.method == "POST" and request.path in JUDGED_PATHS,
    )  # fmt: skip


def forwarded(headers: CIMultiDictProxy[str], dropped: frozenset[str]) -> CIMultiDict[str]:
    """Return a copy without `dropped` and without what the Connection header names."""
    named = {name.strip().lower() for value in headers.getall("connection", ()) for name in value.split(",")}
    return CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in dropped | named)


async def relay(request: web.Request, exchange: Exchange) -> web.StreamResponse:
    """Send the engine's answer to the client, bytes unchanged."""
    answer, leg = exchange.response, exchange.leg
    marks = {ARM_HEADER: str(leg.arm), ID_HEADER: exchange.inbound.request_id}
    if answer is None or exchange.is_void:
        message = f"the engine of the {leg.arm} did not answer; try again, or look at its log ({exchange.detail})"
        return error_answer(502, exchange.failure or "engine_unreachable", message, marks)
    is_judged = exchange.inbound.is_judged
    headers = forwarded(answer.headers, HOP_BY_HOP | {"content-length"} if is_judged else HOP_BY_HOP)
    headers.update(marks)
    if exchange.body is not None:
        return web.Response(status=answer.status, reason=answer.reason, headers=headers, body=exchange.body)
    response = web.StreamResponse(status=answer.status, reason=answer.reason, headers=headers)
    try:
        await _stream(request, response, exchange, answer)
    except ConnectionResetError:  # the client's side: failures of the engine never leave the exchange
        exchange.is_aborted = True
    return response


async def _stream(request: web.Request, response: web.StreamResponse, exchange: Exchange, answer: ClientResponse) -> None:
    await response.prepare(request)
    async for piece in exchange.chunks():
        await response.write(piece)
    if not exchange.is_cut:
        await response.write_eof()
    elif answer.content_type == "text/event-stream":
        await response.write(error_event(exchange.failure or "", exchange.detail))  # rule 2
        await response.write_eof()
    elif request.transport is not None:
        request.transport.abort()  # half a body must not look like a whole one


def error_event(kind: str, detail: str) -> bytes:
    """Return a server-sent event that ends a stream the engine did not finish."""
    message = f"the engine ended the answer early; send the request again ({detail})"
    return b"data: " + orjson.dumps({"error": {"message": message, "type": kind, "param": None, "code": 502}}) + b"\n\n"


def error_answer(status: int, kind: str, message: str, headers: dict[str, str] | None = None) -> web.Response:
    """Return an error in the shape that OpenAI clients read."""
    body = orjson.dumps({"error": {"message": message, "type": kind, "param": None, "code": status}})
    return web.Response(status=status, body=body, content_type="application/json", headers=headers)
