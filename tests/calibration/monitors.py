"""Monitors: what they watch at rest, and the best that could be done about a shift.

The best for a limit: the likelihood-ratio CUSUM that knows both shares, exactly optimal for them (Moustakides 1986), at a bar
that gives the same run length. For acceptance, whose law nobody knows: log(ARL) / KL_inf, the first-order bound.
"""

import math

import numpy as np

from specops.stats import bernoulli, betting, pairs, speedup
from specops.stats.wealth import Bets, Mode, Null
from tests.calibration.scenarios import Scenario, Source, acceptance, flags, pair_flags, ratios
from tests.calibration.simulator import Array, Step, attributions, cusum, first_hits, stratified, two_samples, wealths

ARL, STEPS = 1e4, 10_000
ORACLE_BARS = {0.02: 3.31, 0.03: 4.19, 0.05: 4.97, 0.10: 5.84}  # by bisection on the simulated run length, 2e7 requests
ACCEPTANCE_SHIFTS, ACCEPTANCE_SD, ACCEPTANCE_ARL = (0.63, 0.60, 0.50), 0.14, 1e6


def _one(bets: Bets, source: Source) -> Scenario:
    return lambda rng, runs: (wealths(bets, Mode.MONITOR, runs, source(rng, runs)), STEPS)


def _strata(rng: np.random.Generator, runs: int) -> tuple[Step, int]:
    """Watch two strata, 1% and 5% over their limits, half of the requests each."""
    shares = np.array([0.01, 0.05])

    def samples(_n: int) -> tuple[Array, Array]:
        stratum = rng.integers(2, size=runs)
        return stratum.astype(float), (rng.random(runs) < shares[stratum]).astype(float)

    return stratified([bernoulli.bets(Null.AT_MOST, share) for share in shares.tolist()], Mode.MONITOR, runs, samples), STEPS


def _events(rng: np.random.Generator, runs: int) -> tuple[Step, int]:
    """Watch whose events are whose at a share of a tenth; each step is an event."""
    labels = lambda _n: ((rng.random(runs) < 0.1).astype(float), np.ones(runs), 0.1)
    return attributions(Mode.MONITOR, runs, labels), STEPS


def _blocks(rng: np.random.Generator, runs: int) -> tuple[Step, int]:
    """Watch two arms of equal traffic, 5% over the limit on both; each step is a request."""
    labels = lambda _n: ((rng.random(runs) < 0.5).astype(float), (rng.random(runs) < 0.05).astype(float), 0.5)
    return two_samples(Mode.MONITOR, runs, labels), STEPS


MONITORS: dict[str, Scenario] = {
    "1% over the limit": _one(bernoulli.bets(Null.AT_MOST, 0.01), flags(0.01)),
    "acceptance": _one(betting.bets(Null.AT_LEAST, 0.70), acceptance),
    "strata": _strata,
    "pairs": _one(pairs.bets(Null.AT_MOST, 0.0), pair_flags),
    "speed-up": _one(speedup.bets(Null.AT_LEAST, 1.0), ratios),
    "attribution (in events)": _events,
    "two-sample": _blocks,
}


def run_length(monitor: Scenario, seed: int, runs: int, steps: int | None = None) -> tuple[float, float]:
    """Return (mean samples until a false alarm of a monitor configured for `ARL`, its standard error).

    Samples seen over alarms, each run until its first alarm or the last step: the mean where the hazard is constant, less than
    1% more where it starts from 0, as these do.
    """
    step, usual = monitor(np.random.default_rng(seed), runs)
    steps = steps or usual
    hits = first_hits(step, ARL, runs, steps)
    alarms = max(int(np.isfinite(hits).sum()), 1)
    found = float(np.minimum(hits, steps).sum()) / alarms
    return found, found / math.sqrt(alarms)


def gains(share: float) -> tuple[float, float]:
    """Return what a request within and one over the limit add to the oracle's CUSUM of 1% -> `share`."""
    return math.log((1 - share) / 0.99), math.log(share / 0.01)


def limit_delays(share: float, seed: int, runs: int) -> tuple[float, float]:
    """Return mean requests until (our monitor, the oracle) finds 1% -> `share` over the limit."""
    rng = np.random.default_rng(seed)
    over = lambda _n: (rng.random(runs) < share).astype(float)
    oracle, _ = cusum(gains(share), ORACLE_BARS[share], runs, 20_000, over, renew=False)
    ours = first_hits(wealths(bernoulli.bets(Null.AT_MOST, 0.01), Mode.MONITOR, runs, over), ARL, runs, 20_000)
    return float(ours.mean()), float(oracle.mean())


def acceptance_delays(mean: float, seed: int, runs: int) -> tuple[float, float]:
    """Return (mean requests until our monitor finds 0.70 -> `mean`, log(ARL) / KL_inf)."""
    rng, size = np.random.default_rng(seed), mean * (1 - mean) / ACCEPTANCE_SD**2 - 1
    rates = lambda count: rng.beta(mean * size, (1 - mean) * size, size=count)
    after, risks = rates(200_000), np.linspace(0.01, 3.3, 200)
    bound = math.log(ACCEPTANCE_ARL) / max(float(np.log1p(-risk * (after - 0.70)).mean()) for risk in risks)
    step = wealths(betting.bets(Null.AT_LEAST, 0.70), Mode.MONITOR, runs, lambda _n: rates(runs))
    return float(first_hits(step, ACCEPTANCE_ARL, runs, 5000).mean()), bound
