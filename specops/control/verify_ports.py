"""What a verification asks of servers: tokens, scores, and what they say about themselves. `engines.fidelity_endpoint` answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from specops.core.fidelity_atoms import Sampling, Scored


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


class Endpoint(Protocol):
    """A server of the dialect."""

    @property
    def url(self) -> str:
        """Its address, or a name for it."""

    def facts(self) -> Mapping[str, Any]:
        """Return what it says about itself; empty when it says nothing."""

    def encode(self, text: str) -> tuple[int, ...]:
        """Return the token ids of a text."""

    def sample(self, asks: Sequence[Ask], concurrency: int) -> list[Sample]:
        """Return an answer to each, so many side by side."""

    def score(self, texts: Sequence[tuple[int, ...]], top: int, concurrency: int) -> list[Scored]:
        """Return the raw law at each token of each text after the first."""
