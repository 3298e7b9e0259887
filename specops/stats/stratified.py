"""One claim over several strata (task class, load, prompt length), so that a change of the traffic's mix is no evidence.

Called by `core` for checks with strata. Each stratum has its own `Wealth` against its own limit and moves only with its own
samples; strata and weights are fixed before the first sample.

H0: "fine in every stratum": within each stratum the conditional mean of the next sample, given all before it in any stratum, is
within that stratum's null. Which stratum comes next may depend on the past in any way: traffic mix is free to move.
Guarantee. STEADY, CHANGE: the weighted average of e-processes is one (Vovk & Wang, arXiv 1912.06116), so P(ever >= 1 / alpha)
<= alpha. MONITOR: `e_value` is the *sum* of the detectors. Under the null each grows by at most 1 in mean per sample of its own
stratum, so the sum grows by at most 1 per sample of any, and its run length is at least A samples (the argument of Shin,
Ramdas, Rinaldo, arXiv 2203.03532, proposition 2.4). `weakest` is the other direction, "worse in some stratum", for passing.
Cost: one `Wealth` update and a sum over strata, about 6 us. The price of S strata: a factor S in wealth, log(S) in the
exponent.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import fsum
from typing import Any, Self

from specops.errors import InvalidInput, InvalidRecord
from specops.stats.confidence import Interval, Moments, bounded_interval
from specops.stats.frozen import trusted
from specops.stats.wealth import Bets, Mode, Wealth

MAX_STRATA = 64
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Stratified:
    """Wealth and moments per stratum, in the order of `names`.

    `peak` is the largest `e_value` so far; `values` repeats the present value of each wealth, so that a sum is cheap.
    """

    names: tuple[str, ...]
    weights: tuple[float, ...]
    wealths: tuple[Wealth, ...]
    moments: tuple[Moments, ...]
    peak: float
    values: tuple[float, ...]

    @classmethod
    def start(cls, bets: Mapping[str, Bets], mode: Mode, weights: Mapping[str, float] | None = None) -> Self:
        """Return the evidence before any sample; strata count equally unless weights (summing to 1) say otherwise.

        Raises:
            InvalidInput: no or too many strata, or weights that do not fit them.
        """
        names = tuple(bets)
        if not 1 <= len(names) <= MAX_STRATA:
            raise InvalidInput(f"a stratified test needs 1 to {MAX_STRATA} strata, got {len(names)}; make the strata coarser")
        shares = dict.fromkeys(names, 1.0 / len(names)) if weights is None else dict(weights)
        if set(shares) != set(names) or min(shares.values()) < 0.0 or abs(fsum(shares.values()) - 1.0) > _ROUNDING:
            raise InvalidInput(f"weights of strata {list(names)} must be >= 0 and sum to 1, got {shares}")
        first = 0.0 if mode is Mode.MONITOR else 1.0
        return cls(
            names=names, weights=tuple(shares[name] for name in names), moments=(Moments(),) * len(names),
            wealths=tuple(Wealth.start(bets[name], mode) for name in names), peak=first, values=(first,) * len(names),
        )  # fmt: skip

    def update(self, stratum: str, x: float) -> "Stratified":
        """Return the evidence after one more sample in [0, 1] of one stratum.

        Raises:
            InvalidInput: the stratum was not declared, or the sample is outside [0, 1].
        """
        try:
            at = self.names.index(stratum)
        except ValueError:
            raise InvalidInput(f"stratum {stratum!r} was not declared; there is {list(self.names)}") from None
        grown = self.wealths[at].update(x)
        values = (*self.values[:at], grown.e_value, *self.values[at + 1 :])
        return _stratified(
            names=self.names, weights=self.weights, wealths=(*self.wealths[:at], grown, *self.wealths[at + 1 :]),
            moments=(*self.moments[:at], self.moments[at].update(x), *self.moments[at + 1 :]),
            peak=max(self.peak, self._combined(values)), values=values,
        )  # fmt: skip

    @property
    def n(self) -> int:
        """Samples over all strata."""
        return sum([wealth.n for wealth in self.wealths])

    @property
    def e_value(self) -> float:
        """Evidence against "fine in every stratum": weighted average (STEADY, CHANGE) or sum (MONITOR)."""
        return self._combined(self.values)

    @property
    def weakest(self) -> float:
        """Evidence against "worse in some stratum" when the bets are against "worse": the smallest wealth.

        A false pass has probability <= alpha at 1 / alpha, undivided (intersection-union). A stratum without samples has wealth
        1 and so holds everything back.
        """
        return min(self.values)

    def estimate(self, shares: Mapping[str, float], alpha: float) -> Interval | None:
        """Return the post-stratified mean, what the mean would be under a fixed mix of traffic, with a confidence sequence.

        The interval joins one confidence sequence per stratum at alpha / strata each (union bound): valid at all times, wider
        than a joint one. Strata of share 0 are left out.

        Args:
            shares: stratum -> share of the mix to report for, such as the baseline's; sums to 1.
            alpha: 1 - coverage, in (0, 1).

        Returns:
            None while a stratum with a share has no sample.

        Raises:
            InvalidInput: shares of unknown strata, that do not sum to 1, or alpha outside (0, 1).
        """
        values = list(shares.values())
        if not set(shares) <= set(self.names) or min(values, default=-1.0) < 0.0 or abs(fsum(values) - 1.0) > _ROUNDING:
            raise InvalidInput(f"shares of strata {list(self.names)} must be >= 0 and sum to 1, got {dict(shares)}")
        counted = [(share, self.moments[self.names.index(name)]) for name, share in shares.items() if share > 0.0]
        parts = [(share, bounded_interval(moments, alpha / len(counted))) for share, moments in counted]
        estimate = low = high = 0.0
        for share, part in parts:
            if part is None:
                return None
            estimate, low, high = estimate + share * part.estimate, low + share * part.low, high + share * part.high
        return Interval(estimate=min(1.0, estimate), low=min(1.0, low), high=min(1.0, high))

    def to_record(self) -> dict[str, Any]:
        """Return JSON-ready values; `from_record` is the inverse, to the last bit."""
        parts = {"wealths": [w.to_record() for w in self.wealths], "moments": [asdict(m) for m in self.moments]}
        return {"names": list(self.names), "weights": list(self.weights), "peak": self.peak} | parts

    @classmethod
    def from_record(cls, record: dict[str, Any], bets: Mapping[str, Bets]) -> Self:
        """Build the evidence from `to_record` values and the bets of each stratum.

        Raises:
            InvalidRecord: a field is missing, or the strata are others.
        """
        try:
            names = tuple(record["names"])
            wealths = tuple(Wealth.from_record(r, bets[name]) for name, r in zip(names, record["wealths"], strict=True))
            moments = tuple(Moments(**m) for _, m in zip(names, record["moments"], strict=True))
            return cls(
                names=names, weights=tuple(record["weights"]), wealths=wealths, moments=moments, peak=record["peak"],
                values=tuple(wealth.e_value for wealth in wealths),
            )  # fmt: skip
        except (KeyError, TypeError, ValueError) as exc:
            raise InvalidRecord(f"not a record of evidence by stratum: {exc!r}; replay the outcomes") from exc

    def _combined(self, values: tuple[float, ...]) -> float:
        if self.wealths[0].mode is Mode.MONITOR:
            return fsum(values)
        return fsum([weight * value for weight, value in zip(self.weights, values, strict=True)])


_stratified = trusted(Stratified)
