"""Which arm did this event come from: errors, or exceedances of a limit, between two arms that share the traffic.

Called by `core` for checks against the baseline with a known share of traffic, and for the split itself.

`Attribution`. An event (an error, a slow request) is a draw of an arm. If requests go to the candidate with probability s at
that time, and it has m times the baseline's rate of events, then the event is the candidate's with probability
q = s m / (s m + 1 - s), whatever the rates are and however they move: a burst that hits both arms is no evidence.
H0 at_most: rate of the candidate <= ratio * rate of the baseline at all times; at_least: the other side, for non-inferiority.
Guarantee: that of `wealth` for the mode, n counting *events* (a MONITOR's run length is at least A events, so at least A
requests). Exact for every ratio. Assumes: each request's arm is drawn at random with the share told here, independently of what
the request is (stable hashing by request does it; by user, events of one user come together and the assumption fails); the
share may change over time but must be the one that held when that request was assigned. The guarantee is for events in the
order of assignment. In the order in which answers end it holds while the share stands still and both arms answer equally fast,
or once it has stood still for longer than any answer takes; just after a change the faster arm's answers come alone, so the
caller leaves those events out (`core.rival`). Cost: 5 us per event, nothing per
request.
Source: Lindon & Malek, arXiv 2011.03567. Theirs is a Beta mixture for a fixed share; ours a mixture of nine rate ratios, which
stays exact when the share moves and when only one side counts.

`Split`. Is the split itself what was configured (sample-ratio mismatch)? A broken split voids every comparison.
H0: each request goes to arm i with probability share_i, given the past; about the order of answers the same is assumed.
Guarantee: Ville, two-sided, any number of arms. The
predictive Dirichlet mixture, Lindon & Malek, section 3, exact also for shares that move. Cost: 2 us per request.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from operator import add
from typing import Any, Self

from specops.errors import InvalidInput, InvalidRecord
from specops.stats.frozen import trusted
from specops.stats.stakes import Mode, checked, grow, log_worth, opening, worth
from specops.stats.wealth import Null

FAMILY, SPLIT_FAMILY = "attribution", "split"
RATIOS = (1.3, 1.6, 2.0, 2.6, 3.5, 5.0, 8.0, 16.0, 40.0)  # of the alternative's rate ratio to the limit
LARGEST = 1000.0
CONCENTRATION = 100.0  # weight of the configured shares in `Split`, in requests: smaller deviations need a larger one
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """Evidence after `n` events of both arms, `candidate_n` of them of the candidate; `expected` of them under ratio 1."""

    null: Null
    ratio: float
    mode: Mode
    stakes: tuple[float, ...]
    exponent: int = 0
    peak: float = 1.0
    n: int = 0
    candidate_n: int = 0
    expected: float = 0.0

    @classmethod
    def start(cls, null: Null = Null.AT_MOST, ratio: float = 1.0, mode: Mode = Mode.STEADY) -> Self:
        """Return the evidence before any event, against H0: candidate's rate `null` ratio * baseline's rate.

        Raises:
            InvalidInput: the ratio is not within [1/1000, 1000].
        """
        if not 1.0 / LARGEST <= ratio <= LARGEST:
            raise InvalidInput(f"a ratio of event rates must be in [{1 / LARGEST:g}, {LARGEST:g}], got {ratio}; 1 is equal")
        peak = 0.0 if mode is Mode.MONITOR else 1.0
        return cls(null=null, ratio=ratio, mode=mode, stakes=opening(mode, len(RATIOS)), peak=peak)

    def update(self, *, candidate: bool, share: float) -> "Attribution":
        """Return the evidence after one more event.

        Args:
            candidate: the event was the candidate's.
            share: probability in [0, 1] with which that request had been sent to the candidate. At 0 and 1 an event says
            nothing.

        Raises:
            InvalidInput: the share is outside [0, 1], or says that the event's arm had no traffic.
        """
        if not 0.0 <= share <= 1.0 or share == (0.0 if candidate else 1.0):
            arm = "candidate" if candidate else "baseline"
            raise InvalidInput(f"an event of the {arm} cannot have a share of {share}; pass the one it was assigned at")
        if share in {0.0, 1.0}:
            return self
        rest, null_odds = 1.0 - share, share * self.ratio
        normal = null_odds + rest
        turned = RATIOS if self.null is Null.AT_MOST else [1.0 / r for r in RATIOS]
        factors = [(r if candidate else 1.0) * normal / (null_odds * r + rest) for r in turned]
        stakes, exponent, value = grow(self.mode, self.n + 1, self.stakes, self.exponent, factors)
        return _attribution(
            null=self.null, ratio=self.ratio, mode=self.mode, stakes=stakes, exponent=exponent, peak=max(self.peak, value),
            n=self.n + 1, candidate_n=self.candidate_n + candidate, expected=self.expected + share,
        )  # fmt: skip

    @property
    def e_value(self) -> float:
        """The wealth now, at most e**700."""
        return worth(self.mode, self.n, math.fsum(self.stakes) / len(self.stakes), self.exponent)

    @property
    def log_e(self) -> float:
        """Natural logarithm of the wealth now; -inf for a wealth of 0."""
        return log_worth(self.mode, self.n, self.stakes, self.exponent)

    def to_record(self) -> dict[str, Any]:
        """Return JSON-ready values; `from_record` is the inverse, to the last bit."""
        return {
            "family": FAMILY, "null": self.null.value, "ratio": self.ratio, "mode": self.mode.value, "peak": self.peak,
            "stakes": list(self.stakes), "exponent": self.exponent,
            "n": self.n, "candidate_n": self.candidate_n, "expected": self.expected,
        }  # fmt: skip

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Self:
        """Build the evidence from `to_record` values.

        Raises:
            InvalidRecord: a field is missing or of another kind.
        """
        try:
            stakes, exponent = checked(record["stakes"], record["exponent"], len(RATIOS), FAMILY)
            return cls(
                null=Null(record["null"]), ratio=float(record["ratio"]), mode=Mode(record["mode"]), stakes=stakes,
                exponent=exponent, peak=float(record["peak"]), n=int(record["n"]), candidate_n=int(record["candidate_n"]),
                expected=float(record["expected"]),
            )  # fmt: skip
        except (KeyError, TypeError, ValueError) as exc:
            raise InvalidRecord(f"not a record of an attribution test: {exc!r}; replay the outcomes") from exc


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Evidence on the split after `n` requests: how many each arm got, and how many it should have got so far."""

    arms: tuple[str, ...]
    counts: tuple[int, ...]
    expected: tuple[float, ...]
    stake: float = 1.0
    exponent: int = 0
    peak: float = 1.0

    @classmethod
    def start(cls, arms: tuple[str, ...]) -> Self:
        """Return the evidence before any request.

        Raises:
            InvalidInput: fewer than two arms, or two of one name.
        """
        if len(arms) < 2 or len(set(arms)) < len(arms):  # noqa: PLR2004
            raise InvalidInput(f"a split needs two or more different arms, got {list(arms)}")
        return cls(arms=arms, counts=(0,) * len(arms), expected=(0.0,) * len(arms))

    def update(self, arm: str, shares: Mapping[str, float]) -> "Split":
        """Return the evidence after one more request, sent to `arm` while the split was configured as `shares`.

        Raises:
            InvalidInput: an unknown arm, shares that do not sum to 1 over the arms, or a request on an arm of share 0.
        """
        values = [shares[name] for name in self.arms if name in shares]
        if arm not in self.arms or not len(shares) == len(values) == len(self.arms):
            raise InvalidInput(f"a split over {list(self.arms)} got a request on {arm!r} under shares of {sorted(shares)}")
        at = self.arms.index(arm)
        is_split = abs(sum(values) - 1.0) <= _ROUNDING  # false for nan
        if not (is_split and min(values) >= 0.0 and max(values) <= 1.0 and values[at] > 0.0):
            raise InvalidInput(f"shares must be in [0, 1], sum to 1 and be positive for {arm!r}, got {dict(shares)}")
        # each arm's excess so far, shrunk towards 1; the shares times it, made to sum to 1, are the bet on the next request
        drawn = zip(values, self.counts, self.expected)  # noqa: B905  # equally long, and the check costs
        tilted = [v * (c + CONCENTRATION * v) / (e + CONCENTRATION * v) if v > 0.0 else 0.0 for v, c, e in drawn]
        factor = tilted[at] / sum(tilted) / values[at]
        (stake,), exponent, value = grow(Mode.STEADY, self.n + 1, (self.stake,), self.exponent, (factor,))
        return _split(
            arms=self.arms, counts=tuple([c + (i == at) for i, c in enumerate(self.counts)]),
            expected=tuple(map(add, self.expected, values)),
            stake=stake, exponent=exponent, peak=value if value > self.peak else self.peak,  # noqa: FURB136  # a call costs more
        )  # fmt: skip

    @property
    def n(self) -> int:
        """Requests so far."""
        return sum(self.counts)

    @property
    def e_value(self) -> float:
        """The wealth against the configured split now, at most e**700."""
        return worth(Mode.STEADY, self.n, self.stake, self.exponent)

    def to_record(self) -> dict[str, Any]:
        """Return JSON-ready values; `from_record` is the inverse, to the last bit."""
        lists = {"arms": list(self.arms), "counts": list(self.counts), "expected": list(self.expected)}
        return {"family": SPLIT_FAMILY} | lists | {"stakes": [self.stake], "exponent": self.exponent, "peak": self.peak}

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Self:
        """Build the evidence from `to_record` values.

        Raises:
            InvalidRecord: a field is missing or of another kind.
        """
        try:
            (stake,), exponent = checked(record["stakes"], record["exponent"], 1, SPLIT_FAMILY)
            arms, counts, expected = (tuple(record[name]) for name in ("arms", "counts", "expected"))
            return cls(arms=arms, counts=counts, expected=expected, stake=stake, exponent=exponent, peak=float(record["peak"]))
        except (KeyError, TypeError, ValueError) as exc:
            raise InvalidRecord(f"not a record of a split: {exc!r}; replay the outcomes") from exc


_attribution, _split = trusted(Attribution), trusted(Split)
