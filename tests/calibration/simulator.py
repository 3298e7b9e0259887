"""Many seeded runs of a test at once in numpy, for calibration and for the benchmark `evidence`.

Each function repeats the arithmetic of one module of `specops.stats` over an array of runs; `test_simulator.py` holds them
to the real ones. Runs are looked at after every request; a run that reached its bar stops counting.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from specops.stats import attribution, two_sample
from specops.stats.stakes import Mode
from specops.stats.wealth import Bets

Array = npt.NDArray[np.float64]
Samples = Callable[[int], Array]  # number of the request, from 1 -> one sample per run
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

    def restart(self, which: npt.NDArray[np.bool_]) -> None:
        """Begin anew where told."""
        self.stakes[which], self.n[which] = (1.0 if self.mode is Mode.STEADY else 0.0), 0.0


def wealths(bets: Bets, mode: Mode, runs: int, samples: Samples) -> Callable[[int], Array]:
    """Return a function that feeds request number n to every run and returns the wealths."""
    pots, slopes = Pots(runs, len(bets.slopes), mode), np.array(bets.slopes)
    return lambda n: pots.grow(1.0 + slopes * (samples(n) - bets.limit)[:, None])


def first_hits(step: Callable[[int], Array], bar: float, runs: int, horizon: int) -> Array:
    """Return the request at which each run reached the bar; infinity within the horizon."""
    hits = np.full(runs, np.inf)
    for n in range(1, horizon + 1):
        hits[(step(n) >= bar) & np.isinf(hits)] = n
        if n % 64 == 0 and np.isfinite(hits).all():
            break
    return hits


def run_length(bets: Bets, bar: float, runs: int, horizon: int, samples: Samples) -> tuple[float, float]:
    """Return (mean requests between alarms of a MONITOR that begins anew after each, its standard error)."""
    pots, slopes, alarms = Pots(runs, len(bets.slopes), Mode.MONITOR), np.array(bets.slopes), 0
    for n in range(1, horizon + 1):
        over = pots.grow(1.0 + slopes * (samples(n) - bets.limit)[:, None]) >= bar
        if over.any():
            alarms += int(over.sum())
            pots.restart(over)
    return runs * horizon / max(alarms, 1), runs * horizon / max(alarms, 1) ** 1.5


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


def attributions(mode: Mode, runs: int, labels: Callable[[int], tuple[Array, Array]], share: float) -> Callable[[int], Array]:
    """Return a step over requests; `labels(n)` gives (1 for the candidate, 1 for an event) per run."""
    pots = Pots(runs, len(attribution.RATIOS), mode)
    ratios = np.array(attribution.RATIOS)
    won, lost = ratios / (share * ratios + 1 - share), 1.0 / (share * ratios + 1 - share)

    def step(n: int) -> Array:
        candidate, event = labels(n)
        return pots.grow(np.where(candidate[:, None] > 0, won, lost), event > 0)

    return step


def two_samples(mode: Mode, runs: int, labels: Callable[[int], tuple[Array, Array]]) -> Callable[[int], Array]:
    """Return a step over requests of `two_sample`; labels as in `attributions`."""
    pots, ratios = Pots(runs, len(two_sample.RATIOS), mode), np.array(two_sample.RATIOS)
    block = {name: np.zeros(runs) for name in ("nc", "hc", "nb", "hb")}
    seen, hits = np.zeros(runs), np.zeros(runs)

    def step(n: int) -> Array:
        candidate, event = labels(n)
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
