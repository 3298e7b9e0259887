"""Tokens of toy engines, sound and broken, with the laws of target and draft: the material of the fidelity calibration.

Each engine emits one token per row by really drafting, accepting and resampling; the broken ones differ by one line, as the
real bugs did. Rows are independent random laws, softmax of normal logits; the draft's logits are the target's with noise.
"""

from collections.abc import Callable

import numpy as np

from specops.core.fidelity_laws import Rows
from specops.stats.mixture import Array, Whole

VOCAB, SPREAD, NOISE = 50, 2.0, 2.5
Engine = Callable[[np.random.Generator, Array, Array, Array], Whole]  # rng, p, q, previous -> token


def softmax(logits: Array) -> Array:
    """Return laws over the last axis."""
    weights: Array = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def draw(rng: np.random.Generator, laws: Array) -> Whole:
    """Return one token per row."""
    found: Whole = (laws.cumsum(axis=1) < rng.random((len(laws), 1)) * laws.sum(axis=1, keepdims=True)).sum(axis=1)
    return np.minimum(found, laws.shape[1] - 1)


def verified(
    rng: np.random.Generator, p: Array, q: Array, drafted: Whole, *, residual: Array | None = None, judged: Array | None = None
) -> Whole:
    """Accept drafted tokens with min(1, p / q), else sample the residual (or what replaces it)."""
    at, scale = np.arange(len(p)), q if judged is None else judged
    accepted = rng.random(len(p)) * scale[at, drafted] < p[at, drafted]
    rest = np.maximum(p - scale, 0) + 1e-300 * p if residual is None else residual
    return np.where(accepted, drafted, draw(rng, rest))


def one_hot(tokens: Whole, size: int) -> Array:
    """Return laws that hold one token each."""
    return np.eye(size)[tokens]


def mixed(rng: np.random.Generator, share: float, often: Whole, sometimes: Whole) -> Whole:
    """Take the second token with this probability."""
    return np.where(rng.random(len(often)) < share, sometimes, often)


def sound(rng: np.random.Generator, p: Array, q: Array, previous: Array) -> Whole:
    """Draft, accept and resample as published."""
    return verified(rng, p, q, draw(rng, q))


def unsure_dropped(rng: np.random.Generator, p: Array, q: Array, previous: Array) -> Whole:
    """Throw away the sampled draft if q < 0.3, then sample the target."""
    drafted = draw(rng, q)
    sure = q[np.arange(len(q)), drafted] >= 0.3
    return np.where(sure, verified(rng, p, q, drafted), draw(rng, p))


def one_percent(rng: np.random.Generator, p: Array, q: Array, previous: Array) -> Whole:
    """Move exactly 1% of total variation towards the draft."""
    share = 0.01 / np.maximum(0.5 * np.abs(p - q).sum(axis=1), 0.01)
    return np.where(rng.random(len(p)) < share, draw(rng, q), draw(rng, p))


def typical(rng: np.random.Generator, p: Array, q: Array, previous: Array) -> Whole:
    """Accept what is not much less likely than the entropy allows, else emit the most likely token."""
    drafted = draw(rng, q)
    entropy = -(p * np.log(np.maximum(p, 1e-300))).sum(axis=1)
    accepted = p[np.arange(len(p)), drafted] > np.minimum(0.3, 0.3 * np.exp(-entropy))
    return np.where(accepted, drafted, p.argmax(axis=1))


BROKEN: dict[str, tuple[Engine, tuple[str, ...]]] = {  # engine, diagnoses that are right
    "always accept": (lambda r, p, q, _: draw(r, q), ("always accept",)),
    "resample from p": (lambda r, p, q, _: verified(r, p, q, draw(r, q), residual=p), ("resample from p",)),
    "greedy draft, soft q": (lambda r, p, q, _: verified(r, p, q, q.argmax(axis=1)), ("greedy draft, soft q",)),
    "leak 2%": (lambda r, p, q, _: mixed(r, 0.02, draw(r, p), draw(r, q)), ("leak 0.02", "leak 0.1")),
    "previous row 10%": (lambda r, p, q, old: mixed(r, 0.1, draw(r, p), draw(r, old)), ("previous row 0.1",)),
    "T 0.9 served as 1": (lambda r, p, q, _: draw(r, p ** (1 / 0.9)), ("temperature 0.9",)),
    "unsure draft dropped": (unsure_dropped, ("unsure draft dropped",)),
    "1% TV": (one_percent, ("leak 0.02", "leak 0.1")),
    "typical acceptance": (typical, ("typical acceptance",)),
}
FINE: dict[str, Engine] = {
    "plain": lambda r, p, q, _: draw(r, p),
    "speculative": sound,
    "sample and match": lambda r, p, q, _: draw(r, p),  # the target samples; a draft only saves time where it agrees
    "one-hot draft": lambda r, p, q, _: verified(r, p, one_hot(q.argmax(axis=1), p.shape[1]), q.argmax(axis=1)),
    "stale draft": lambda r, p, q, _: verified(r, p, np.roll(q, 1, axis=0), draw(r, np.roll(q, 1, axis=0))),
}


def rows(seed: int, tokens: int, engine: Engine, *, atoms: int = VOCAB - 1, scoring_noise: float = 0.0) -> Rows:
    """Return tokens of an engine with laws on the target's top `atoms` and one atom for the rest.

    `scoring_noise` is the deviation in nats of the logits that score from those that served, as bfloat16 does.
    """
    rng = np.random.default_rng(seed)
    logits = SPREAD * rng.standard_normal((tokens + 1, VOCAB))
    q = softmax(logits + NOISE * rng.standard_normal(logits.shape))[1:]
    p, previous = softmax(logits)[1:], softmax(logits)[:-1]
    emitted = engine(rng, p, q, previous)
    scored = softmax(logits + scoring_noise * rng.standard_normal(logits.shape))
    order = np.argsort(-scored[1:], axis=1, kind="stable")
    place = np.argsort(order, axis=1)[np.arange(tokens), emitted]

    def coarse(law: Array) -> Array:
        ranked = np.take_along_axis(law, order, axis=1)
        return np.concatenate([ranked[:, :atoms], ranked[:, atoms:].sum(axis=1, keepdims=True)], axis=1)

    return Rows(token=np.minimum(place, atoms), p=coarse(scored[1:]), q=coarse(q), previous=coarse(scored[:-1]))
