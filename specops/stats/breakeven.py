"""When speculation pays: from measured costs and acceptance to speed-up, break-even, the best k, and the load where it ends.

Called by `core.policy` ("speculate only below N in flight"), by `core.judge` for limits that are a break-even, and by reports.
Pure arithmetic on measured figures; measuring them is for the offline evaluation.

One round costs k draft passes and one verification; it yields 1 + (accepted drafted tokens). Without a draft a token costs one
target pass. With T tokens per round:  speed-up = T * target_s / (k * draft_s + verify_s).  It is 1 at T* = (k * draft_s +
verify_s) / target_s, and accepted / drafted = (T - 1) / k, so the break-even acceptance_rate is (T* - 1) / k *without any model
of acceptance*. Only the prediction of T for another k needs one:

- geometric: each examined token is accepted independently with probability a; T = (1 - a**(k+1)) / (1 - a). Leviathan et al.,
  arXiv 2211.17192, equation 1; with verify_s = target_s and c = draft_s / target_s the speed-up is their theorem 3.8. Real
  acceptance depends on the prompt and falls or rises with the position, so this is for planning.
- per position: T = 1 + sum of P(at least j accepted), measured; exact for k up to the measured one, no use beyond.

Assumes: costs do not depend on acceptance; scheduling and sampling are inside the measured times; all requests of a bucket see
the same costs. Verification of k + 1 positions is dearer than one target pass once the accelerator is full: that is why costs
are per load.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from specops.errors import InvalidInput

MAX_K = 64
_HALVINGS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Median times in seconds at one load.

    Attributes:
        in_flight: requests in flight at which they were measured, >= 1.
        target_s: one decoding pass of the target without a draft.
        draft_s: one draft pass (one proposed token); 0 for n-gram lookup.
        verify_s: one target pass over k + 1 positions, by k; what it takes on top of the draft passes.
    """

    in_flight: int
    target_s: float
    draft_s: float
    verify_s: Mapping[int, float]

    def __post_init__(self) -> None:
        where = f"costs at {self.in_flight} in flight"
        if self.in_flight < 1 or not self.verify_s or not all(1 <= k <= MAX_K for k in self.verify_s):
            raise InvalidInput(f"{where}: needs in_flight >= 1 and verify_s for k in 1..{MAX_K}, got {dict(self.verify_s)}")
        times = (self.target_s, *self.verify_s.values())
        if not (0.0 <= self.draft_s < math.inf and all(0.0 < t < math.inf for t in times)):
            raise InvalidInput(f"{where}: times must be positive seconds, got draft {self.draft_s}, others {times}")

    def round_s(self, k: int) -> float:
        """Return the time of one round with k drafted tokens.

        Raises:
            InvalidInput: the verification for this k was not measured.
        """
        if k not in self.verify_s:
            known = sorted(self.verify_s)
            raise InvalidInput(f"verification for k = {k} was not measured at {self.in_flight} in flight; there is {known}")
        return k * self.draft_s + self.verify_s[k]


def geometric_tokens(acceptance_probability: float, k: int) -> float:
    """Return expected tokens per round in [1, k + 1] when each examined token is accepted with the given probability.

    Raises:
        InvalidInput: the probability is outside [0, 1] or k outside 0..64.
    """
    if not 0.0 <= acceptance_probability <= 1.0:
        raise InvalidInput(f"acceptance_probability must be in [0, 1], got {acceptance_probability}")
    return math.fsum(acceptance_probability**j for j in range(_proposals(k) + 1))  # the sum has no 0 / 0 at probability 1


def positional_tokens(positions: Sequence[float], k: int) -> float:
    """Return expected tokens per round for k, from the measured shares of rounds with at least 1, 2, ... accepted tokens.

    Exact for k up to the measured one where the draft's j-th proposal does not depend on how many follow.

    Raises:
        InvalidInput: k is beyond what was measured, or the shares do not fall from at most 1 to at least 0.
    """
    steps = (1.0, *positions, 0.0)
    if any(b > a + 1e-9 for a, b in pairwise(steps)):
        raise InvalidInput(f"shares of rounds with at least j accepted must fall within [0, 1], got {list(positions)}")
    if _proposals(k) > len(positions):
        raise InvalidInput(f"acceptance was measured for k = {len(positions)}, not for k = {k}; measure with a larger k")
    return 1.0 + math.fsum(positions[:k])


def speedup(tokens: float, costs: Costs, k: int) -> float:
    """Return time per token without a draft over time per token with it, for `tokens` per round.

    Raises:
        InvalidInput: the verification for this k was not measured.
    """
    return tokens * costs.target_s / costs.round_s(k)


def break_even_rate(costs: Costs, k: int, at_least: float = 1.0) -> float:
    """Return the acceptance_rate (accepted / drafted) at which the speed-up is `at_least`; no model of acceptance is used.

    Returns:
        <= 0: speculation pays whatever is accepted. > 1: it cannot pay with this k at this load. In between: the limit to put
        into a policy, for the pooled rate. Per-request rates have the same mean only where rounds per request are unrelated to
        acceptance.

    Raises:
        InvalidInput: the verification for this k was not measured, or at_least is not positive.
    """
    if not 0.0 < at_least < math.inf:
        raise InvalidInput(f"a speed-up to reach must be positive, got {at_least}; 1 is the break-even")
    return (at_least * costs.round_s(k) / costs.target_s - 1.0) / k


def acceptance_probability_of(rate: float, k: int) -> float:
    """Return the probability per examined token that gives this acceptance_rate under the geometric model.

    Raises:
        InvalidInput: the rate is outside [0, 1] or k outside 1..64.
    """
    if not 0.0 <= rate <= 1.0 or _proposals(k) < 1:
        raise InvalidInput(f"an acceptance_rate must be in [0, 1] and k >= 1, got {rate} and {k}")
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        low, high = (middle, high) if geometric_tokens(middle, k) < 1.0 + rate * k else (low, middle)
    return high


def best_k(acceptance_probability: float, costs: Costs) -> tuple[int, float]:
    """Return (k, speed-up) of the fastest measured k under the geometric model; k = 0 and 1.0 where no k pays.

    Raises:
        InvalidInput: the probability is outside [0, 1].
    """
    choices = [(speedup(geometric_tokens(acceptance_probability, k), costs, k), -k) for k in costs.verify_s]
    gain, negative = max(choices)  # of equal speed-ups the smaller k
    return (-negative, gain) if gain > 1.0 else (0, 1.0)


def speculate_below(loads: Iterable[Costs], rate: float, k: int, at_least: float = 1.0) -> int | None:
    """Return the largest measured number in flight up to which speculation still pays at this acceptance_rate.

    Loads are walked upwards and the walk ends at the first one that does not pay: a lucky figure beyond is not trusted, and
    nothing is extrapolated beyond the largest measured load.

    Returns:
        None when it does not pay even at the smallest load.

    Raises:
        InvalidInput: no loads, two of the same number in flight, a k that was not measured, or a rate outside [0, 1].
    """
    ordered = sorted(loads, key=lambda costs: costs.in_flight)
    counts = [costs.in_flight for costs in ordered]
    if not ordered or len(set(counts)) < len(counts):
        raise InvalidInput(f"costs must be measured at one or more different loads, got in_flight {counts}")
    if not 0.0 <= rate <= 1.0:
        raise InvalidInput(f"an acceptance_rate must be in [0, 1], got {rate}")
    largest = None
    for costs in ordered:
        if break_even_rate(costs, k, at_least) > rate:
            break
        largest = costs.in_flight
    return largest


def _proposals(k: int) -> int:
    if not 0 <= k <= MAX_K:
        raise InvalidInput(f"num_speculative_tokens must be in 0..{MAX_K}, got {k}")
    return k
