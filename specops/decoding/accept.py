"""Stage 3 of 5, accept. Owner: the rule.

Input: the proposals, the law q each was drawn from, the target's laws p, and chance; output: how long a prefix is kept.
Invariant of the token rule: position i is kept with probability min(1, p_i(x_i) / q_i(x_i)), in order, each with a coin of its
own; nothing behind the first rejection is looked at. The block rule judges prefixes instead, the longest first: it keeps more
tokens on average, and no rule keeps more. At temperature 0 all laws are one-hot and both rules are "equal to the target's
choice": `accept_greedy` is that limit without the laws. Called by `loop`; the token after the prefix is `resample`'s business.
Source: Leviathan et al. 2023, arXiv 2211.17192, algorithm 1; Sun et al. 2025, arXiv 2403.10444, algorithm 2.
Test: tests/decoding/test_accept.py, tests/decoding/test_law.py, tests/decoding/test_mutants.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from specops.core.trace import Rule
from specops.decoding.resample import excess
from specops.decoding.sampling import Chance
from specops.errors import InvalidInput


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """The accepted prefix and what it was decided from; probabilities for all proposals.

    Attributes:
        accepted: length of the prefix.
        target_probs, draft_probs: p and q of each proposal.
        accept_probs: with which each could be kept: min(1, p / q) under the token rule, h under the block rule.
        coins: of the proposals from the first on; None where none was spent. The token rule examines up to the first rejection
            and its list ends there; the block rule examines from the last back to the prefix's end.
        scale: of the target's law in the residual; 1 under the token rule.
        rule: that was applied.
    """

    accepted: int
    target_probs: tuple[float, ...]
    draft_probs: tuple[float, ...]
    accept_probs: tuple[float, ...]
    coins: tuple[float | None, ...]
    scale: float = 1.0
    rule: Rule = Rule.TOKEN


def accept(drafted: Sequence[int], draft_law: Tensor | None, target_law: Tensor, chance: Chance) -> Ruling:
    """Keep the longest prefix that the rule accepts.

    Args:
        drafted: k token ids.
        draft_law: float64 [k, vocab], the laws they were drawn from; None if they were chosen without chance (one-hot).
        target_law: float64 [>= k, vocab].
        chance: one decision per examined proposal.

    Raises:
        InvalidInput: a proposal has probability 0 under its own law, so the law given is not the one it was drawn from.
    """
    p, q = _probabilities(drafted, draft_law, target_law)
    ratios = tuple(min(1.0, on / off) for on, off in zip(p, q, strict=True))
    coins: list[float | None] = []
    accepted = 0
    for ratio in ratios:
        kept = chance.accepts(ratio)
        coins.append(chance.coin)
        if not kept:
            break
        accepted += 1
    return Ruling(accepted=accepted, target_probs=p, draft_probs=q, accept_probs=ratios, coins=tuple(coins))


def accept_block(drafted: Sequence[int], draft_law: Tensor | None, target_law: Tensor, chance: Chance) -> Ruling:
    """Keep the longest prefix that the block rule accepts; arguments and errors as of `accept`.

    With p_0 = 1 and p_i = min(1, p_(i-1) p(x_i) / q(x_i)), prefix i is kept with probability h_i = Z_i / (Z_i + 1 - p_i), Z_i
    the mass of max(p_i p - q, 0) behind it, and h_k = p_k. The residual of the kept prefix a is scaled by p_a too.
    """
    p, q = _probabilities(drafted, draft_law, target_law)
    scales = [1.0]
    for on, off in zip(p, q, strict=True):
        scales.append(min(1.0, scales[-1] * on / off))
    laws = [*drafted[1:]] if draft_law is None else list(draft_law[1:])  # behind prefix 1, 2, ..
    left = [float(excess(target_law[i + 1], after, scales[i + 1]).sum()) for i, after in enumerate(laws)]
    kept = (*(z / (z + (1 - s)) if z else float(s == 1) for z, s in zip(left, scales[1:-1], strict=True)), *scales[1:][-1:])
    coins: list[float | None] = [None] * len(drafted)
    accepted = len(drafted)
    while accepted:
        is_kept = chance.accepts(kept[accepted - 1])
        coins[accepted - 1] = chance.coin
        if is_kept:
            break
        accepted -= 1
    return Ruling(
        accepted=accepted,
        target_probs=p,
        draft_probs=q,
        accept_probs=kept,
        coins=tuple(coins),
        scale=scales[accepted],
        rule=Rule.BLOCK,
    )


def _probabilities(
    drafted: Sequence[int], draft_law: Tensor | None, target_law: Tensor
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    q = (1.0,) * len(drafted) if draft_law is None else _of(drafted, draft_law)
    for token, prob in zip(drafted, q, strict=True):
        if prob <= 0:
            raise InvalidInput(
                f"drafted token {token} has probability {prob} under the draft's law; return the law it was drawn from"
            )
    return _of(drafted, target_law), q


def _of(drafted: Sequence[int], law: Tensor) -> tuple[float, ...]:
    """Return the probability of each token under its row; numpy reads single numbers at a tenth of torch's cost."""
    rows = law.cpu().numpy()
    return tuple(rows.item(i, token) for i, token in enumerate(drafted))


def accept_greedy(drafted: Sequence[int], best: Sequence[int]) -> Ruling:
    """Keep the proposals that equal the target's choices, up to the first that does not.

    Args:
        drafted: k token ids.
        best: the target's most likely token at each of the k + 1 positions.
    """
    equal = [x == y for x, y in zip(drafted, best, strict=False)]
    accepted = equal.index(False) if False in equal else len(equal)
    return Ruling(
        accepted=accepted,
        target_probs=tuple(map(float, equal)),
        draft_probs=(1.0,) * len(drafted),
        accept_probs=tuple(map(float, equal)),
        coins=(None,) * min(accepted + 1, len(drafted)),
        rule=Rule.GREEDY,
    )
