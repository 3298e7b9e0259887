"""What others do, on the same simulated requests: the rules our evidence is compared with in the benchmark `evidence`.

Each returns the request at which a run raised its alarm, infinity for none. All are given what they need: the share over the
limit under "fine" is known to them, intervals are full, no data is missing. Interval rules look once per 100 requests.
"""

import numpy as np
import numpy.typing as npt

from specops.stats import bernoulli
from specops.stats.wealth import Mode, Null
from tests.calibration.simulator import first_hits, wealths

Array = npt.NDArray[np.float64]
ALPHA, INTERVAL, POINTS = 0.05, 100, 50
Z99, Z95 = 2.3263478740408408, 1.6448536269514722  # normal points
SPREAD, SLOWER = 0.3, 3.0  # log-normal latencies; a slow request takes three times as long
# share of healthy requests -> what they exceed
LIMITS = {0.01: float(np.exp(SPREAD * Z99)), 0.001: float(np.exp(SPREAD * 3.090232306167813))}
SHARE_OF_SLOW = 0.9093  # of slow requests are over the limit of 1%


def latencies(rng: np.random.Generator, runs: int, requests: int, over: float) -> Array:
    """Return latencies [runs, requests] of which a share `over` >= 1% exceeds the limit of 1%."""
    slow = rng.random((runs, requests)) < (over - 0.01) / (SHARE_OF_SLOW - 0.01)
    found: Array = np.exp(SPREAD * rng.standard_normal((runs, requests))) * np.where(slow, SLOWER, 1.0)
    return found


def ours(candidate: Array, fine: float) -> Array:
    """Return alarms of the gate at 1 / alpha."""
    flags = np.ascontiguousarray((candidate > LIMITS[fine]).T, dtype=float)
    step = wealths(bernoulli.bets(Null.AT_MOST, fine), Mode.CHANGE, candidate.shape[0], lambda n: flags[n - 1])
    return first_hits(step, 1 / ALPHA, *candidate.shape)


def fixed_threshold(candidate: Array, fine: float, times: float, failures: int) -> Array:
    """Return alarms when more than `failures` intervals had more than `times` the share (Argo Rollouts: failureLimit)."""
    shares = _intervals(candidate > LIMITS[fine]).mean(axis=2)
    return _first((shares > times * fine).cumsum(axis=1) > failures)


def z_test(candidate: Array, fine: float) -> Array:
    """Return alarms of a one-sided z-test at 5% in each interval by itself."""
    shares = _intervals(candidate > LIMITS[fine]).mean(axis=2)
    return _first((shares - fine) / np.sqrt(fine * (1 - fine) / INTERVAL) > Z95)


def mann_whitney(candidate: Array, baseline: Array) -> Array:
    """Return alarms of Kayenta's rule: the 98% lower bound of the Hodges-Lehmann shift exceeds a quarter of the estimate."""
    ours_, theirs = _intervals(candidate)[:, :, :POINTS], _intervals(baseline)[:, :, :POINTS]
    count = POINTS * POINTS
    rank = int(count / 2 - Z99 * np.sqrt(count * (2 * POINTS + 1) / 12))  # two-sided 98%: the 99% point
    high = np.zeros(ours_.shape[:2], dtype=bool)
    for i in range(high.shape[1]):
        shifts = (ours_[:, i, :, None] - theirs[:, i, None, :]).reshape(-1, count)
        part = np.partition(shifts, (rank, count // 2), axis=1)
        high[:, i] = part[:, rank] > 0.25 * np.abs(part[:, count // 2])
    return _first(high)


def wald_msprt(candidate: Array, fine: float, planned: int = 500) -> Array:
    """Return alarms of the normal mixture SPRT with known variance, upward only, looked at after every request.

    Johari et al., arXiv 1512.04922; the mixture's spread is the normal approximation's best for `planned` requests.
    """
    n = np.arange(1, candidate.shape[1] + 1)
    drift = (candidate > LIMITS[fine]).cumsum(axis=1) - n * fine
    variance = fine * (1 - fine)
    wide = variance * (2 * np.log(1 / ALPHA) + np.log(1 + 2 * np.log(1 / ALPHA))) / planned
    logs = 0.5 * np.log(variance / (variance + n * wide)) + wide * drift**2 / (2 * variance * (variance + n * wide))
    over = (logs >= np.log(1 / ALPHA)) & (drift > 0)
    return np.where(over.any(axis=1), over.argmax(axis=1) + 1.0, np.inf)


def _intervals(values: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    return values.reshape(values.shape[0], -1, INTERVAL)


def _first(alarms: npt.NDArray[np.bool_]) -> Array:
    """Return the last request of the first interval with an alarm."""
    return np.where(alarms.any(axis=1), (alarms.argmax(axis=1) + 1.0) * INTERVAL, np.inf)
