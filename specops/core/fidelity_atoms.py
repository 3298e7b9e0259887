"""From log probabilities that servers report to rows of the fidelity test: laws under a request's settings, on common atoms.

A server reports its raw law (temperature 1, no filters) for the most likely tokens and for the token that was emitted. Atoms
are the target's most likely tokens and one for all others; which they are must not depend on the emitted token, so a token
outside the top is never an atom of its own. What cannot be known (the tail's weight at another temperature, whether a
token at the edge of a filter is kept when both paths round) is left out of the region where p counts as known; the region
depends on the law alone, so the test stays valid. Called by `control.verify`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from specops.core.fidelity_laws import Rows
from specops.errors import InvalidInput
from specops.stats.mixture import FLOOR, Array, Mask, Region, Whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounding:
    """How far the serving path may lie from the scoring path: in each log probability, and how often it lies further."""

    nats: float
    surprise: float


ROUNDING: Mapping[str, Rounding] = {
    "float32": Rounding(nats=1e-3, surprise=1e-6),
    "float16": Rounding(nats=0.05, surprise=1e-5),
    "bfloat16": Rounding(nats=0.3, surprise=1e-4),
}
"""By the coarser dtype of both paths; nats a little above the largest shift measured on a model of 135 M parameters (0.25)."""
_ABSENT = -1  # token id of a place in the top that holds nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How tokens are asked for: temperature > 0 scales, then min_p, top_k (0: all) and top_p cut, in this order (vLLM's)."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0

    def __post_init__(self) -> None:
        if not (0 < self.temperature < math.inf and 0 < self.top_p <= 1 and self.top_k >= 0 and 0 <= self.min_p < 1):
            raise InvalidInput(
                f"sampling {self.to_record()}: temperature is above 0, top_p in (0, 1], top_k 0 or more, min_p in [0, 1);"
                " greedy decoding is a part of its own"
            )

    @property
    def is_filtered(self) -> bool:
        """Whether some tokens are cut off."""
        return self.top_p < 1 or self.top_k > 0 or self.min_p > 0

    def to_record(self) -> dict[str, Any]:
        """Return the parameters of a request."""
        found: dict[str, Any] = {"temperature": self.temperature, "top_p": self.top_p}
        return found | ({"top_k": self.top_k} if self.top_k else {}) | ({"min_p": self.min_p} if self.min_p else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """What a server says of consecutive tokens of one text: natural logarithms of its raw law.

    `ids` int64 and `logs` float64 [tokens, top], in falling order; `chosen` float64 [tokens], of the token that is there.
    """

    ids: Whole
    logs: Array
    chosen: Array

    def __post_init__(self) -> None:
        if self.ids.shape != self.logs.shape or self.chosen.shape != self.logs.shape[:1]:
            raise InvalidInput(f"ids {self.ids.shape}, logs {self.logs.shape}, chosen {self.chosen.shape}; shapes must agree")
        if np.isnan(self.logs).any() or np.isnan(self.chosen).any() or (self.logs > _ROUNDING).any():
            raise InvalidInput("a server reported a log probability that is above 0 or not a number; its scores can't be used")

    def cut(self, start: int, stop: int | None = None) -> "Scored":
        """Return the tokens from `start` up to `stop`."""
        return Scored(ids=self.ids[start:stop], logs=self.logs[start:stop], chosen=self.chosen[start:stop])

    @classmethod
    def join(cls, parts: "list[Scored]") -> "Scored":
        """Put texts behind each other; a shorter top is filled up with tokens of probability 0."""
        width = max(part.ids.shape[1] for part in parts)
        ids = [np.pad(part.ids, ((0, 0), (0, width - part.ids.shape[1])), constant_values=_ABSENT) for part in parts]
        logs = [np.pad(part.logs, ((0, 0), (0, width - part.ids.shape[1])), constant_values=-np.inf) for part in parts]
        return cls(ids=np.concatenate(ids), logs=np.concatenate(logs), chosen=np.concatenate([p.chosen for p in parts]))


_ROUNDING = 1e-4  # servers round; a log probability just above 0 is 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """A law on the top tokens and one atom for the rest: p float64 and its region, both [tokens, top + 1].

    `chosen` float64 [tokens] is the probability of the token that is there, right where p is known as a whole.
    """

    p: Array
    known: Mask
    barred: Mask
    chosen: Array


def law_under(scored: Scored, token: Whole, sampling: Sampling, nats: float = 0.0) -> Law:
    """Return the law that the settings make of a raw one.

    Args:
        scored: the raw law.
        token: int64 [tokens], the id that is there.
        sampling: temperature and filters.
        nats: how far the serving path's log probabilities may lie from these: what a shift by as much would move across a
            filter's edge is neither known nor barred.
    """
    logs, power = np.minimum(scored.logs, 0.0), 1 / sampling.temperature
    tail = np.maximum(1 - np.exp(logs).sum(axis=1), _TAIL_ROUNDING)
    high, last = logs[:, :1], np.exp(logs[:, -1])
    # the tail's tokens as in `fidelity_laws.temperature`: a guess unless the temperature is 1
    heavy = tail * np.maximum(np.minimum(last / 4, tail), FLOOR) ** (power - 1) * np.exp(-power * high[:, 0])
    weight = np.concatenate([np.exp(power * (logs - high)), heavy[:, None]], axis=1)
    most = np.concatenate([logs, np.log(np.maximum(np.minimum(last, tail), FLOOR))[:, None]], axis=1) - high  # of one token
    # at most: all of it as likely as the least of the top; above temperature 1 many small tokens may weigh anything
    heaviest = tail * np.maximum(last, FLOOR) ** (power - 1) * np.exp(-power * high[:, 0]) if power >= 1 else tail + _ANY
    kept, known, barred = _cut(weight, heaviest, most * power, sampling, nats * power)
    whole = np.where(kept, weight, 0.0)
    p = whole / whole.sum(axis=1, keepdims=True)
    at = _place(scored.ids, token)
    own = np.exp(power * (np.minimum(scored.chosen, 0.0) - high[:, 0])) / whole.sum(axis=1)
    own = np.where(at == logs.shape[1], np.where(kept[:, -1], own, 0.0), p[np.arange(len(at)), at])
    return Law(p=p, known=known | (weight <= 0), barred=barred & (weight > 0), chosen=own)


_ANY = 1e30  # a weight that is not bounded
_TAIL_ROUNDING = 1e-6  # sums of float32 probabilities miss 1 by as much; a rare token of the tail must not be proof


def build_rows(
    token: Whole,
    target: Scored,
    *,
    sampling: Sampling,
    rounding: Rounding,
    draft: Scored | None = None,
    before: Scored | None = None,
    is_draft_greedy: bool = False,
    position: Whole | None = None,
) -> Rows:
    """Return the rows of emitted tokens.

    Args:
        token: int64 [tokens], emitted ids.
        target: the trusted path's law at each of them.
        sampling: the settings that were asked for.
        rounding: see `ROUNDING`.
        draft: the draft's (or a surrogate's) law at each of them.
        before: the trusted path's law one token earlier, at each of them.
        is_draft_greedy: the draft proposes its most likely token, whatever the temperature.
        position: int64 [tokens], place in the verified block.
    """
    law = law_under(target, token, sampling, rounding.nats)
    q, ratio, apart, favourite = None, None, None, None
    if draft is not None:
        drafted = law_under(draft, token, Sampling(top_k=1) if is_draft_greedy else sampling)
        q = _spread(target.ids, law.p, draft.ids, drafted.p)
        ratio = drafted.chosen / np.maximum(law.chosen, FLOOR)
        favourite = _place(target.ids, draft.ids[:, 0])
        apart = 1 - np.minimum(law.p[:, :-1], _matched(target.ids, draft.ids, drafted.p)).sum(axis=1)
    previous = None if before is None else _moved(target.ids, before.ids, law_under(before, token, sampling).p)
    raw = law_under(target, token, Sampling(temperature=sampling.temperature)).p if sampling.is_filtered else None
    is_exact = sampling == Sampling()
    return Rows(
        token=_place(target.ids, token), p=law.p, q=q, previous=previous, raw=raw, position=position, ratio=ratio, apart=apart,
        favourite=favourite,
        region=None if is_exact else Region(known=law.known, barred=law.barred, surprise=rounding.surprise),
    )  # fmt: skip


def _cut(
    weight: Array, tail: Array, logs: Array, sampling: Sampling, nats: float
) -> tuple[Mask, Mask, Mask]:
    """Return what the filters keep by these numbers, what they keep whatever the rounding, and what they never keep.

    `weight` is relative to the largest token's; `logs` of one token at most, relative too; the last atom is all other tokens,
    of which a filter may keep a part: then it is neither kept for sure nor barred.
    """
    kept, known, barred = weight > 0, weight > 0, weight <= 0
    known[:, -1] &= sampling.temperature == 1
    size = weight.shape[1] - 1

    def narrow(level: Array | float) -> None:
        kept[:, :-1] &= logs[:, :-1] >= level
        known[:, :-1] &= logs[:, :-1] >= level + nats
        barred[:] |= logs < level - nats
        known[:, -1], kept[:, -1] = False, kept[:, -1] & ~barred[:, -1]

    if sampling.min_p > 0:
        narrow(math.log(sampling.min_p))
    if sampling.top_k > size:
        known[:, -1] = False
    elif sampling.top_k > 0:
        k = sampling.top_k
        inner, outer = logs[:, k - 1][:, None], logs[:, k][:, None]  # the last one in and the first one out
        kept[:, :-1] &= logs[:, :-1] >= inner
        known[:, :-1] &= logs[:, :-1] > outer + nats
        barred |= logs < inner - nats
        known[:, -1], kept[:, -1] = False, kept[:, -1] & ~barred[:, -1] & (k > size)
    if sampling.top_p < 1:
        sure, maybe = _before_top_p(weight, tail, logs, known, ~barred, nats)
        share = np.where(kept, weight, 0.0)
        share /= share.sum(axis=1, keepdims=True)
        kept &= np.cumsum(share, axis=1) - share < sampling.top_p
        known &= maybe < sampling.top_p
        barred |= sure >= sampling.top_p
        known[:, -1] = False
    known[:, 0], barred[:, 0], kept[:, 0] = True, False, True  # no filter cuts the most likely token
    return kept, known & ~barred, barred


def _before_top_p(
    weight: Array, tail: Array, logs: Array, known: Mask, possible: Mask, nats: float
) -> tuple[Array, Array]:
    """Return the least and the most that the mass before each token may be, when tokens shift by `nats` against each other."""
    low, high = np.where(known, weight, 0.0), np.where(possible, weight, 0.0)
    high[:, -1] = np.where(possible[:, -1], tail, 0.0)
    shift, other = math.exp(nats), ~np.eye(weight.shape[1], dtype=bool)
    ahead, first = logs[:, None, :] > logs[:, :, None] + nats, (logs[:, None, :] >= logs[:, :, None] - nats) & other
    ahead[:, :, -1] = False  # the last atom's tokens may all be small
    surely, rest = np.einsum("nij,nj->ni", ahead, low), np.einsum("nij,nj->ni", ~ahead, high)
    possibly, behind = np.einsum("nij,nj->ni", first, high), np.einsum("nij,nj->ni", ~first, low)
    least = surely / np.maximum(surely + rest * shift, FLOOR)
    most = possibly * shift / np.maximum(possibly * shift + behind, FLOOR)
    return least, most


def _place(ids: Whole, token: Whole) -> Whole:
    """Return the place of each token in its row of ids, or the place behind them."""
    found = ids == token[:, None]
    return np.where(found.any(axis=1), found.argmax(axis=1), ids.shape[1])


def _matched(ids: Whole, other: Whole, law: Array) -> Array:
    """Return another law's probability of each id [tokens, ids], 0 for ids that it does not name."""
    equal = (ids[:, :, None] == other[:, None, :]) & (ids[:, :, None] != _ABSENT)
    found: Array = np.einsum("nij,nj->ni", equal, law[:, :-1])
    return found


def _moved(ids: Whole, other: Whole, law: Array) -> Array:
    """Return a law on the atoms of `ids`; what it does not name there is the rest."""
    found = _matched(ids, other, law)
    return np.concatenate([found, np.maximum(1 - found.sum(axis=1, keepdims=True), 0.0)], axis=1)


def _spread(ids: Whole, p: Array, other: Whole, law: Array) -> Array:
    """Return the draft's law on the target's atoms; tokens that it does not name share its rest as the target would.

    A guess, and only alternatives are built on it: a wrong one costs power.
    """
    found = _matched(ids, other, law)
    is_named = ((ids[:, :, None] == other[:, None, :]).any(axis=2)) | (ids == _ABSENT)
    open_mass = np.where(is_named, 0.0, p[:, :-1])
    outside = np.maximum(open_mass.sum(axis=1, keepdims=True) + p[:, -1:], FLOOR)
    least = np.where(law[:, :-1] > 0, law[:, :-1], 1.0).min(axis=1, keepdims=True)
    found = np.where(is_named, found, np.minimum(law[:, -1:] * open_mass / outside, least))
    return np.concatenate([found, np.maximum(1 - found.sum(axis=1, keepdims=True), 0.0)], axis=1)
