"""Outcomes in the order in which answers end: who answers sooner is seen sooner, and slow answers come last.

The other simulations tell samples in the order of assignment, for which the theory is exact. Production cannot: an outcome is
known when its answer ends. Here requests come as a Poisson process, with or without bursts of traffic, and are told by their
end; `settled` repeats `specops.core.rival`, and `test_simulator.py` holds it to the real thing.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from specops.stats.stakes import Mode
from tests.calibration.simulator import Array, Labels, Step, attributions, splits

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """`rate` requests a second; in the first `burst_s` of every `every_s` seconds `times` as many. Steady unless told."""

    rate: float = 50.0
    times: float = 1.0
    burst_s: float = 2.0
    every_s: float = 20.0

    def draw(self, rng: np.random.Generator, runs: int, count: int) -> Array:
        """Return when each request began [runs, count], seconds, rising."""
        due = rng.exponential(size=(runs, count)).cumsum(axis=1) / self.rate  # in seconds of calm traffic
        if self.times == 1.0:
            return due
        cycles = np.arange(int(due.max() / (self.every_s + (self.times - 1) * self.burst_s)) + 2)[:, None]
        clock = (cycles * self.every_s + [0.0, self.burst_s]).ravel()
        work = (cycles * (self.every_s + (self.times - 1) * self.burst_s) + [0.0, self.times * self.burst_s]).ravel()
        found: Array = np.interp(due, work, clock)
        return found


def by_end(began: Array, took: Array, values: Array, *, open_value: float, settle_s: float = 0.0) -> Array:
    """Return the values [runs, requests] in the order in which answers ended.

    Answers that end after the last request began are left out, `open_value` in their place: there the traffic of the
    simulation stops, and what is still open is slow by selection. The same for those that end within `settle_s` of the first.
    """
    ended = began + took
    order = np.argsort(ended, axis=1, kind="stable")
    at = np.take_along_axis(ended, order, axis=1)
    is_left_out = (at > began[:, -1:]) | (at < at[:, :1] + settle_s)
    return np.where(is_left_out, open_value, np.take_along_axis(values, order, axis=1))


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoArms:
    """Two arms that are slow equally often and not equally fast, while the candidate's share moves by steps.

    `answer_s`, `slow_s`: median seconds of ordinary and of slow answers, candidate first; log-normal, deviation 0.3.
    """

    arrivals: Arrivals = Arrivals()
    shares: tuple[float, ...] = (0.05, 0.2, 0.5)
    slow: float = 0.05
    answer_s: tuple[float, float] = (2.0, 4.0)
    slow_s: tuple[float, float] = (5.0, 12.0)

    def draw(self, rng: np.random.Generator, runs: int, count: int) -> "Told":
        """Return `count` requests per run, a step of the share after each equal part of them."""
        began = self.arrivals.draw(rng, runs, count)
        step = np.broadcast_to(np.arange(count) * len(self.shares) // count, (runs, count))
        candidate = rng.random((runs, count)) < np.array(self.shares)[step]
        slow = rng.random((runs, count)) < self.slow
        seconds = np.where(slow, *(np.where(candidate, *pair) for pair in (self.slow_s, self.answer_s)))
        took = seconds * np.exp(0.3 * rng.standard_normal((runs, count)))
        order = np.argsort(began + took, axis=1, kind="stable")
        told = {
            name: np.take_along_axis(value, order, axis=1)
            for name, value in {"began": began, "took": took, "candidate": candidate, "slow": slow, "step": step}.items()
        }
        return Told(shares=np.array(self.shares), **told)


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """Requests of two arms [runs, requests] in the order in which their answers ended."""

    shares: Array
    began: Array
    took: Array
    candidate: Flags
    slow: Flags
    step: npt.NDArray[np.int64]

    @property
    def share(self) -> Array:
        """The candidate's share when each request was assigned."""
        found: Array = self.shares[self.step]
        return found

    def settled(self, settle_s: float) -> Flags:
        """Tell whom `core.rival` lets count: assigned at the share in force, which has stood still for `settle_s`."""
        newest = np.maximum.accumulate(self.step, axis=1)
        firsts = np.concatenate([np.full((len(newest), 1), True), newest[:, 1:] > newest[:, :-1]], axis=1)
        since = np.maximum.accumulate(np.where(firsts, self.began, -np.inf), axis=1)
        found: Flags = (self.step == newest) & (self.began + self.took - since >= settle_s)
        return found

    def attributions(self, mode: Mode, settle_s: float | None) -> tuple[Step, int]:
        """Return the evidence of whose the slow answers were, and its steps; `settle_s` None lets every outcome count."""
        labels, steps = self._labels(self.slow if settle_s is None else self.slow & self.settled(settle_s))
        return attributions(mode, len(self.slow), labels), steps

    def splits(self, settle_s: float | None) -> tuple[Step, int]:
        """Return the evidence against the split, and its steps."""
        labels, steps = self._labels(np.full_like(self.slow, True) if settle_s is None else self.settled(settle_s))
        return splits(len(self.slow), labels), steps

    def _labels(self, counted: Flags) -> tuple[Labels, int]:
        """Return labels of the requests that count, run by run the first ones, so that steps are few."""
        steps = int(counted.sum(axis=1).max())
        first = np.argsort(~counted, axis=1, kind="stable")[:, :steps]
        columns = [np.take_along_axis(one, first, axis=1).T.astype(float) for one in (self.candidate, counted, self.share)]
        return lambda n: (columns[0][n - 1], columns[1][n - 1], columns[2][n - 1]), steps
