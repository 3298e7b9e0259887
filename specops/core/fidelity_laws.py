"""What a broken speculative engine would emit: one law per known bug, on the atoms of each token.

`core.fidelity` bets on each of them against the target's law. A law is a function of what was known before the token: p and q
of its row, the row before, p without filters. Being wrong about a bug costs power, never validity.

Sources: acceptance and residual, Leviathan et al. 2023, arXiv 2211.17192, algorithm 1; typical acceptance, arXiv 2401.10774,
section 2.3.1; real cases of each bug are listed in docs/explanation/fidelity.md.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from specops.errors import InvalidInput
from specops.stats.mixture import Array, Mask, Region, Whole, cautious, log_ratios, rank_bet

TINY = 1e-300
_SUM_TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """What the trusted path and the draft say about consecutive tokens, on common atoms; the last atom is all other tokens.

    `p` is the target's law under the request's settings, `q` the draft's, `previous` the target's one token earlier, `raw` the
    target's without the filters (top-k, top-p, ...); all float64 [tokens, atoms], atoms in falling order of p. `token` is the
    atom that was emitted, `position` its place in the verified block, -1 where it is not known; both int64 [tokens].

    `region` says where p is known, if not everywhere. `ratio` is q(x) / p(x) of the emitted token itself, finer than its atom
    (used where p is known as a whole), `apart` an upper bound of the total variation of p and q; both float64 [tokens].
    `favourite` is the atom of the draft's most likely token, int64 [tokens]; without it the largest atom of q, which may be
    the last one only because it holds many tokens.
    """

    token: Whole
    p: Array
    q: Array | None = None
    previous: Array | None = None
    raw: Array | None = None
    position: Whole | None = None
    region: Region | None = None
    ratio: Array | None = None
    apart: Array | None = None
    favourite: Whole | None = None

    def __post_init__(self) -> None:
        if self.p.ndim != 2 or self.token.shape != self.p.shape[:1]:  # noqa: PLR2004  # a matrix
            raise InvalidInput(f"p is {self.p.shape}, token {self.token.shape}; give p [tokens, atoms] and token [tokens]")
        for name in ("p", "q", "previous", "raw"):
            law: Array | None = getattr(self, name)
            if law is None:
                continue
            if law.shape != self.p.shape:
                raise InvalidInput(f"{name} is {law.shape}, p is {self.p.shape}; all laws are on the same atoms")
            if not (law >= 0).all() or (np.abs(law.sum(axis=1) - 1) > _SUM_TOLERANCE).any():
                raise InvalidInput(f"a row of {name} is not a law; rows need values >= 0 that sum to 1 within 1e-6")
    @property
    def is_whole(self) -> Mask:
        """Whether p is known on all that is possible, for each token."""
        return np.ones(len(self.p), bool) if self.region is None else self.region.is_whole

    def pick(self, which: slice | Mask) -> "Rows":
        """Return some of the tokens."""
        values = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "region"}
        region = self.region
        picked: dict[str, Any] = {name: None if value is None else value[which] for name, value in values.items()}
        if region is not None:
            region = replace(region, known=region.known[which], barred=region.barred[which])
        return Rows(**picked, region=region)

    def cut(self, start: int, stop: int) -> "Rows":
        """Return the tokens from `start` up to `stop`."""
        return self.pick(slice(start, stop))


Law = Callable[[Rows], Array]
RANKS = "rank order"  # the bet of `stats.mixture.rank_bet`; learns, so it is no law of a single row
LEAKS: Mapping[str, float] = {"leak 0.02": 0.02, "leak 0.1": 0.1, "leak 0.3": 0.3, "always accept": 1.0}
"""Alternatives whose ratio needs only p and q of the emitted token itself, and the share of drafts let through."""
_STAKES: Mapping[str, float] = {
    "leak 0.02": 8.0, "leak 0.1": 4.0, "resample from p": 4.0, "greedy draft, soft q": 4.0, "temperature 0.9": 2.0,
}  # fmt: skip
"""Stakes above 1: on bugs that are common and slow to show; a gross bug pays for its small stake within a few tokens."""


def laws_for(rows: Rows) -> dict[str, Law]:
    """Return the laws that can be computed from what is there, in a fixed order."""
    found = dict(_ALWAYS)
    for have, laws in ((rows.q, _WITH_DRAFT), (rows.previous, _WITH_PREVIOUS), (rows.raw, _WITH_RAW)):
        if have is not None:
            found |= laws
    return found


def stakes_for(rows: Rows) -> dict[str, float]:
    """Return the stake on each alternative: the laws of `laws_for`, and the bet on ranks."""
    return {name: _STAKES.get(name, 1.0) for name in (*laws_for(rows), RANKS)}


def log_bets(rows: Rows, ranks: tuple[float, ...]) -> tuple[Array, tuple[float, ...]]:
    """Return the log ratio of each alternative at each token [tokens, alternatives], and the counts of `rank_bet` then."""
    laws = laws_for(rows)
    found = log_ratios(rows.p, np.stack([law(rows) for law in laws.values()]), rows.token, rows.region)
    if rows.ratio is not None:
        for at, name in enumerate(laws):
            if name in LEAKS:
                fine = cautious(1 - LEAKS[name] + LEAKS[name] * rows.ratio)
                found[:, at] = np.where(rows.is_whole, fine, found[:, at])
    by_rank, ranks = rank_bet(rows.p, rows.token, ranks, None if rows.region is None else rows.region.known)
    return np.concatenate([found, cautious(by_rank)[:, None]], axis=1), ranks


def replay(rows: Rows, law: str, coins: Array) -> Rows:
    """Return the same rows with tokens that this law would have emitted: what a broken engine would show.

    Args:
        rows: with everything that the law needs.
        law: a name of `laws_for(rows)`.
        coins: uniform numbers in [0, 1), one per token.
    """
    edges = laws_for(rows)[law](rows).cumsum(axis=1)
    token = np.minimum((edges <= coins[:, None] * edges[:, -1:]).sum(axis=1), rows.p.shape[1] - 1)
    return replace(rows, token=token, ratio=None)  # the ratio was of another token; its atom's stands for it


def distance(rows: Rows) -> Array:
    """Return an upper bound on the total variation of p and q for each token [tokens], over the full vocabulary."""
    if rows.q is None:
        raise InvalidInput("the draft's law is needed to bound a leak towards it; give q")
    if rows.apart is not None:
        return rows.apart
    rest = np.minimum(rows.p[:, -1], rows.q[:, -1])  # two laws on the last atom may share no token
    found: Array = np.minimum(0.5 * np.abs(rows.p - rows.q).sum(axis=1) + rest, 1.0)
    return found


def leak(share: float) -> Law:
    """Return the law that emits a draft token unchecked with this probability."""
    return lambda rows: (1 - share) * rows.p + share * _q(rows)


def temperature(value: float) -> Law:
    """Return the law served at `value` times the temperature that was asked.

    The last atom counts as tokens each a quarter as likely as the least of the others: a guess, which can only cost power.
    """

    def law(rows: Rows) -> Array:
        power, top = 1 / value, rows.p[:, :-1]
        least = np.where(top > 0, top, 1.0).min(axis=1, initial=1.0) / 4
        sharp = np.where(rows.p > 0, np.maximum(rows.p, TINY) ** power, 0.0)
        sharp[:, -1] = rows.p[:, -1] * np.minimum(least, np.maximum(rows.p[:, -1], TINY)) ** (power - 1)
        return _normal(sharp)

    return law


def resample_from_target(rows: Rows) -> Array:
    """Return the law that samples from p after a rejection, in place of the residual."""
    kept = np.minimum(rows.p, _q(rows))
    found: Array = kept + np.maximum(1 - kept.sum(axis=1, keepdims=True), 0.0) * rows.p
    return found


def greedy_draft(rows: Rows) -> Array:
    """Return the law of a draft that proposes its most likely token but is judged as if it had sampled."""
    return _accept(rows, _favourite(rows))


def draft_hit(rows: Rows) -> Array:
    """Return the law that lets one in ten of a greedy draft's tokens through unchecked."""
    return 0.9 * rows.p + 0.1 * _favourite(rows)


def draft_top_p(rows: Rows) -> Array:
    """Return the law of a draft that samples from the top 90% of q but is judged by all of q."""
    q = _q(rows)
    order = np.argsort(-q[:, :-1], axis=1, kind="stable")  # the last atom stays last: its tokens are many and small
    order = np.concatenate([order, np.full((len(q), 1), q.shape[1] - 1)], axis=1)
    ranked = np.take_along_axis(q, order, axis=1)
    kept = np.where(np.cumsum(ranked, axis=1) - ranked < 0.9, ranked, 0.0)  # noqa: PLR2004  # a usual setting
    cut = np.zeros_like(q)
    np.put_along_axis(cut, order, kept, axis=1)
    return _accept(rows, _normal(cut))


def drop_unsure(rows: Rows) -> Array:
    """Return the law of a draft that throws away a token it just sampled with probability below 0.3."""
    q = _q(rows)
    sure = q >= 0.3  # noqa: PLR2004  # a usual threshold
    sure[:, -1] = False  # many tokens, none of them likely
    dropped = np.where(sure, 0.0, q).sum(axis=1, keepdims=True)
    found: Array = _accept(rows, np.where(sure, q, 0.0)) + dropped * rows.p
    return found


def typical(rows: Rows) -> Array:
    """Return the law of typical acceptance with both thresholds 0.3; a rejected token becomes the target's most likely one."""
    q, p = _q(rows), rows.p
    entropy = -(p * np.log(np.maximum(p, TINY))).sum(axis=1, keepdims=True)
    accepted = np.where(p > np.minimum(0.3, 0.3 * np.exp(-entropy)), q, 0.0)
    found: Array = accepted + np.maximum(1 - accepted.sum(axis=1, keepdims=True), 0.0) * _top(p)
    return found


def previous_row(share: float) -> Law:
    """Return the law that samples this share of tokens from the row before."""

    def law(rows: Rows) -> Array:
        assert rows.previous is not None
        return (1 - share) * rows.p + share * rows.previous

    return law


def unfiltered(share: float) -> Law:
    """Return the law that ignores the filters on this share of tokens."""

    def law(rows: Rows) -> Array:
        assert rows.raw is not None
        return (1 - share) * rows.p + share * rows.raw

    return law


def noise(rows: Rows) -> Array:
    """Return the law of an engine whose sampling is broken altogether: nearly all tokens come from outside the top."""
    found = np.full_like(rows.p, 0.05 / max(rows.p.shape[1] - 1, 1))
    found[:, -1] = 0.95
    return _normal(found)


_ALWAYS: Mapping[str, Law] = {f"temperature {value}": temperature(value) for value in (0.7, 0.9, 0.95, 1.05, 1.1)} | {
    "greedy": lambda rows: _top(rows.p),
    "noise": noise,
}
_WITH_DRAFT: Mapping[str, Law] = {
    **{name: leak(share) for name, share in LEAKS.items()},
    "resample from p": resample_from_target,
    "greedy draft, soft q": greedy_draft,
    "draft hit": draft_hit,
    "draft top-p, raw q": draft_top_p,
    "unsure draft dropped": drop_unsure,
    "typical acceptance": typical,
}
_WITH_PREVIOUS: Mapping[str, Law] = {"previous row 0.1": previous_row(0.1), "previous row": previous_row(0.9)}
_WITH_RAW: Mapping[str, Law] = {"filters ignored": unfiltered(1.0), "filters on bonus only": unfiltered(0.6)}


def _q(rows: Rows) -> Array:
    assert rows.q is not None
    return rows.q


def _accept(rows: Rows, proposal: Array) -> Array:
    """Return the law of drafts from `proposal` (mass up to 1) accepted with min(1, p / q), else the residual."""
    p, q = rows.p, _q(rows)
    kept = proposal * np.minimum(1.0, p / np.maximum(q, TINY))
    rejected = (proposal - kept).sum(axis=1, keepdims=True)
    residual = np.maximum(p - q, 0.0)
    mass = residual.sum(axis=1, keepdims=True)
    found: Array = kept + rejected * np.where(mass > 0, residual / np.maximum(mass, TINY), p)
    return found


def _normal(weights: Array) -> Array:
    found: Array = weights / np.maximum(weights.sum(axis=1, keepdims=True), TINY)
    return found


def _favourite(rows: Rows) -> Array:
    return _one_hot(_q(rows).argmax(axis=1) if rows.favourite is None else rows.favourite, rows.p.shape[1])


def _top(p: Array) -> Array:
    return _one_hot(p[:, : max(p.shape[1] - 1, 1)].argmax(axis=1), p.shape[1])


def _one_hot(atom: Whole, size: int) -> Array:
    found = np.zeros((len(atom), size))
    found[np.arange(len(atom)), atom] = 1.0
    return found
