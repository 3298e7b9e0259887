"""Test whether tokens follow the laws they are said to follow: a mixture of likelihood ratios, valid at every stopping time.

H0: given everything before it, each token has law p_t. For any law r_t chosen before the token is seen, the product of
r_t(x_t) / p_t(x_t) is a test martingale, whatever the dependence between tokens; so is a mixture of such products, and by
Ville's inequality it ever reaches 1 / alpha with probability at most alpha. Laws are given on atoms (some single tokens, and
one atom for all others): a coarser view of the same p, so the guarantee stays exact. Where p is known only up to a factor, on
some of the atoms, bets are placed among those (`log_ratios`). `core.fidelity` chooses the laws.

The same ratios bound from above how much of a second law q leaked in: the shares lambda of (1 - lambda) p + lambda q that
the data leave possible are an interval at every time, because their log likelihood is concave.

Sources: Ville 1939; Ramdas et al., arXiv 2210.01948, sections 3 and 6 (mixtures, confidence sequences by inversion); Krichevsky
and Trofimov 1981 (`rank_bet`); Shin, Ramdas and Rinaldo, arXiv 2203.03532 (`Detector`: Shiryaev-Roberts on e-processes).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from specops.errors import InvalidInput

Array = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
FLOOR = 1e-12  # least probability in a denominator: a larger denominator only lowers the evidence
CAUTION = 0.02  # share of p in every alternative: no token costs more than a factor of 50
SHARES: Array = np.concatenate([[0.0], np.geomspace(1e-3, 1.0, 61)])
"""Leaked shares at which the likelihood is kept; neighbours differ by 12%."""
BINS = 20  # of `rank_bet`
_SUM_TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Wealth:
    """Log wealth of each alternative in each stratum, after `tokens` tokens.

    `logs` is a row per stratum (the first is all tokens together, then one for each position) and a column per alternative;
    `shares` is each alternative's part of the stake, summing to 1;
    `peak` the largest log e-value of the mixture so far, which may be compared with log(1 / alpha) at any time.
    """

    names: tuple[str, ...]
    logs: tuple[tuple[float, ...], ...]
    shares: tuple[float, ...]
    tokens: int = 0
    peak: float = 0.0

    @classmethod
    def new(cls, stakes: Mapping[str, float], positions: int = 0) -> "Wealth":
        """Return the state before the first token: a stake > 0 on each alternative, `positions` strata beside all."""
        if not stakes or positions < 0 or not all(0 < stake < math.inf for stake in stakes.values()):
            raise InvalidInput(f"got stakes {dict(stakes)} and {positions} positions; stakes are > 0, and at least one")
        total = math.fsum(stakes.values())
        shares = tuple(stake / total for stake in stakes.values())
        return cls(names=tuple(stakes), logs=((0.0,) * len(stakes),) * (positions + 1), shares=shares)

    @property
    def log_e(self) -> float:
        """The log e-value now: half on the pooled stratum, the other half spread over the positions."""
        return float(_mixed(np.asarray(self.logs)[None], self.shares)[0])

    @property
    def winner(self) -> tuple[str, int | None]:
        """The alternative with most weighted wealth, and its position; None stands for all tokens together."""
        logs = np.asarray(self.logs) + _log_weights(len(self.logs), self.shares)
        stratum, law = divmod(int(logs.argmax()), len(self.names))
        return self.names[law], (stratum - 1 if stratum else None)

    def fold(self, log_ratios: Array, position: Whole | None = None) -> tuple["Wealth", Array]:
        """Take in tokens in order, and return the new state and the log e-value after each of them.

        The result is the same, to the bit, however a run of tokens is cut into calls.

        Args:
            log_ratios: float64 [tokens, alternatives] from `log_ratios`.
            position: int64 [tokens], place in the verified block from 0; below 0 or beyond the last stratum: only pooled.

        Raises:
            InvalidInput: shapes disagree, or a ratio is not a number.
        """
        count, laws = len(log_ratios), len(self.names)
        if log_ratios.shape != (count, laws) or (position is not None and position.shape != (count,)):
            raise InvalidInput(f"log ratios {log_ratios.shape} for {laws} alternatives; give a row and a position per token")
        if not np.isfinite(log_ratios).all():
            raise InvalidInput("a log ratio is not finite; build them with log_ratios()")
        if not count:
            return self, np.zeros(0)
        steps = np.zeros((count + 1, len(self.logs), laws))
        steps[0], steps[1:] = self.logs, _by_stratum(log_ratios, position, len(self.logs))
        logs = np.cumsum(steps, axis=0)[1:]
        path = _mixed(logs, self.shares)
        state = Wealth(
            names=self.names,
            shares=self.shares,
            logs=tuple(tuple(row) for row in logs[-1].tolist()),
            tokens=self.tokens + count,
            peak=max(self.peak, float(path.max())),
        )
        return state, path

    def to_record(self) -> dict[str, Any]:
        """Return JSON-ready values that `from_record` reads back to the bit."""
        kept = {"names": list(self.names), "shares": list(self.shares), "tokens": self.tokens, "peak": self.peak}
        return kept | {"logs": [list(row) for row in self.logs]}

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> "Wealth":
        """Read what `to_record` wrote.

        Raises:
            InvalidInput: the record is not of that form.
        """
        try:
            logs = tuple(tuple(float(one) for one in row) for row in record["logs"])
            names, shares = tuple(str(one) for one in record["names"]), tuple(float(one) for one in record["shares"])
            found = cls(names=names, logs=logs, shares=shares, tokens=int(record["tokens"]), peak=float(record["peak"]))
        except (KeyError, TypeError, ValueError) as exc:
            raise InvalidInput(f"this is no saved evidence ({exc!r}); start the verification anew") from exc
        if not logs or any(len(row) != len(names) for row in (*logs, shares)) or not np.isfinite(logs).all():
            raise InvalidInput("the saved evidence does not fit its alternatives; start the verification anew")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Detector:
    """Alarm when tokens *begin* to leave their laws, with at least `run_length` tokens to a false alarm on average.

    Every alternative is started anew at each token (Shiryaev-Roberts); the weighted mean of these sums reaches `run_length`
    on average no sooner than after as many sound tokens. `logs` are the logarithms of the sums, as in `Wealth`.
    """

    run_length: float
    names: tuple[str, ...]
    shares: tuple[float, ...]
    logs: tuple[tuple[float, ...], ...]
    tokens: int = 0
    alarm_at: int | None = None

    @classmethod
    def new(cls, run_length: float, stakes: Mapping[str, float], positions: int = 0) -> "Detector":
        """Return the state before the first token; see `Wealth.new`."""
        if not 1 < run_length < math.inf:
            raise InvalidInput(f"run length is {run_length}, expected more than 1 token; 1e6 is usual")
        start = Wealth.new(stakes, positions)
        logs = np.full(np.shape(start.logs), -np.inf).tolist()
        return cls(run_length=run_length, names=start.names, shares=start.shares, logs=tuple(map(tuple, logs)))

    def fold(self, log_ratios: Array, position: Whole | None = None) -> tuple["Detector", Array]:
        """Take in tokens in order; return the new state and the log of the mean sum after each. See `Wealth.fold`."""
        logs, path, alarm = np.asarray(self.logs), [], self.alarm_at
        bar = math.log(self.run_length)
        known = np.ones(len(log_ratios), bool) if position is None else position >= 0
        moved = _by_stratum(log_ratios, position, len(self.logs))
        for at, step in enumerate(moved):
            here = np.ones(len(self.logs), bool)  # a stratum without this token keeps its sums
            here[1:] = known[at] and position is not None and np.arange(len(here) - 1) == position[at]
            logs = np.where(here[:, None], np.logaddexp(logs, 0.0) + step, logs)
            path.append(float(_mixed(logs[None], self.shares)[0]))
            if alarm is None and path[-1] >= bar:
                alarm = self.tokens + at + 1
        state = Detector(
            run_length=self.run_length, names=self.names, shares=self.shares, logs=tuple(map(tuple, logs.tolist())),
            tokens=self.tokens + len(path), alarm_at=alarm,
        )  # fmt: skip
        return state, np.array(path)

    @property
    def winner(self) -> tuple[str, int | None]:
        """The alternative with the largest weighted sum, and its position; None stands for all tokens together."""
        return Wealth(names=self.names, logs=self.logs, shares=self.shares).winner

    def to_record(self) -> dict[str, Any]:
        """Return JSON-ready values that `from_record` reads back to the bit; a sum that is still 0 has None as logarithm."""
        logs = [[one if math.isfinite(one) else None for one in row] for row in self.logs]
        kept = {"run_length": self.run_length, "names": list(self.names), "shares": list(self.shares), "tokens": self.tokens}
        return kept | {"logs": logs, "alarm_at": self.alarm_at}

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> "Detector":
        """Read what `to_record` wrote.

        Raises:
            InvalidInput: the record is not of that form.
        """
        try:
            logs = tuple(tuple(-math.inf if one is None else float(one) for one in row) for row in record["logs"])
            names, shares = tuple(str(one) for one in record["names"]), tuple(float(one) for one in record["shares"])
            alarm = None if record["alarm_at"] is None else int(record["alarm_at"])
            run_length, tokens = float(record["run_length"]), int(record["tokens"])
        except (KeyError, TypeError, ValueError) as exc:
            raise InvalidInput(f"this is no saved detector ({exc!r}); start the watch anew") from exc
        is_read = logs and all(len(row) == len(names) for row in (*logs, shares))
        if not is_read or np.isnan(logs).any() or np.isposinf(logs).any():
            raise InvalidInput("the saved detector does not fit its alternatives; start the watch anew")
        return cls(run_length=run_length, names=names, shares=shares, logs=logs, tokens=tokens, alarm_at=alarm)


@dataclass(frozen=True, slots=True, kw_only=True)
class Leak:
    """How much of q may have leaked in: log likelihood at each of `SHARES` against p, and the mean distance of p and q.

    The numerator against each share is the equal mixture of the likelihoods at all `SHARES`. `upper` is the least share that is
    excluded so far together with all above it, 1 while none is; it never grows.
    """

    logs: tuple[float, ...] = (0.0,) * len(SHARES)
    tokens: int = 0
    distance: float = 0.0
    upper: float = 1.0

    def fold(self, ratio: Array, distance: Array, alpha: float) -> "Leak":
        """Take in q(x) / p(x) of tokens [tokens], each with an upper bound on the total variation of its p and q.

        The guarantee at `alpha` holds at every token, and the result does not depend on how tokens are cut into calls.

        Raises:
            InvalidInput: shapes disagree, or alpha is outside (0, 1).
        """
        if ratio.shape != distance.shape or not 0 < alpha < 1:
            raise InvalidInput(f"got ratios {ratio.shape}, distances {distance.shape}, alpha {alpha}; use equal shapes")
        if not len(ratio):
            return self
        terms = np.log(np.maximum(1 + SHARES[None] * (ratio[:, None] - 1), FLOOR))
        logs = np.cumsum(np.concatenate([[self.logs], terms]), axis=0)[1:]
        # concave in the share: beyond the neighbour of the largest value the likelihood only falls
        beyond = np.arange(len(SHARES))[None] > logs.argmax(axis=1)[:, None]
        out = beyond & (_mean_exp(logs)[:, None] - logs >= math.log(1 / alpha))
        upper = float(np.where(out, SHARES[None], 1.0).min())
        total = float(np.cumsum(np.concatenate([[self.distance], distance]))[-1])
        return Leak(
            logs=tuple(logs[-1].tolist()), tokens=self.tokens + len(ratio), distance=total, upper=min(self.upper, upper)
        )

    @property
    def mean_distance(self) -> float:
        """Mean upper bound on the total variation of p and q, in [0, 1]."""
        return min(self.distance / self.tokens, 1.0) if self.tokens else 1.0

    @property
    def tv_bound(self) -> float:
        """Upper bound on the mean total variation per token of a leak towards q."""
        return self.upper * self.mean_distance

    def tokens_needed(self, tolerance: float, alpha: float) -> int | None:
        """Estimate how many more tokens bring the bound below `tolerance`; None when the data point the other way."""
        if not self.tokens or self.tv_bound <= tolerance:
            return 0 if self.tokens else None
        share = min(tolerance / max(self.mean_distance, FLOOR), 1.0)
        at = min(int(np.searchsorted(SHARES, share, side="right")) - 1, len(SHARES) - 1)
        gained = max(self.logs) - self.logs[at]  # growth, without the price of the mixture, which is paid once
        if at <= int(np.argmax(self.logs)) or gained <= 0:  # the likeliest leak is not below the tolerance
            return None
        bar = math.log(len(SHARES) / alpha)
        return max(math.ceil(self.tokens * (bar / gained - 1)), 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """What is known of p when it is not known in full; both bool [tokens, atoms].

    Among `known` atoms p is right up to a factor per token. `barred` atoms have at most the probability `surprise` together. Of
    the others nothing is known.
    """

    known: Mask
    barred: Mask
    surprise: float

    @property
    def is_whole(self) -> Mask:
        """Whether p is known on all that is possible, bool [tokens]: then the factor is 1."""
        return np.asarray((self.known | self.barred).all(axis=1))


def log_ratios(null: Array, alternatives: Array, token: Whole, region: Region | None = None) -> Array:
    """Return log((1 - CAUTION) r(x) / p(x) + CAUTION) at the atom of each token, float64 [tokens, alternatives].

    With a `region` the bet is r among its known atoms, given that the token is one of them, and r against `surprise` on the
    barred ones together; a token elsewhere only loses the stake on the barred. The mean under p is at most 1 all the same.

    Args:
        null: p, float64 [tokens, atoms], rows sum to 1.
        alternatives: r, float64 [alternatives, tokens, atoms], rows sum to at most 1; chosen without looking at the token.
        token: int64 [tokens], index of the atom that was emitted.
        region: where p is known; None: everywhere.

    Raises:
        InvalidInput: shapes disagree, a row is not a law, or a token is not an atom.
    """
    count, atoms = null.shape
    if alternatives.shape[1:] != null.shape or token.shape != (count,):
        raise InvalidInput(f"null {null.shape}, alternatives {alternatives.shape}, tokens {token.shape}; shapes must agree")
    if count and not (token.min() >= 0 and token.max() < atoms):
        raise InvalidInput(f"a token is not one of the {atoms} atoms; map tokens outside the top to the last atom")
    if not (null >= 0).all() or (np.abs(null.sum(axis=-1) - 1) > _SUM_TOLERANCE).any():
        raise InvalidInput("a row of the null is not a law; rows need values >= 0 that sum to 1 within 1e-6")
    if not (alternatives >= 0).all() or (alternatives.sum(axis=-1) > 1 + _SUM_TOLERANCE).any():
        raise InvalidInput("an alternative is not a law; rows need values >= 0 that sum to at most 1")
    rows = np.arange(count)
    ratio = alternatives[:, rows, token] / np.maximum(null[rows, token], FLOOR)
    if region is not None:
        inside = np.where(region.known, null, 0.0).sum(axis=1)
        scale = inside / np.maximum(np.einsum("lna,na->ln", alternatives, region.known), FLOOR)
        barred = np.minimum(np.einsum("lna,na->ln", alternatives, region.barred), 1.0)
        elsewhere = np.where(region.barred[rows, token], barred / region.surprise, 1 - barred)
        ratio = np.where(region.known[rows, token], ratio * scale * (1 - barred), elsewhere)
    return cautious(ratio).T


def cautious(ratio: Array) -> Array:
    """Return the log of a likelihood ratio r(x) / p(x) after `CAUTION` of p was mixed into r."""
    found: Array = np.log(CAUTION + (1 - CAUTION) * ratio)
    return found


def rank_bet(
    law: Array, token: Whole, counts: tuple[float, ...], known: Mask | None = None
) -> tuple[Array, tuple[float, ...]]:
    """Bet that tokens come from other ranks than p says: the back-stop for bugs that no alternative describes.

    Atoms in their order split [0, 1] into intervals as long as their probability; under p the place of the token is uniform
    over `BINS` bins. The bet for each token is the Krichevsky-Trofimov estimate from the tokens before it.

    Args:
        law: p, float64 [tokens, atoms], atoms in an order that does not depend on the token (falling probability).
        token: int64 [tokens], index of the atom that was emitted.
        counts: what earlier calls returned; `BINS` zeros at the start.
        known: bool [tokens, atoms]; only these split [0, 1], and a token elsewhere is no bet.

    Returns:
        r(x) / p(x) [tokens], and the counts with these tokens, each shared among the bins of its interval.
    """
    at = np.arange(len(token))
    if known is not None:
        law = np.where(known, law, 0.0)
        law = law / np.maximum(law.sum(axis=1, keepdims=True), FLOOR)
    stop = np.minimum(law.cumsum(axis=1)[at, token], 1.0)
    start = np.clip(stop - law[at, token], 0.0, 1 - FLOOR)
    edges = np.arange(BINS + 1) / BINS
    stop = np.maximum(stop, start + FLOOR)
    covered = np.clip(np.minimum(stop[:, None], edges[1:]) - np.maximum(start[:, None], edges[:-1]), 0.0, None)
    covered /= covered.sum(axis=1, keepdims=True)
    counted = covered if known is None else covered * known[at, token][:, None]
    total = np.cumsum(np.concatenate([[counts], counted]), axis=0)
    density = BINS * (total[:-1] + 0.5) / (total[:-1].sum(axis=1, keepdims=True) + BINS / 2)
    ratio = (covered * density).sum(axis=1)
    return (ratio if known is None else np.where(known[at, token], ratio, 1.0)), tuple(total[-1].tolist())


def _by_stratum(log_ratios: Array, position: Whole | None, strata: int) -> Array:
    """Return log ratios [tokens, strata, alternatives]: all in the first stratum, each in that of its position, else 0."""
    found = np.zeros((len(log_ratios), strata, log_ratios.shape[1]))
    found[:, 0] = log_ratios
    if position is not None:
        for stratum in range(1, strata):
            here = position == stratum - 1
            found[here, stratum] = log_ratios[here]
    return found


def _log_weights(strata: int, shares: tuple[float, ...]) -> Array:
    share = np.full(strata, 0.5 / max(strata - 1, 1))
    share[0] = 0.5 if strata > 1 else 1.0
    weights: Array = np.log(share[:, None] * np.asarray(shares))
    return weights


def _mixed(logs: Array, shares: tuple[float, ...]) -> Array:
    """Return the log e-value [n] of log wealths [n, strata, laws]."""
    weighted = logs + _log_weights(logs.shape[1], shares)
    top = weighted.max(axis=(1, 2))
    top = np.where(np.isfinite(top), top, 0.0)
    mixed: Array = top + np.log(np.maximum(np.exp(weighted - top[:, None, None]).sum(axis=(1, 2)), 5e-324))
    return mixed


def _mean_exp(logs: Array) -> Array:
    """Return log of the mean of exp over the last axis."""
    top = logs.max(axis=-1)
    found: Array = top + np.log(np.exp(logs - top[..., None]).mean(axis=-1))
    return found
