"""Candidate against a concurrent baseline: who exceeds a limit more often, while both carry traffic at the same time.

Called by `core` for checks against the baseline. Requests of both arms are told in order of arrival; a block closes as soon as
it holds one request of each arm, so blocks are short whatever the split (a 10% canary: 1 against about 9) and nothing waits.

H0: within each block every candidate request exceeds the limit with conditional probability at most that of every baseline
request of the block; the probability may differ from block to block in any way. Guarantee: that of `wealth` for the mode, n
counting blocks, so a MONITOR's run length is at least A blocks, hence at least 2 A requests. *Exact* for "not worse at all"
(margin 0). No margin version is offered: its exact form needs a numerical projection per block (arXiv 2203.09785). A margin as
a ratio of rates is exact in `attribution`. A burst that begins inside a block breaks the assumption for that block, evenly in
both directions; bursts longer than a block cost nothing. Where the share of traffic is known, `attribution` needs no blocks at
all.

One block with n_c, n_b requests and alternatives p_c > p_b multiplies the stake by prod p_c(y) / p(y) * prod p_b(y) / p(y),
with p = (n_c p_c + n_b p_b) / (n_c + n_b): Turner, Ly, Grunwald, arXiv 2106.02693, theorem 1; with p_c > p_b its mean only
falls when the candidate is better, which makes it one-sided. p_b is estimated from blocks before (predictable plug-in), p_c by
a mixture of eight odds ratios. Cost: about 20 us per block; state: eight stakes and nine numbers.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, Self

from specops.errors import InvalidRecord
from specops.stats.stakes import Mode, checked, grow, log_worth, opening, worth

FAMILY = "two_sample"
RATIOS = (1.4, 2.0, 3.0, 4.5, 7.0, 11.0, 20.0, 50.0)  # odds of the candidate over odds of the baseline, under the alternative
_PRIOR_HITS, _PRIOR = 0.5, 1.0  # of the plug-in for the baseline; moves power, never validity
_COUNTS = ("n", "candidates", "candidate_hits", "baselines", "baseline_hits", "open_candidates", "open_candidate_hits",
           "open_baselines", "open_baseline_hits")  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoSample:
    """Evidence after `n` closed blocks. Counts are of closed blocks; `open_...` of the one that still lacks an arm."""

    mode: Mode
    stakes: tuple[float, ...]
    exponent: int = 0
    peak: float = 1.0
    n: int = 0
    candidates: int = 0
    candidate_hits: int = 0
    baselines: int = 0
    baseline_hits: int = 0
    open_candidates: int = 0
    open_candidate_hits: int = 0
    open_baselines: int = 0
    open_baseline_hits: int = 0

    @classmethod
    def start(cls, mode: Mode = Mode.STEADY) -> Self:
        """Return the evidence before any request."""
        return cls(mode=mode, stakes=opening(mode, len(RATIOS)), peak=0.0 if mode is Mode.MONITOR else 1.0)

    def update(self, *, candidate: bool, over: bool) -> "TwoSample":
        """Return the evidence after one more request of either arm, in order of arrival; `over`: it exceeded the limit."""
        n_c, h_c = self.open_candidates + candidate, self.open_candidate_hits + (candidate and over)
        n_b, h_b = self.open_baselines + (not candidate), self.open_baseline_hits + (not candidate and over)
        if not (n_c and n_b):
            return replace(self, open_candidates=n_c, open_candidate_hits=h_c, open_baselines=n_b, open_baseline_hits=h_b)
        p_b = (self.baseline_hits + _PRIOR_HITS) / (self.baselines + _PRIOR)
        factors = [_factor(p_b, ratio, (n_c, h_c), (n_b, h_b)) for ratio in RATIOS]
        stakes, exponent, value = grow(self.mode, self.n + 1, self.stakes, self.exponent, factors)
        return TwoSample(
            mode=self.mode, stakes=stakes, exponent=exponent, peak=max(self.peak, value), n=self.n + 1,
            candidates=self.candidates + n_c, candidate_hits=self.candidate_hits + h_c,
            baselines=self.baselines + n_b, baseline_hits=self.baseline_hits + h_b,
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
        first = {"family": FAMILY, "mode": self.mode.value, "peak": self.peak}
        counts = {name: getattr(self, name) for name in _COUNTS}
        return first | {"stakes": list(self.stakes), "exponent": self.exponent} | counts

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Self:
        """Build the evidence from `to_record` values.

        Raises:
            InvalidRecord: a field is missing or of another kind.
        """
        try:
            stakes, exponent = checked(record["stakes"], record["exponent"], len(RATIOS), FAMILY)
            counts = {name: int(record[name]) for name in _COUNTS}
            return cls(mode=Mode(record["mode"]), stakes=stakes, exponent=exponent, peak=float(record["peak"]), **counts)
        except (KeyError, TypeError, ValueError) as exc:
            raise InvalidRecord(f"not a record of a two-sample test: {exc!r}; replay the outcomes") from exc


def _factor(p_b: float, ratio: float, candidate: tuple[int, int], baseline: tuple[int, int]) -> float:
    """Return what one block of (requests, hits) per arm multiplies a stake by."""
    odds = ratio * p_b / (1.0 - p_b)
    p_c = odds / (1.0 + odds)
    (n_c, h_c), (n_b, h_b) = candidate, baseline
    p = (n_c * p_c + n_b * p_b) / (n_c + n_b)
    hits = _power(p_c / p, h_c) * _power(p_b / p, h_b)
    return hits * _power((1.0 - p_c) / (1.0 - p), n_c - h_c) * _power((1.0 - p_b) / (1.0 - p), n_b - h_b)


def _power(base: float, exponent: int) -> float:
    """Return base**exponent by squaring, for the C library's pow differs between machines in the last bit."""
    result = 1.0
    while exponent:
        if exponent & 1:
            result *= base
        base *= base
        exponent >>= 1
    return result
