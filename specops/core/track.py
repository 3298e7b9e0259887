"""Evidence of one check: how a sample moves it, how it is stored. `core.window` decides which samples there are.

A track rests on one of three things: three wealths against fixed limits (also within pairs), the same three per stratum, or a
rival test that compares two arms in time and has its own state.
"""

from dataclasses import asdict, dataclass, field
from typing import Any, Self

from specops.core.check import Check
from specops.core.rival import Rival, rival_from_record, start_rival
from specops.core.strata import Sides
from specops.stats import bernoulli, betting
from specops.stats.confidence import Moments
from specops.stats.frozen import trusted
from specops.stats.wealth import Bets, Mode, Null, Wealth

RECENT = 20  # values kept for the reader of an alarm; no decision uses them
_FAMILIES = {betting.FAMILY: betting.bets, bernoulli.FAMILY: bernoulli.bets}
_SIDES = ("gate", "non_inferior", "monitor")


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """Evidence of one check.

    `gate` bets against "fine", `non_inferior` against "worse than pass_at", `monitor` watches since promotion. `gap` counts
    completed requests without a value since the last one that had it. `recent` holds the newest samples, oldest first.
    `strata` takes the place of the three wealths where a check has strata, `rival` that of the gate where it compares two arms;
    `baseline` then sums up the baseline's samples.
    """

    check: str
    gate: Wealth
    non_inferior: Wealth
    monitor: Wealth
    moments: Moments = field(default_factory=Moments)
    promoted: Moments = field(default_factory=Moments)
    gap: int = 0
    recent: tuple[float, ...] = ()
    strata: Sides | None = None
    rival: Rival | None = None
    baseline: Moments = field(default_factory=Moments)

    @classmethod
    def start(cls, check: Check) -> Self:
        """Return the track before any sample."""
        if check.is_rival:
            gate, non_inferior, monitor = _wealths(check, 0.5, check.pass_at or 0.5)  # the gate stays at 1, the rival decides
            return cls(check=check.name, gate=gate, non_inferior=non_inferior, monitor=monitor, rival=start_rival(check))
        gate, non_inferior, monitor = _wealths(check, check.to_sample(check.limit), check.to_sample(check.pass_at))
        strata = None
        if check.strata is not None:
            parts = range(check.strata.count)
            both = [_bets(check, check.to_sample(check.limit_of(i)), check.to_sample(check.pass_at_of(i))) for i in parts]
            named = list(zip(check.strata.labels, both, strict=True))
            strata = Sides.start({name: fine for name, (fine, _) in named}, {name: worse for name, (_, worse) in named})
        return cls(check=check.name, gate=gate, non_inferior=non_inferior, monitor=monitor, strata=strata)

    def silent(self) -> "Track":
        """Return the track after a request that should have had a value and had none."""
        return self._with(gap=self.gap + 1)

    def take(self, x: float, *, promoted: bool, is_warm: bool = True, stratum: int = 0) -> "Track":
        """Return the track with one more sample in [0, 1]; `is_warm`: it may speak for the candidate."""
        strata, gate, non_inferior, monitor = self.strata, self.gate, self.non_inferior, self.monitor
        if strata is not None:
            strata = strata.update(stratum, x, promoted=promoted, is_warm=is_warm)
        else:
            non_inferior = non_inferior.update(x) if is_warm else non_inferior
            if promoted:
                monitor = monitor.update(x)
            elif self.rival is None:
                gate = gate.update(x)
        recent = self.recent
        return _track(
            check=self.check, gate=gate, non_inferior=non_inferior, monitor=monitor, moments=self.moments.update(x),
            promoted=self.promoted.update(x) if promoted else self.promoted,
            recent=(*(recent[1:] if len(recent) >= RECENT else recent), x), strata=strata, rival=self.rival,
            baseline=self.baseline,
        )  # fmt: skip

    def contend(self, rival: Rival) -> "Track":
        """Return the track with its rival test moved on."""
        return self._with(rival=rival)

    def beside(self, x: float) -> "Track":
        """Return the track with one more sample of the baseline, for the reader."""
        return self._with(baseline=self.baseline.update(x))

    def _with(self, *, gap: int | None = None, rival: Rival | None = None, baseline: Moments | None = None) -> "Track":
        return _track(
            check=self.check, gate=self.gate, non_inferior=self.non_inferior, monitor=self.monitor, moments=self.moments,
            promoted=self.promoted, gap=self.gap if gap is None else gap, recent=self.recent, strata=self.strata,
            rival=rival or self.rival, baseline=baseline or self.baseline,
        )  # fmt: skip

    def to_record(self) -> dict[str, Any]:
        """Return JSON-ready values; `from_record` is the inverse."""
        wealths = {side: getattr(self, side).to_record() for side in _SIDES}
        moments = {"moments": asdict(self.moments), "promoted": asdict(self.promoted)}
        record = {"check": self.check} | wealths | moments | {"gap": self.gap, "recent": list(self.recent)}
        if self.strata is not None:
            record["strata"] = self.strata.to_record()
        if self.rival is not None:
            record |= {"rival": self.rival.to_record(), "baseline": asdict(self.baseline)}
        return record

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Self:
        """Build a track from `to_record` values; what an older version did not store has its first value."""
        strata, rival = record.get("strata"), record.get("rival")
        gate, non_inferior, monitor = _sides(record)
        return cls(
            check=record["check"], gate=gate, non_inferior=non_inferior, monitor=monitor, moments=Moments(**record["moments"]),
            promoted=Moments(**record["promoted"]), gap=record["gap"], recent=tuple(record["recent"]),
            strata=None if strata is None else _strata(strata),
            rival=None if rival is None else rival_from_record(rival), baseline=Moments(**record.get("baseline", {})),
        )  # fmt: skip


_track = trusted(Track)


def _bets(check: Check, limit: float, pass_at: float) -> tuple[Bets, Bets]:
    """Return the bets against "fine" and against "worse", on the scale of the samples."""
    family = betting.bets if check.is_bounded else bernoulli.bets
    opposite = Null.AT_MOST if check.null is Null.AT_LEAST else Null.AT_LEAST
    return family(check.null, limit), family(opposite, pass_at)


def _wealths(check: Check, limit: float, pass_at: float) -> tuple[Wealth, Wealth, Wealth]:
    """Return gate, non-inferiority and monitor before any sample."""
    fine, worse = _bets(check, limit, pass_at)
    return Wealth.start(fine, Mode.CHANGE), Wealth.start(worse, Mode.STEADY), Wealth.start(fine, Mode.MONITOR)


def _strata(record: dict[str, Any]) -> Sides:
    return Sides.from_record(record, _by_name(record["gate"]), _by_name(record["non_inferior"]))


def _by_name(record: dict[str, Any]) -> dict[str, Bets]:
    return {name: _bets_of(wealth) for name, wealth in zip(record["names"], record["wealths"], strict=True)}


def _sides(record: dict[str, Any]) -> tuple[Wealth, Wealth, Wealth]:
    gate, non_inferior, monitor = (_wealth(record[side]) for side in _SIDES)
    return gate, non_inferior, monitor


def _wealth(record: dict[str, Any]) -> Wealth:
    return Wealth.from_record(record, _bets_of(record))


def _bets_of(record: dict[str, Any]) -> Bets:
    return _FAMILIES[record["family"]](Null(record["null"]), record["limit"])
