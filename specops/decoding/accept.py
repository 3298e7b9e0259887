"""Stage 3 of 5, accept. Owner: the token-level rule.

Input: the proposals, the law q each was drawn from, the target's laws p, and chance; output: how long a prefix is kept.
Invariant: position i is kept with probability min(1, p_i(x_i) / q_i(x_i)), in order, each with a coin of its own; nothing
behind the first rejection is looked at. At temperature 0 both laws are one-hot and the rule is "equal to the target's choice":
`accept_greedy` is that limit without the laws. Called by `loop`; the token after the prefix is `resample`'s business.
Source: Leviathan et al. 2023, arXiv 2211.17192, algorithm 1. Test: tests/decoding/test_accept.py, tests/decoding/test_law.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from specops.decoding.sampling import Chance
from specops.errors import InvalidInput


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """The accepted prefix and what it was decided from; probabilities for all proposals, coins for the examined ones."""

    accepted: int
    target_probs: tuple[float, ...]
    draft_probs: tuple[float, ...]
    coins: tuple[float | None, ...]


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
    p = _of(drafted, target_law)
    q = (1.0,) * len(drafted) if draft_law is None else _of(drafted, draft_law)
    coins: list[float | None] = []
    accepted = 0
    for i, token in enumerate(drafted):
        if q[i] <= 0:
            raise InvalidInput(
                f"drafted token {token} has probability {q[i]} under the draft's law; return the law it was drawn from"
            )
        kept = chance.accepts(p[i] / q[i])
        coins.append(chance.coin)
        if not kept:
            break
        accepted += 1
    return Ruling(accepted=accepted, target_probs=p, draft_probs=q, coins=tuple(coins))


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
        coins=(None,) * min(accepted + 1, len(drafted)),
    )
