"""One client request from arrival to last byte: assign an arm, try it, and answer from the baseline when the candidate cannot.

Called by `app` for every path that is not the gateway's own. Only requests whose answers can be judged (completions and chat
completions) ever reach a candidate; everything else goes to the baseline. The rules of the answer:

1. Nothing of the candidate's answer has reached the client: a failure is retried on the baseline, and the client sees no error.
2. Something has. A greedy stream of plain text is taken over: the baseline is asked the same again and gives the rest, after
   the text delivered was found at its beginning by length and digest (`takeover`). Any other stream, and one whose takeover
   fails, ends with one well-formed error event. Text is never doubled. The candidate has failed either way, and its outcome
   is recorded before the takeover begins, so that the guard need not wait for it.
3. The client leaves, at whatever time: the engine's connection is cut.
4. An engine's 4xx is the client's to see, on either arm; it is never retried.
"""

import contextlib
import time
import uuid
from dataclasses import dataclass, replace

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
from specops.gateway.takeover import Cut, Ending, Result, resume

JUDGED_PATHS = frozenset({"/v1/completions", "/v1/chat/completions"})
HOP_BY_HOP = frozenset({
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
    "transfer-encoding", "upgrade",
})  # fmt: skip
NOT_FORWARDED = HOP_BY_HOP | {"host", "content-length", "expect", "accept-encoding"}  # a compressed answer could not be judged
MAX_ID_CHARS = 200
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
            answer = await self._serve(request, inbound, leg)
            leg = baseline_leg(route, assigned=Arm.CANDIDATE)
            if isinstance(answer, Cut):
                return await self._take_over(answer, inbound, leg)
            if answer is not None:
                return answer
            self.recorder.counters.retries += 1
        elif leg.is_shed:
            self.recorder.counters.shed += 1  # and not mirrored either: the candidate is full
        elif inbound.is_judged and self._is_mirrored(inbound, route):
            self.shadow.offer(inbound, candidate_leg(route, Kind.SHADOW))
        answer = await self._serve(request, inbound, leg)
        assert isinstance(answer, web.StreamResponse)  # the baseline always answers, be it with an error
        return answer

    def _leg(self, inbound: Inbound, route: Route) -> Leg:
        weight = self.routing.effective_weight if inbound.is_judged else 0.0
        arm = assign(inbound.key, weight, salt=route.rollout_id or "")
        if not self._has_room(route):  # nobody was given a chance to be the candidate's: no arm may be compared by this request
            leg = baseline_leg(route, assigned=arm)
            return replace(leg, is_shed=arm is Arm.CANDIDATE, retried_on_baseline=False)
        leg = candidate_leg(route, Kind.LIVE) if arm is Arm.CANDIDATE else baseline_leg(route, assigned=Arm.BASELINE)
        return replace(leg, share=weight) if inbound.is_judged else leg

    def _has_room(self, route: Route) -> bool:
        return route.speculate_below is None or self.recorder.in_flight[Arm.CANDIDATE] + 1 < route.speculate_below

    def _is_mirrored(self, inbound: Inbound, route: Route) -> bool:
        # its own salt: the mirrored share must not be the keys nearest to the candidate
        salt = f"mirror:{route.rollout_id or ''}"
        return assign(inbound.request_id, self.routing.effective_mirror, salt=salt) is Arm.CANDIDATE

    async def _serve(self, request: web.Request, inbound: Inbound, leg: Leg) -> web.StreamResponse | Cut | None:
        """Answer from one arm; None or a cut when the candidate failed and the baseline is to answer (rules 1 and 2)."""
        with self.recorder.exchange(self.sender, inbound, leg) as exchange:  # rule 3
            await exchange.open()
            if exchange.failure and leg.arm is Arm.CANDIDATE:
                return None
            return await relay(request, exchange)

    async def _take_over(self, cut: Cut, inbound: Inbound, leg: Leg) -> web.StreamResponse:
        """Finish the candidate's answer from the baseline, or end it with an error event (rule 2)."""
        again = replace(inbound, arrived=time.perf_counter())  # its times are its own, not the candidate's too
        ending = Ending(result=Result.ABORTED)
        try:
            with self.recorder.exchange(self.sender, again, leg) as exchange:
                try:
                    ending = await resume(cut, exchange)
                except ConnectionResetError:  # the client's side, as in `relay`
                    exchange.is_aborted = True
            await _finish(cut, ending)
        finally:
            self.recorder.counters.takeovers[ending.result] += 1
        return cut.response


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
    request_id = _plain(request.headers.get(ID_HEADER)) or uuid.uuid4().hex
    headers = forwarded(request.headers, NOT_FORWARDED)
    headers[ID_HEADER] = request_id
    return Inbound(
        request_id=request_id, key=_plain(request.headers.get(KEY_HEADER)) or request_id,
        method=request.method, target=request.raw_path, headers=headers, body=body, arrived=arrived,
        is_judged=request.method == "POST" and request.path in JUDGED_PATHS,
    )  # fmt: skip


def forwarded(headers: CIMultiDictProxy[str], dropped: frozenset[str]) -> CIMultiDict[str]:
    """Return a copy without `dropped`, what the Connection header names, and bytes that are no text and can't be sent on."""
    named = {name.strip().lower() for value in headers.getall("connection", ()) for name in value.split(",")}
    left_out = dropped | named
    return CIMultiDict((n, v) for n, v in headers.items() if n.lower() not in left_out and (v.isascii() or _is_text(v)))


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:  # aiohttp reads such bytes as lone surrogates
        return False
    return True


def _plain(value: str | None) -> str | None:
    """Return an id that can stand in records, logs and headers; None for any other, which is then replaced by one of ours."""
    return value if value and len(value) <= MAX_ID_CHARS and value.isascii() and value.isprintable() else None


async def relay(request: web.Request, exchange: Exchange) -> web.StreamResponse | Cut:
    """Send the engine's answer to the client, bytes unchanged; a cut leaves the response open for a takeover."""
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
        return await _stream(request, response, exchange, answer) or response
    except ConnectionResetError:  # the client's side: failures of the engine never leave the exchange
        exchange.is_aborted = True
    return response


async def _stream(request: web.Request, response: web.StreamResponse, exchange: Exchange, answer: ClientResponse) -> Cut | None:
    await response.prepare(request)
    async for piece in exchange.chunks():
        await response.write(piece)
    if not exchange.is_cut:
        await response.write_eof()
    elif answer.content_type == "text/event-stream":
        if cut := Cut.of(exchange, response):
            return cut
        await response.write(error_event(exchange.failure or "", exchange.detail))  # rule 2
        await response.write_eof()
    elif request.transport is not None:
        request.transport.abort()  # half a body must not look like a whole one
    return None


async def _finish(cut: Cut, ending: Ending) -> None:
    with contextlib.suppress(ConnectionResetError):  # the client left at the very end
        if ending.problem:
            await cut.response.write(error_event(cut.failure, f"{cut.detail}; {ending.problem}"))
        await cut.response.write_eof()


def error_event(kind: str, detail: str) -> bytes:
    """Return a server-sent event that ends a stream the engine did not finish."""
    message = f"the engine ended the answer early; send the request again ({detail})"
    return b"data: " + orjson.dumps({"error": {"message": message, "type": kind, "param": None, "code": 502}}) + b"\n\n"


def error_answer(status: int, kind: str, message: str, headers: dict[str, str] | None = None) -> web.Response:
    """Return an error in the shape that OpenAI clients read."""
    body = orjson.dumps({"error": {"message": message, "type": kind, "param": None, "code": status}})
    return web.Response(status=status, body=body, content_type="application/json", headers=headers)
