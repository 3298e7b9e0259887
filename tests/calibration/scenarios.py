"""Healthy traffic that is unkind, one scenario per gate test and disturbance: who keeps alpha, and where no test can.

Read by `test_false_alarms.py` with few runs, by `make test-exhaustive` and the benchmark `evidence` with thousands. A scenario
takes a generator and a number of runs, and returns the evidence and how many steps to look at; each step is a look.
Candidates are exactly at the limit, the worst that is still fine. Clustered tokens: each request has its own acceptance (sd
0.12) and a log-normal number of drafted tokens.
"""

from collections.abc import Callable

import numpy as np

from specops.core.policy_fields import SETTLE_S
from specops.stats import bernoulli, betting, pairs, speedup
from specops.stats.wealth import Bets, Mode, Null
from tests.calibration.arrivals import Arrivals, TwoArms, by_end
from tests.calibration.simulator import (
    Array,
    Labels,
    Step,
    attributions,
    bursts,
    clustered_rates,
    first_hits,
    splits,
    stratified,
    two_samples,
    wealths,
)

ALPHA, AT_ONCE = 0.05, 500
Scenario = Callable[[np.random.Generator, int], tuple[Step, int]]


def rate(scenario: Scenario, seed: int, runs: int) -> float:
    """Return the share of runs that ever reach 1 / alpha; `AT_ONCE` of them are in memory at a time."""
    rng, alarms = np.random.default_rng(seed), 0
    for start in range(0, runs, AT_ONCE):
        size = min(AT_ONCE, runs - start)
        step, steps = scenario(rng, size)
        alarms += int(np.isfinite(first_hits(step, 1 / ALPHA, size, steps)).sum())
    return alarms / runs


def bound(runs: int, alpha: float = ALPHA) -> float:
    """Return alpha plus two standard errors of a share of runs."""
    return float(alpha + 2 * np.sqrt(alpha * (1 - alpha) / runs))


# ---- one arm, told in the order of assignment

Source = Callable[[np.random.Generator, int], Callable[[int], Array]]


def _one(bets: Bets, mode: Mode, steps: int, source: Source) -> Scenario:
    return lambda rng, runs: (wealths(bets, mode, runs, source(rng, runs)), steps)


def acceptance(rng: np.random.Generator, runs: int) -> Callable[[int], Array]:
    """Draw per-request acceptance rates of mean 0.70, tokens clustered."""
    rates = clustered_rates(rng, 0.70, 0.12)
    return lambda _n: rates(runs)


def _all_or_nothing(rng: np.random.Generator, runs: int) -> Callable[[int], Array]:
    """Draw acceptance of mean 0.70 with spells of requests that have everything or nothing accepted."""
    rates, wild = clustered_rates(rng, 0.70, 0.12), bursts(rng, runs, 0.0, 1.0, 30, 300)
    return lambda _n: np.where(wild() > 0, rng.random(runs) < 0.70, rates(runs))


def flags(share: float) -> Source:
    """Return 1 with this probability, else 0."""
    return lambda rng, runs: lambda _n: (rng.random(runs) < share).astype(float)


def _bursting(calm: float, burst: float, length: float) -> Source:
    def source(rng: np.random.Generator, runs: int) -> Callable[[int], Array]:
        now = bursts(rng, runs, calm, burst, length, 10 * length)
        return lambda _n: (rng.random(runs) < now()).astype(float)

    return source


def ratios(rng: np.random.Generator, runs: int) -> Callable[[int], Array]:
    """Draw pairs whose log ratio is symmetric about 0 with heavy tails, wilder in spells: equal arms on a noisy machine."""
    noise = bursts(rng, runs, 0.2, 2.0, 30, 300)

    def samples(_n: int) -> Array:
        ratio = np.exp(np.clip(4 * noise() * rng.standard_t(2, size=runs), -300, 300))
        found: Array = ratio / (1 + ratio)
        return found

    return samples


def pair_flags(rng: np.random.Generator, runs: int) -> Callable[[int], Array]:
    """Draw pairs of which each half is slow with the same probability, 2% and 50% in bursts."""
    now = bursts(rng, runs, 0.02, 0.5, 30, 300)

    def samples(_n: int) -> Array:
        p = now()
        found: Array = (1 + (rng.random(runs) < p) - 1.0 * (rng.random(runs) < p)) / 2
        return found

    return samples


# ---- strata

STRATA = (0.70, 0.35)


def in_strata(mode: Mode, second: Source) -> Scenario:
    """Return evidence over two strata at their floors; `second` tells the probability of the second at each request."""

    def scenario(rng: np.random.Generator, runs: int) -> tuple[Step, int]:
        sources, now = [clustered_rates(rng, limit, 0.12) for limit in STRATA], second(rng, runs)

        def samples(n: int) -> tuple[Array, Array]:
            stratum = (rng.random(runs) < now(n)).astype(float)
            return stratum, np.where(stratum > 0, sources[1](runs), sources[0](runs))

        return stratified([betting.bets(Null.AT_LEAST, limit) for limit in STRATA], mode, runs, samples), 600

    return scenario


def turning(_rng: np.random.Generator, _runs: int) -> Callable[[int], Array]:
    """Tell a mix that goes from 9:1 to 1:9 after 300 requests."""
    return lambda n: np.array(0.1 if n < 300 else 0.9)


def _spells(rng: np.random.Generator, runs: int) -> Callable[[int], Array]:
    now = bursts(rng, runs, 0.05, 0.95, 30, 100)
    return lambda _n: now()


def pooled(rng: np.random.Generator, runs: int) -> tuple[Step, int]:
    """Return one wealth over both strata, which are fine, against a limit between them."""
    sources, now = [clustered_rates(rng, limit, 0.12) for limit in STRATA], turning(rng, runs)
    samples = lambda n: np.where(rng.random(runs) < now(n), sources[1](runs), sources[0](runs))
    return wealths(betting.bets(Null.AT_LEAST, 0.66), Mode.CHANGE, runs, samples), 600


# ---- two arms


def _two_arms(rng: np.random.Generator, runs: int, share: float, length: float) -> Labels:
    """Return labels of two equal arms while bursts of load (1% -> 30% over the limit) slow both."""
    now = bursts(rng, runs, 0.01, 0.30, length, 10 * length)

    def labels(_n: int) -> tuple[Array, Array, float]:
        return (rng.random(runs) < share).astype(float), (rng.random(runs) < now()).astype(float), share

    return labels


def by_event(mode: Mode, share: float, length: float) -> Scenario:
    """Return `attribution` on two equal arms under bursts of load."""
    return lambda rng, runs: (attributions(mode, runs, _two_arms(rng, runs, share, length)), 1500)


def by_block(mode: Mode, share: float, length: float) -> Scenario:
    """Return `two_sample` on two equal arms under bursts of load."""
    return lambda rng, runs: (two_samples(mode, runs, _two_arms(rng, runs, share, length)), 1500)


def split(shares: tuple[float, ...], true: float | None = None, steps: int = 2000) -> Scenario:
    """Return `Split` while the configured share moves by steps; `true` is what really comes, when it is not that."""

    def scenario(rng: np.random.Generator, runs: int) -> tuple[Step, int]:
        def labels(n: int) -> tuple[Array, Array, float]:
            share = shares[(n - 1) * len(shares) // steps]
            return (rng.random(runs) < (share if true is None else true)).astype(float), np.ones(runs), share

        return splits(runs, labels), steps

    return scenario


# ---- in the order in which answers end

STEADY = Arrivals(rate=40.0)
BURSTS = Arrivals(rate=20.0, times=10.0)
SHARES = (0.1, 0.5)  # two steps of 100 s
UNEQUAL = TwoArms(arrivals=STEADY, shares=SHARES)
BURSTING = TwoArms(arrivals=BURSTS, shares=SHARES)
CROWDED = TwoArms(arrivals=Arrivals(rate=50.0, times=10.0), shares=(0.1,), slow=0.2)
COUNT = 8_000  # requests


def ended_arms(arms: TwoArms, settle_s: float | None, *, split: bool = False) -> Scenario:
    """Return `attribution` of slow answers, or `split`, told by the end of answers."""

    def scenario(rng: np.random.Generator, runs: int) -> tuple[Step, int]:
        told = arms.draw(rng, runs, COUNT)
        return told.splits(settle_s) if split else told.attributions(Mode.CHANGE, settle_s)

    return scenario


def ended_blocks(arms: TwoArms, mode: Mode) -> Scenario:
    """Return `two_sample` of slow answers, told by the end of answers."""

    def scenario(rng: np.random.Generator, runs: int) -> tuple[Step, int]:
        told = arms.draw(rng, runs, COUNT // 2)
        candidate, slow = told.candidate.T.astype(float), told.slow.T.astype(float)
        return two_samples(mode, runs, lambda n: (candidate[n - 1], slow[n - 1], 0.0)), COUNT // 2

    return scenario


def _ended(bets: Bets, mode: Mode, drawn: Callable[[np.random.Generator, int], Array]) -> Scenario:
    def scenario(rng: np.random.Generator, runs: int) -> tuple[Step, int]:
        columns = np.ascontiguousarray(drawn(rng, runs).T)
        return wealths(bets, mode, runs, lambda n: columns[n - 1]), len(columns)

    return scenario


def _slow_last(arrivals: Arrivals, settle_s: float = 0.0) -> Callable[[np.random.Generator, int], Array]:
    """Return flags of 5% slow answers, which end after 12 s in the median, the others after 2 s."""

    def drawn(rng: np.random.Generator, runs: int) -> Array:
        began = arrivals.draw(rng, runs, 2000)
        slow = rng.random(began.shape) < 0.05
        took = np.where(slow, 12.0, 2.0) * np.exp(0.3 * rng.standard_normal(began.shape))
        return by_end(began, took, slow.astype(float), open_value=0.05, settle_s=settle_s)

    return drawn


def _rejected_last(arrivals: Arrivals, settle_s: float = 0.0) -> Callable[[np.random.Generator, int], Array]:
    """Return acceptance rates of mean 0.70; the less is accepted, the longer an answer takes (k = 3)."""

    def drawn(rng: np.random.Generator, runs: int) -> Array:
        began, size = arrivals.draw(rng, runs, 1000 + int(settle_s * arrivals.rate)), 0.7 * 0.3 / 0.12**2 - 1
        rates = rng.beta(0.7 * size, 0.3 * size, size=began.shape)
        took = 0.06 * rng.lognormal(np.log(160), 0.8, size=began.shape) / (1 + 3 * rates)
        return by_end(began, took, rates, open_value=0.70, settle_s=settle_s)

    return drawn


def _pairs_ended(
    arrivals: Arrivals, slow_s: tuple[float, float], settle_s: float = 0.0
) -> Callable[[np.random.Generator, int], Array]:
    """Return pair samples at the end of the later half; each half is slow in 5%, and then takes so long, candidate first."""

    def drawn(rng: np.random.Generator, runs: int) -> Array:
        began = arrivals.draw(rng, runs, 2000)
        over = [rng.random(began.shape) < 0.05 for _ in slow_s]
        took = [np.where(o, s, 3.0) * np.exp(0.3 * rng.standard_normal(began.shape)) for o, s in zip(over, slow_s, strict=True)]
        return by_end(began, np.maximum(*took), (1.0 + over[0] - over[1]) / 2, open_value=0.5, settle_s=settle_s)

    return drawn


def _ratios_ended(arrivals: Arrivals) -> Callable[[np.random.Generator, int], Array]:
    def drawn(rng: np.random.Generator, runs: int) -> Array:
        began = arrivals.draw(rng, runs, 1000)
        took = [3 * np.exp(0.5 * rng.standard_normal(began.shape)) for _ in range(2)]
        return by_end(began, np.maximum(*took), 1 / (1 + (took[0] / took[1]) ** 4), open_value=0.5)

    return drawn


_FLOOR, _CEILING = betting.bets(Null.AT_LEAST, 0.70), betting.bets(Null.AT_MOST, 0.70)
_OVER, _UNDER = bernoulli.bets(Null.AT_MOST, 0.01), bernoulli.bets(Null.AT_LEAST, 0.01)
_SLOW, _NOT_SLOW = bernoulli.bets(Null.AT_MOST, 0.05), bernoulli.bets(Null.AT_LEAST, 0.05)
_PAIRS, _PAIRS_PASS = pairs.bets(Null.AT_MOST, 0.0), pairs.bets(Null.AT_LEAST, 0.0)
_SLOWER, _FASTER = speedup.bets(Null.AT_LEAST, 1.0), speedup.bets(Null.AT_MOST, 1.0)

GATES: dict[str, Scenario] = {
    "acceptance, clustered tokens": _one(_FLOOR, Mode.CHANGE, 600, acceptance),
    "acceptance, clustered tokens, for promotion": _one(_CEILING, Mode.STEADY, 600, acceptance),
    "acceptance, bursts of all or nothing": _one(_FLOOR, Mode.CHANGE, 600, _all_or_nothing),
    "acceptance, bursts of all or nothing, for promotion": _one(_CEILING, Mode.STEADY, 600, _all_or_nothing),
    "acceptance, order of ends at 5/s": _ended(_FLOOR, Mode.CHANGE, _rejected_last(Arrivals(rate=5.0))),
    "acceptance, order of ends in bursts of traffic": _ended(_FLOOR, Mode.CHANGE, _rejected_last(BURSTS)),
    "1% over the limit": _one(_OVER, Mode.CHANGE, 2000, flags(0.01)),
    "1% over the limit, for promotion": _one(_UNDER, Mode.STEADY, 2000, flags(0.01)),
    "1% over the limit in bursts, fewer between": _one(_OVER, Mode.CHANGE, 2000, _bursting(0.001, 0.01, 100)),
    "5% over the limit, order of ends at 40/s": _ended(_SLOW, Mode.CHANGE, _slow_last(STEADY)),
    "strata, mix turns over": in_strata(Mode.CHANGE, turning),
    "strata, mix in bursts": in_strata(Mode.CHANGE, _spells),
    "strata, steady wealth, mix turns over": in_strata(Mode.STEADY, turning),
    "pairs, bursts of load": _one(_PAIRS, Mode.CHANGE, 1500, pair_flags),
    "pairs, bursts of load, for promotion": _one(_PAIRS_PASS, Mode.STEADY, 1500, pair_flags),
    "pairs, order of ends, slow halves equally long": _ended(_PAIRS, Mode.CHANGE, _pairs_ended(BURSTS, (12.0, 12.0))),
    "speed-up, heavy tails in bursts": _one(_SLOWER, Mode.CHANGE, 600, ratios),
    "speed-up, heavy tails in bursts, for promotion": _one(_FASTER, Mode.STEADY, 600, ratios),
    "speed-up, order of ends in bursts of traffic": _ended(_SLOWER, Mode.CHANGE, _ratios_ended(BURSTS)),
    "speed-up, order of ends in bursts of traffic, for promotion": _ended(_FASTER, Mode.STEADY, _ratios_ended(BURSTS)),
    **{
        f"{name}, bursts of load of {length} requests, share {share:.0%}": of(mode, share, length)
        for name, of, mode in (
            ("attribution", by_event, Mode.CHANGE), ("attribution, steady wealth", by_event, Mode.STEADY),
            ("two-sample", by_block, Mode.STEADY), ("two-sample, changing wealth", by_block, Mode.CHANGE),
        )
        for length, share in ((5, 0.1), (50, 0.5))
    },
    "5% over the limit, for promotion, order of ends at 5/s, settled": (
        _ended(_NOT_SLOW, Mode.STEADY, _slow_last(Arrivals(rate=5.0), SETTLE_S))
    ),
    "5% over the limit, for promotion, order of ends at 40/s, settled": (
        _ended(_NOT_SLOW, Mode.STEADY, _slow_last(STEADY, SETTLE_S))
    ),
    "acceptance, for promotion, order of ends at 40/s, settled": (
        _ended(_CEILING, Mode.STEADY, _rejected_last(STEADY, SETTLE_S))
    ),
    "pairs, order of ends at 20/s, slow halves of 5 s and 12 s, settled": (
        _ended(_PAIRS, Mode.CHANGE, _pairs_ended(Arrivals(rate=20.0), (5.0, 12.0), SETTLE_S))
    ),
    "attribution, order of ends at 40/s, share in steps": ended_arms(UNEQUAL, SETTLE_S),
    "attribution, order of ends in bursts of traffic to 200/s": ended_arms(BURSTING, SETTLE_S),
    "split, share of 10%": split((0.1,)),
    "split, share in steps": split((0.01, 0.1, 0.25, 0.5)),
    "split, order of ends at 40/s, share in steps": ended_arms(UNEQUAL, SETTLE_S, split=True),
}  # fmt: skip

BEYOND: dict[str, tuple[Scenario, str]] = {  # what the assumptions exclude, and which
    "1% over a fixed limit, bursts of load to 30%": (
        _one(bernoulli.bets(Null.AT_MOST, 0.02), Mode.CHANGE, 1500, _bursting(0.01, 0.30, 50)),
        "the burst is beyond the limit: compare with the baseline",
    ),
    "acceptance of all strata pooled, mix turns over": (
        pooled, "no strata: the mix moves the mean",
    ),
    "attribution, order of ends at 40/s, without SETTLE": (
        ended_arms(UNEQUAL, None), "a share just moved, arms not equally fast",
    ),
    "split, order of ends at 40/s, without SETTLE": (
        ended_arms(UNEQUAL, None, split=True), "a share just moved, arms not equally fast",
    ),
    "split, order of ends in bursts of traffic": (
        ended_arms(BURSTING, SETTLE_S, split=True), "bursts of traffic, arms not equally fast",
    ),
    "attribution, order of ends in bursts of traffic to 500/s, 20% slow": (
        ended_arms(CROWDED, SETTLE_S), "bursts of traffic, arms not equally fast",
    ),
    "two-sample, order of ends at 40/s": (ended_blocks(UNEQUAL, Mode.CHANGE), "arms not equally fast"),
    "pairs, order of ends at 20/s, slow halves of 5 s and 12 s, not settled": (
        _ended(_PAIRS, Mode.CHANGE, _pairs_ended(Arrivals(rate=20.0), (5.0, 12.0))), "slow halves not equally long",
    ),
    "5% over the limit, order of ends in bursts of traffic": (
        _ended(_SLOW, Mode.CHANGE, _slow_last(BURSTS)), "bursts of traffic, slow answers come last",
    ),
    "5% over the limit, for promotion, order of ends at 5/s, not settled": (
        _ended(_NOT_SLOW, Mode.STEADY, _slow_last(Arrivals(rate=5.0))), "at the start slow answers are still to come",
    ),
    "5% over the limit, for promotion, order of ends at 40/s, not settled": (
        _ended(_NOT_SLOW, Mode.STEADY, _slow_last(STEADY)), "at the start slow answers are still to come",
    ),
    "acceptance, for promotion, order of ends at 40/s, not settled": (
        _ended(_CEILING, Mode.STEADY, _rejected_last(STEADY)), "at the start slow answers are still to come",
    ),
}  # fmt: skip
