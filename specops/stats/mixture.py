"""Test whether tokens follow the laws they are said to follow: a mixture of likelihood ratios, valid at every stopping time.

H0: given everything before it, each token has law p_t. For any law r_t chosen before the token is seen, the product of
r_t(x_t) / p_t(x_t) is a test martingale, whatever the dependence between tokens; so is a mixture of such products, and by
Ville's inequality it ever reaches 1 / alpha with probability at most alpha. Laws are given on atoms (some single tokens, and
one atom for all others): a coarser view of the same p, so the guarantee stays exact. `core.fidelity` chooses the laws.

The same ratios bound from above how much of a second law q leaked in: the shares lambda of (1 - lambda) p + lambda q that
the data leave possible are an interval at every time, because their log likelihood is concave.

Source: Ville 1939; Ramdas et al., arXiv 2210.01948, sections 3 and 6 (mixtures, confidence sequences by inversion).
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from specops.errors import InvalidInput

Array = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]
FLOOR = 1e-12  # least probability in a denominator: a larger denominator only lowers the evidence
CAUTION = 0.02  # share of p in every alternative: no token costs more than a factor of 50
SHARES: Array = np.concatenate([[0.0], np.geomspace(1e-3, 1.0, 61)])
"""Leaked shares at which the likelihood is kept; neighbours differ by 12%."""
_SUM_TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Wealth:
    """Log wealth of each alternative in each stratum, after `tokens` tokens.

    `logs` is a row per stratum (the first is all tokens together, then one for each position) and a column per alternative;
    `peak` the largest log e-value of the mixture so far, which may be compared with log(1 / alpha) at any time.
    """

    names: tuple[str, ...]
    logs: tuple[tuple[float, ...], ...]
    tokens: int = 0
    peak: float = 0.0

    @classmethod
    def new(cls, names: tuple[str, ...], positions: int = 0) -> "Wealth":
        """Return the state before the first token, with `positions` strata beside the pooled one."""
        if not names or positions < 0:
            raise InvalidInput(f"got {len(names)} alternatives and {positions} positions; give at least one alternative")
        return cls(names=names, logs=((0.0,) * len(names),) * (positions + 1))

    @property
    def log_e(self) -> float:
        """The log e-value now: half on the pooled stratum, the other half spread over the positions."""
        return float(_mixed(np.asarray(self.logs)[None])[0])

    @property
    def winner(self) -> tuple[str, int | None]:
        """The alternative with most weighted wealth, and its position; None stands for all tokens together."""
        logs = np.asarray(self.logs) + _log_weights(*np.shape(self.logs))
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
        steps[0], steps[1:, 0] = self.logs, log_ratios
        if position is not None:
            for stratum in range(1, len(self.logs)):
                here = position == stratum - 1
                steps[1:, stratum][here] = log_ratios[here]
        logs = np.cumsum(steps, axis=0)[1:]
        path = _mixed(logs)
        state = Wealth(
            names=self.names,
            logs=tuple(tuple(row) for row in logs[-1].tolist()),
            tokens=self.tokens + count,
            peak=max(self.peak, float(path.max())),
        )
        return state, path

    def to_record(self) -> dict[str, Any]:
        """Return JSON-ready values that `from_record` reads back to the bit."""
        return {"names": list(self.names), "logs": [list(row) for row in self.logs], "tokens": self.tokens, "peak": self.peak}

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> "Wealth":
        """Read what `to_record` wrote.

        Raises:
            InvalidInput: the record is not of that form.
        """
        try:
            logs = tuple(tuple(float(one) for one in row) for row in record["logs"])
            names = tuple(str(one) for one in record["names"])
            found = cls(names=names, logs=logs, tokens=int(record["tokens"]), peak=float(record["peak"]))
        except (KeyError, TypeError, ValueError) as exc:
            raise InvalidInput(f"this is no saved evidence ({exc!r}); start the verification anew") from exc
        if not logs or any(len(row) != len(names) for row in logs) or not np.isfinite(logs).all():
            raise InvalidInput("the saved evidence does not fit its alternatives; start the verification anew")
        return found


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


def log_ratios(null: Array, alternatives: Array, token: Whole) -> Array:
    """Return log(((1 - CAUTION) r + CAUTION p) / p) at the atom of each token, float64 [tokens, alternatives].

    Args:
        null: p, float64 [tokens, atoms], rows sum to 1.
        alternatives: r, float64 [alternatives, tokens, atoms], rows sum to at most 1; chosen without looking at the token.
        token: int64 [tokens], index of the atom that was emitted.

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
    found: Array = np.log(CAUTION + (1 - CAUTION) * ratio).T
    return found


def _log_weights(strata: int, laws: int) -> Array:
    share = np.full(strata, 0.5 / max(strata - 1, 1))
    share[0] = 0.5 if strata > 1 else 1.0
    weights: Array = np.log(share / laws)[:, None]
    return weights


def _mixed(logs: Array) -> Array:
    """Return the log e-value [n] of log wealths [n, strata, laws]."""
    weighted = logs + _log_weights(*logs.shape[1:])
    top = weighted.max(axis=(1, 2))
    mixed: Array = top + np.log(np.exp(weighted - top[:, None, None]).sum(axis=(1, 2)))
    return mixed


def _mean_exp(logs: Array) -> Array:
    """Return log of the mean of exp over the last axis."""
    top = logs.max(axis=-1)
    found: Array = top + np.log(np.exp(logs - top[..., None]).mean(axis=-1))
    return found
