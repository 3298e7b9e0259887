"""Many seeded runs of a test at once in numpy, for calibration and for the benchmark `evidence`.

Each function repeats the arithmetic of one module of `specops.stats` over an array of runs; `test_simulator.py` holds them
to the real ones. Runs are looked at after every request; a run that reached its bar stops counting.
"""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from specops.stats import attribution, two_sample
from specops.stats.attribution import CONCENTRATION
from specops.stats.stakes import Mode
from specops.stats.wealth import Bets

Array = npt.NDArray[np.float64]
Samples = Callable[[int], Array]  # number of the request, from 1 -> one sample per run
Step = Callable[[int], Array]  # feeds a request to every run -> wealth per run
Labels = Callable[[int], tuple[Array, Array, Array | float]]  # (1 for the candidate, 1 for an event, share then) per run
TOP = 1e250  # far above every bar, far below the end of a double


class Pots:
    """Stakes [runs, bets] under one mode; `grow` returns the wealth of every run."""

    def __init__(self, runs: int, bets: int, mode: Mode) -> None:
        self.mode = mode
        self.n = np.zeros(runs)
        self.stakes = np.full((runs, bets), 1.0 if mode is Mode.STEADY else 0.0)

    def grow(self, factors: Array, moved: npt.NDArray[np.bool_] | None = None) -> Array:
        """Multiply the stakes of the runs that moved (all, unless told), and return all wealths."""
        if moved is None:
            self.n += 1
            self.stakes = np.minimum((self.stakes + self._coin(self.n)) * factors, TOP)
        else:
            self.n += moved
            grown = (self.stakes + self._coin(np.maximum(self.n, 1.0))) * factors
            self.stakes = np.where(moved[:, None], np.minimum(grown, TOP), self.stakes)
        mean: Array = self.stakes.mean(axis=1)
        return mean + 0.5 / np.maximum(self.n, 0.5) if self.mode is Mode.CHANGE else mean

    def _coin(self, n: Array) -> Array | float:
        if self.mode is Mode.CHANGE:
            return (0.5 / np.where(n > 1, n * (n - 1), 1.0))[:, None]
        return 1.0 if self.mode is Mode.MONITOR else 0.0


def wealths(bets: Bets, mode: Mode, runs: int, samples: Samples) -> Step:
    """Return a function that feeds request number n to every run and returns the wealths."""
    pots, slopes = Pots(runs, len(bets.slopes), mode), np.array(bets.slopes)
    return lambda n: pots.grow(1.0 + slopes * (samples(n) - bets.limit)[:, None])


def first_hits(step: Step, bar: float, runs: int, horizon: int) -> Array:
    """Return the request at which each run reached the bar; infinity within the horizon."""
    hits = np.full(runs, np.inf)
    for n in range(1, horizon + 1):
        hits[(step(n) >= bar) & np.isinf(hits)] = n
        if n % 64 == 0 and np.isfinite(hits).all():
            break
    return hits


def cusum(gains: tuple[float, float], bar: float, runs: int, horizon: int, flags: Samples, *, renew: bool) -> tuple[Array, int]:
    """Return (first alarms, number of alarms when begun anew) of the likelihood-ratio CUSUM with (miss, hit) gains."""
    level, hits, alarms = np.zeros(runs), np.full(runs, np.inf), 0
    for n in range(1, horizon + 1):
        level = np.maximum(level, 0.0) + np.where(flags(n) > 0, gains[1], gains[0])
        over = level >= bar
        hits[over & np.isinf(hits)] = n
        if renew:
            alarms += int(over.sum())
            level[over] = 0.0
        elif n % 64 == 0 and np.isfinite(hits).all():
            break
    return hits, alarms


def attributions(mode: Mode, runs: int, labels: Labels) -> Step:
    """Return a step over requests of either arm."""
    pots, ratios = Pots(runs, len(attribution.RATIOS), mode), np.array(attribution.RATIOS)

    def step(n: int) -> Array:
        candidate, event, share = labels(n)
        share = np.broadcast_to(share, (runs,))[:, None]
        return pots.grow(np.where(candidate[:, None] > 0, ratios, 1.0) / (share * ratios + 1 - share), event > 0)

    return step


def splits(runs: int, labels: Labels) -> Step:
    """Return a step over requests of `attribution.Split` with two arms; the second label says whether a request counts."""
    counts, expected, stake = np.zeros((2, runs)), np.zeros((2, runs)), np.ones(runs)

    def step(n: int) -> Array:
        candidate, counted, share = labels(n)
        shares = np.array([np.broadcast_to(share, (runs,)), np.broadcast_to(1 - share, (runs,))])
        tilted = shares * (counts + CONCENTRATION * shares) / (expected + CONCENTRATION * shares)
        factors = tilted / tilted.sum(axis=0) / shares
        stake[:] = np.where(counted > 0, np.minimum(stake * np.where(candidate > 0, *factors), TOP), stake)
        counts[:] += (counted > 0) * np.array([candidate > 0, candidate <= 0])
        expected[:] += (counted > 0) * shares
        return stake.copy()

    return step


def stratified(bets: Sequence[Bets], mode: Mode, runs: int, samples: Callable[[int], tuple[Array, Array]]) -> Step:
    """Return a step over requests of `stratified`, strata counting equally; `samples(n)` gives (stratum, sample) per run."""
    parts = [Pots(runs, len(one.slopes), mode) for one in bets]
    slopes, limits = np.array([one.slopes for one in bets]), np.array([one.limit for one in bets])
    values = np.full((len(bets), runs), 0.0 if mode is Mode.MONITOR else 1.0)

    def step(n: int) -> Array:
        stratum, x = samples(n)
        for i, pots in enumerate(parts):
            values[i] = pots.grow(1.0 + slopes[i] * (x - limits[i])[:, None], stratum == i)
        total: Array = values.sum(axis=0)
        return total if mode is Mode.MONITOR else total / len(bets)

    return step


def two_samples(mode: Mode, runs: int, labels: Labels) -> Step:
    """Return a step over requests of `two_sample`, which needs no share."""
    pots, ratios = Pots(runs, len(two_sample.RATIOS), mode), np.array(two_sample.RATIOS)
    block = {name: np.zeros(runs) for name in ("nc", "hc", "nb", "hb")}
    seen, hits = np.zeros(runs), np.zeros(runs)

    def step(n: int) -> Array:
        candidate, event, _ = labels(n)
        for name, add in (("nc", candidate), ("hc", candidate * event), ("nb", 1 - candidate), ("hb", (1 - candidate) * event)):
            block[name] += add
        closed = (block["nc"] > 0) & (block["nb"] > 0)
        nc, hc, nb, hb = (block[name][:, None] for name in ("nc", "hc", "nb", "hb"))
        b = ((hits + 0.5) / (seen + 1.0))[:, None]
        odds = ratios * b / (1 - b)
        c = odds / (1 + odds)
        p = (nc * c + nb * b) / np.maximum(nc + nb, 1)
        factors = (c / p) ** hc * (b / p) ** hb * ((1 - c) / (1 - p)) ** (nc - hc) * ((1 - b) / (1 - p)) ** (nb - hb)
        values = pots.grow(factors, closed)
        seen[closed] += block["nb"][closed]
        hits[closed] += block["hb"][closed]
        for counts in block.values():
            counts[closed] = 0.0
        return values

    return step


def clustered_rates(rng: np.random.Generator, mean: float, sd: float, tokens: float = 160.0) -> Callable[[int], Array]:
    """Return samples of accepted / drafted: a Beta mean per request, log-normal drafted tokens, binomial acceptance."""
    size = mean * (1 - mean) / sd**2 - 1

    def samples(runs: int) -> Array:
        drafted = np.maximum(1, rng.lognormal(np.log(tokens), 0.8, size=runs)).astype(int)
        return rng.binomial(drafted, rng.beta(mean * size, (1 - mean) * size, size=runs)) / drafted

    return samples


def bursts(rng: np.random.Generator, runs: int, calm: float, burst: float, length: float, every: float) -> Callable[[], Array]:
    """Return the probability of a slow request now, per run: bursts of mean `length` requests, begun every `every` requests."""
    bursting = np.zeros(runs, dtype=bool)

    def now() -> Array:
        u = rng.random(runs)
        np.copyto(bursting, np.where(bursting, u >= 1 / length, u < 1 / every))
        return np.where(bursting, burst, calm)

    return now
