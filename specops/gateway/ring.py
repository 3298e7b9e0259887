"""The newest outcomes in memory, numbered, for the control plane to fetch by long poll.

Written by `recording`, read by `admin`. Numbers start at 1 in each epoch (one process run); what the ring had to forget is
counted, never hidden. It keeps nothing across a restart: the new epoch tells the reader.
"""

import asyncio
from dataclasses import dataclass

from specops.core.outcome import Outcome

CAPACITY = 100_000  # outcomes, about 60 MB


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Outcomes after a sequence number. `next` is what to ask after next time; `dropped` is what the ring lost in between."""

    epoch: str
    next: int
    dropped: int
    outcomes: tuple[Outcome, ...]


class Ring:
    """A fixed number of newest outcomes; one event loop only."""

    def __init__(self, epoch: str, capacity: int = CAPACITY) -> None:
        self.epoch = epoch
        self._capacity = capacity
        self._slots: list[Outcome] = []
        self._last = 0
        self._waiters: set[asyncio.Future[None]] = set()

    @property
    def last(self) -> int:
        """Sequence number of the newest outcome; 0 when none came."""
        return self._last

    def add(self, outcome: Outcome) -> None:
        """Append an outcome, forgetting the oldest when full, and wake the readers."""
        if len(self._slots) < self._capacity:
            self._slots.append(outcome)
        else:
            self._slots[self._last % self._capacity] = outcome
        self._last += 1
        self.wake()

    def wake(self) -> None:
        """Let every waiting reader return now."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def read(self, *, after: int, epoch: str | None, limit: int) -> Page:
        """Return at most `limit` outcomes after `after`; a reader of another epoch starts from the oldest."""
        oldest = self._last - len(self._slots) + 1
        after = min(after, self._last) if epoch == self.epoch else 0
        first = max(after + 1, oldest)
        stop = min(first + limit, self._last + 1)
        outcomes = tuple(self._slots[(number - 1) % self._capacity] for number in range(first, stop))
        return Page(epoch=self.epoch, next=stop - 1, dropped=first - after - 1, outcomes=outcomes)

    async def poll(self, *, after: int, epoch: str | None, limit: int, wait_s: float) -> Page:
        """Return as `read` does, at once when there is any outcome, else after the first one or `wait_s` seconds."""
        page = self.read(after=after, epoch=epoch, limit=limit)
        if page.outcomes or wait_s <= 0:
            return page
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await asyncio.wait((waiter,), timeout=wait_s)
        finally:
            self._waiters.discard(waiter)
        return self.read(after=after, epoch=epoch, limit=limit)
