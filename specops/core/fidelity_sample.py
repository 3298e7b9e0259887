"""What a verification asks of an endpoint, and what it gets: token ids with what is known about how they came.

Made by `control.verify` and by `engines.fidelity_endpoint`, which know nothing of each other.
"""

from dataclasses import dataclass

from specops.core.fidelity_atoms import Sampling


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One answer wanted; `sampling` None is greedy."""

    prompt_ids: tuple[int, ...]
    max_tokens: int
    seed: int
    sampling: Sampling | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One answer.

    `blocks` are the lengths of the pieces that became final together, empty where they are not known; `logs` the log
    probabilities that the server itself reported, empty if none. `is_retokenised`: the ids were made from text again.
    """

    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    blocks: tuple[int, ...] = ()
    logs: tuple[float, ...] = ()
    is_retokenised: bool = False
