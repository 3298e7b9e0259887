"""The three wealths of one check, kept apart by stratum: a change of the traffic's mix is neither an alarm nor a hiding place.

Kept by `core.track` in place of its own three, read by `core.ruling`. Each stratum is judged against its own limit; the
statistics are `stats.stratified`: fail on the average of the strata's e-processes, watch the sum of their detectors. For
passing, every stratum that is claimed must be proven, so the weakest counts (intersection-union, Berger 1982). A stratum with
too few requests is not claimed, and named: otherwise a load that never comes would hold a rollout for ever.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from specops.stats.frozen import trusted
from specops.stats.stratified import Stratified
from specops.stats.wealth import Bets, Mode


@dataclass(frozen=True, slots=True)
class Sides:
    """Evidence against "fine", against "worse", and since promotion, by stratum in the order of `Strata.labels`."""

    gate: Stratified
    non_inferior: Stratified
    monitor: Stratified

    @classmethod
    def start(cls, fine: Mapping[str, Bets], worse: Mapping[str, Bets]) -> Self:
        """Return the evidence before any sample, from each stratum's bets."""
        return cls(
            Stratified.start(fine, Mode.CHANGE), Stratified.start(worse, Mode.STEADY), Stratified.start(fine, Mode.MONITOR)
        )

    def update(self, index: int, x: float, *, promoted: bool, is_warm: bool = True) -> "Sides":
        """Return the evidence with one more sample of one stratum."""
        name = self.gate.names[index]
        worse = self.non_inferior.update(name, x) if is_warm else self.non_inferior
        if promoted:
            return _sides(self.gate, worse, self.monitor.update(name, x))
        return _sides(self.gate.update(name, x), worse, self.monitor)

    def claimed(self, min_requests: int) -> tuple[str, ...]:
        """Return the strata with enough requests to be part of what is proven."""
        strata = zip(self.non_inferior.names, self.non_inferior.wealths, strict=True)
        return tuple(name for name, wealth in strata if wealth.n >= min_requests)

    def pass_e(self, min_requests: int) -> float:
        """Return the smallest e-value for passing among the claimed strata; 0 when there is none."""
        return min((wealth.e_value for wealth in self.non_inferior.wealths if wealth.n >= min_requests), default=0.0)

    def to_record(self) -> dict[str, Any]:
        """Return JSON-ready values; `from_record` is the inverse."""
        return {side: getattr(self, side).to_record() for side in ("gate", "non_inferior", "monitor")}

    @classmethod
    def from_record(cls, record: dict[str, Any], fine: Mapping[str, Bets], worse: Mapping[str, Bets]) -> Self:
        """Build the evidence from `to_record` values and the bets of each stratum."""
        return cls(
            Stratified.from_record(record["gate"], fine),
            Stratified.from_record(record["non_inferior"], worse),
            Stratified.from_record(record["monitor"], fine),
        )


_sides = trusted(Sides)
