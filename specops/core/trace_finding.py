"""What an explanation of a trace is made of: one finding is a sentence, its numbers, its rounds and a next step.

Built by `core.trace_why` and `core.trace_parting`; shown by `cli` and `report`. Rounds count from 1, because 0 is the prefill;
tokens of an answer count from 0, because token 0 is the prefill's.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Topic(StrEnum):
    """What a finding is about."""

    PLAIN = "differs from plain"
    BROKEN = "broken off"
    SPEED = "speed-up"
    REJECTION = "rejected at position 0"
    ENTROPY = "draft entropy"
    SCRIPT = "script"
    STAGE = "stage time"
    QUEUE = "queue"
    PREFILL = "prefill"
    CAP = "proposals held down"
    CUT = "cut"
    CONTROL = "control"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that stands out.

    Attributes:
        topic: what it is about.
        sentence: the finding in words, with its numbers.
        evidence: the numbers, by name with unit.
        rounds: first and last round that it is about, from 1; None if it is about no round.
        next_step: what to do or look at.
    """

    topic: Topic
    sentence: str
    evidence: Mapping[str, Any]
    rounds: tuple[int, int] | None
    next_step: str

    def to_record(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return asdict(self) | {"evidence": dict(self.evidence)}
