"""Which arm a request goes to: a pure, stable function of its key and the candidate's weight."""

import hashlib

from specops.core.outcome import Arm


def assign(key: str, weight: float, *, salt: str = "") -> Arm:
    """Assign a request key to an arm.

    The key's hash is a fixed point in [0, 1); the candidate owns [0, weight). So a key never flips while the weight stands,
    and a growing weight only moves keys from baseline to candidate.

    Args:
        key: what must stay together: a session, a user or a request id.
        weight: the candidate's share of keys, in [0, 1].
        salt: the rollout's id, so that two rollouts do not try the same users first.
    """
    point = int.from_bytes(hashlib.sha256(f"{salt}\0{key}".encode()).digest()[:8], "big") / 2**64
    return Arm.CANDIDATE if point < weight else Arm.BASELINE
