"""What happens to a finished request: the ring keeps it, the counters count it, the guard sees it.

Called by `proxying`, `shadow`.
"""

from dataclasses import dataclass, field

from specops.core.outcome import Arm, Outcome
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

    def end(self, arm: Arm, outcome: Outcome | None, *, revision: int, detail: str = "") -> None:
        """Count a request out and pass on its outcome; None for requests that are not judged."""
        self.in_flight[arm] -= 1
        if outcome is not None:
            self.counters.count(outcome)
            self.routing.observe(outcome, revision=revision, detail=detail)
            self.ring.add(outcome)  # last: whoever reads it finds the guard's say in place
