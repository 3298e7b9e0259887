"""Mirrored requests: sent to the candidate beside the baseline's answer, read to the end, and dropped but for their outcome.

Called by `proxying`, which has already decided what to mirror. A mirror never slows the primary: it runs as its own task, at
most `limit` at a time, each at most `time_limit_s` long; beyond the limit a copy is dropped and counted, never queued.
"""

import asyncio
from dataclasses import dataclass, field

from specops.core.outcome import Outcome
from specops.gateway.exchange import TIMEOUT, Exchange, Inbound, Leg, Sender
from specops.gateway.recording import Recorder

LIMIT = 4  # mirrored requests at a time
TIME_LIMIT_S = 120.0


@dataclass(slots=True, kw_only=True)
class Shadow:
    """The mirrored requests in flight."""

    sender: Sender
    recorder: Recorder
    limit: int = LIMIT
    time_limit_s: float = TIME_LIMIT_S
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def offer(self, inbound: Inbound, leg: Leg) -> bool:
        """Start a copy of the request; False when the limit is reached and the copy was dropped."""
        if len(self._tasks) >= self.limit:
            self.recorder.counters.shadow_drops += 1
            return False
        task = asyncio.create_task(self._mirror(inbound, leg))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    async def close(self) -> None:
        """Cancel what is still running."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _mirror(self, inbound: Inbound, leg: Leg) -> None:
        exchange = Exchange(sender=self.sender, inbound=inbound, leg=leg, in_flight=self.recorder.begin(leg.arm))
        outcome: Outcome | None = None  # a mirror cancelled at shutdown says nothing
        try:
            try:
                async with asyncio.timeout(self.time_limit_s):
                    await _read(exchange)
            except TimeoutError:
                exchange.failure, exchange.detail = TIMEOUT, f"longer than {self.time_limit_s} s"
            outcome = exchange.outcome()
        finally:
            exchange.close()
            self.recorder.counters.bad_counts += exchange.observation.has_bad_counts
            self.recorder.end(leg.arm, outcome, revision=leg.revision, detail=exchange.detail)


async def _read(exchange: Exchange) -> None:
    await exchange.open()
    if exchange.failure is None and exchange.body is None:
        async for _ in exchange.chunks():
            pass
