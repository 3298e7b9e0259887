"""Stage 4 of 5, resample. Owner: the target's law.

Input: the ruling, the laws p and q, and chance; output: the one token that ends the round. After a rejection at position a it
is drawn from the residual norm(max(s p_a - q_a, 0)) (recovered), after a full accept from p_k (bonus). The scale s is 1 under
the token rule; under the block rule it is what the ruling says.
Invariant: accepted prefix plus this token follow the target's law exactly; each round ends with exactly one such token.
Called by `loop`. Source: as of `accept`. Test: tests/decoding/test_resample.py, tests/decoding/test_law.py.
"""

from collections.abc import Sequence

from torch import Tensor

from specops.decoding.sampling import Chance


def excess(target_row: Tensor, draft: Tensor | int, scale: float = 1.0) -> Tensor:
    """Return max(scale * p - q, 0) [vocab], not normalised; an integer draft is the one-hot law of that token."""
    if isinstance(draft, int):
        left = target_row * scale
        left[draft] = 0.0  # scale * p is at most 1
        return left
    return (target_row * scale - draft if scale != 1 else target_row - draft).clamp_(min=0.0)


def residual(target_row: Tensor, draft: Tensor | int, scale: float = 1.0) -> Tensor:
    """Return the law of the recovered token, float64 [vocab].

    A rejection implies scale * p > q somewhere, so the excess has mass; only rounding can take it all, and then p and q agree
    to rounding and p is the law.
    """
    left = excess(target_row, draft, scale)
    mass = left.sum()
    return left / mass if mass > 0 else target_row


def resample(
    accepted: int, drafted: Sequence[int], draft_law: Tensor | None, target_law: Tensor, chance: Chance, scale: float = 1.0
) -> int:
    """Draw the round's last token.

    Args:
        accepted: length of the accepted prefix, in [0, k].
        drafted: k token ids.
        draft_law: float64 [k, vocab]; None if the proposals are one-hot.
        target_law: float64 [k + 1, vocab].
        chance: one decision.
        scale: of the target's law in the residual, in (0, 1]: the ruling's.
    """
    row = target_law[accepted]
    if accepted == len(drafted):
        return chance.pick(row)
    return chance.pick(residual(row, drafted[accepted] if draft_law is None else draft_law[accepted], scale))
