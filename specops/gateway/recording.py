"""What happens to a finished request: the ring keeps it, the counters count it, the guard sees it.

Called by `proxying`, `shadow`.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from specops.core.outcome import Arm, Outcome
from specops.gateway.exchange import Exchange, Inbound, Leg, Sender
from specops.gateway.exposition import Counters
from specops.gateway.ring import Ring
from specops.gateway.routing import Routing


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorder:
    """The three takers of outcomes, and the requests in flight per arm."""

    ring: Ring
    counters: Counters
    routing: Routing
    in_flight: dict[Arm, int] = field(default_factory=lambda: dict.fromkeys(Arm, 0))

    def begin(self, arm: Arm) -> int:
        """Count a request in; return how many are in flight on the arm now, this one included."""
        self.in_flight[arm] += 1
        return self.in_flight[arm]

    @contextmanager
    def exchange(self, sender: Sender, inbound: Inbound, leg: Leg) -> Iterator[Exchange]:
        """Begin a live exchange; on the way out cut its connection unless it was read to its end, and record it."""
        exchange = Exchange(sender=sender, inbound=inbound, leg=leg, in_flight=self.begin(leg.arm))
        try:
            yield exchange
        except asyncio.CancelledError:
            exchange.is_aborted = True
            raise
        finally:
            exchange.close()
            self.counters.bad_counts += exchange.observation.has_bad_counts
            outcome = exchange.outcome() if inbound.is_judged else None
            self.end(leg.arm, outcome, revision=leg.revision, detail=exchange.detail or exchange.observation.detail)

    def end(self, arm: Arm, outcome: Outcome | None, *, revision: int, detail: str = "") -> None:
        """Count a request out and pass on its outcome; None for requests that are not judged."""
        self.in_flight[arm] -= 1
        if outcome is not None:
            self.counters.count(outcome)
            self.routing.observe(outcome, revision=revision, detail=detail)
            self.ring.add(outcome)  # last: whoever reads it finds the guard's say in place
