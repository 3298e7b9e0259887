"""What a verification asks of servers: tokens, scores, and facts about themselves. `engines.fidelity_endpoint` answers."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from specops.core.fidelity_atoms import Scored
from specops.core.fidelity_sample import Ask, Sample


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
