"""The gateway's numbers as Prometheus text. `recording` counts, `admin` serves; nothing is decided from them here."""

from bisect import bisect_left
from collections import Counter

from specops.core.outcome import Arm, Kind, Outcome
from specops.gateway.routing import Routing

TTFT_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


TAKEOVER_RESULTS = ("complete", "mismatch", "failed", "aborted")  # as in `takeover.Result`, shown from 0 on


class Histogram:
    """Counts of observations by upper bound, as Prometheus wants them."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(TTFT_BUCKETS_S) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        """Add one observation."""
        self.counts[bisect_left(TTFT_BUCKETS_S, seconds)] += 1
        self.total += seconds

    def lines(self, name: str, labels: str) -> list[str]:
        """Return the sample lines."""
        rows, below = [], 0
        for bound, count in zip((*map(str, TTFT_BUCKETS_S), "+Inf"), self.counts, strict=True):
            below += count
            rows.append(f'{name}_bucket{{{labels},le="{bound}"}} {below}')
        return [*rows, f"{name}_sum{{{labels}}} {self.total}", f"{name}_count{{{labels}}} {below}"]


class Counters:
    """Everything counted since the start of the process."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str]] = Counter()
        self.errors: Counter[tuple[str, str]] = Counter()
        self.shadow_requests: Counter[str] = Counter()
        self.takeovers: Counter[str] = Counter()
        self.retries = 0
        self.shed = 0
        self.shadow_drops = 0
        self.bad_counts = 0
        self.ttft = {arm: Histogram() for arm in Arm}

    def count(self, outcome: Outcome) -> None:
        """Count one outcome; the time to the first token only for live requests."""
        if outcome.error:
            self.errors[outcome.arm, outcome.error] += 1
        if outcome.kind is not Kind.LIVE:
            self.shadow_requests[outcome.finish] += 1
            return
        self.requests[outcome.arm, outcome.finish] += 1
        if outcome.ttft_s is not None:
            self.ttft[outcome.arm].observe(outcome.ttft_s)


def _family(name: str, kind: str, text: str, samples: list[str]) -> list[str]:
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}", *samples]


def render(counters: Counters, routing: Routing) -> str:
    """Return the exposition text, version 0.0.4."""
    prefix = "specops_gateway_"
    requests = [f'{prefix}requests_total{{arm="{a}",finish="{f}"}} {n}' for (a, f), n in sorted(counters.requests.items())]
    errors = [f'{prefix}errors_total{{arm="{a}",error="{e}"}} {n}' for (a, e), n in sorted(counters.errors.items())]
    shadows = [f'{prefix}shadow_requests_total{{finish="{f}"}} {n}' for f, n in sorted(counters.shadow_requests.items())]
    ttft = [line for arm in Arm for line in counters.ttft[arm].lines(f"{prefix}ttft_seconds", f'arm="{arm}"')]
    takeovers = [f'{prefix}takeovers_total{{result="{result}"}} {counters.takeovers[result]}' for result in TAKEOVER_RESULTS]
    singles = (
        ("retries_total", "counter", "Requests of the candidate answered by the baseline instead.", counters.retries),
        ("shed_total", "counter", "Requests of the candidate's share given to the baseline at high load.", counters.shed),
        ("shadow_drops_total", "counter", "Mirrored requests not sent because too many were open.", counters.shadow_drops),
        ("bad_counts_total", "counter", "Answers whose acceptance counts contradict each other.", counters.bad_counts),
        ("weight", "gauge", "Effective live share of the candidate.", routing.effective_weight),
        ("mirror", "gauge", "Effective mirrored share.", routing.effective_mirror),
        (
            "route_revision",
            "gauge",
            "Revision of the route in force; 0 without one.",
            routing.route.revision if routing.route else 0,
        ),
        ("tripped", "gauge", "1 after the gateway fell back by itself.", int(routing.tripped is not None)),
    )
    lines = [
        *_family(f"{prefix}requests_total", "counter", "Live requests by arm and finish.", requests),
        *_family(f"{prefix}errors_total", "counter", "Failed requests by arm and error, shadow included.", errors),
        *_family(f"{prefix}shadow_requests_total", "counter", "Mirrored requests by finish.", shadows),
        *_family(f"{prefix}ttft_seconds", "histogram", "Time to the first content, live requests.", ttft),
    ]
    lines += _family(f"{prefix}takeovers_total", "counter", "Broken greedy streams handed to the baseline.", takeovers)
    for name, kind, text, value in singles:
        lines += _family(prefix + name, kind, text, [f"{prefix}{name} {value}"])
    return "\n".join(lines) + "\n"
