"""The record of one request on one arm: what the data plane measured, nothing it concluded.

Written by the gateway and the offline runner; folded into evidence by `core.window`. It holds digests and counts, never text.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Self

from specops.errors import InvalidRecord


class Arm(StrEnum):
    """Configuration that receives traffic."""

    BASELINE = "baseline"
    CANDIDATE = "candidate"


class Kind(StrEnum):
    """How the request reached the arm."""

    LIVE = "live"
    SHADOW = "shadow"
    OFFLINE = "offline"


class Finish(StrEnum):
    """Why the answer ended; REJECTED is the arm's HTTP 4xx, a class of its own and not an error of the model."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    ERROR = "error"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """Raw counts of one request's speculation; rates are derived, never stored.

    `histogram[a]` counts the rounds in which exactly `a` drafted tokens were accepted.
    """

    rounds: int
    drafted: int
    accepted: int
    histogram: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Check that the counts agree."""
        if not 0 <= self.accepted <= self.drafted or self.rounds < 0:
            raise InvalidRecord(
                f"acceptance counts disagree: accepted {self.accepted}, drafted {self.drafted}, rounds {self.rounds}"
            )
        if self.histogram and sum(i * n for i, n in enumerate(self.histogram)) != self.accepted:
            raise InvalidRecord(f"histogram {self.histogram} does not add up to {self.accepted} accepted tokens")

    @property
    def rate(self) -> float | None:
        """Accepted / drafted in [0, 1]; None when nothing was drafted (no data, not zero)."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def length(self) -> float | None:
        """1 + accepted / rounds, in [1, k + 1]; None without rounds."""
        return 1 + self.accepted / self.rounds if self.rounds else None


def acceptance_of(metrics: object) -> Acceptance | None:
    """Read `metrics.speculative_decoding` of a vLLM answer; unknown keys are ignored.

    Returns:
        None when it is absent, null, or counts no round.

    Raises:
        InvalidRecord: the counts are missing or disagree.
    """
    counts = metrics.get("speculative_decoding") if isinstance(metrics, Mapping) else None
    if not isinstance(counts, Mapping) or not counts.get("num_spec_steps"):
        return None
    try:
        return Acceptance(
            rounds=int(counts["num_spec_steps"]),
            drafted=int(counts["num_draft_tokens"]),
            accepted=int(counts["num_accepted_draft_tokens"]),
            histogram=tuple(int(count) for count in counts.get("acceptance_histogram") or ()),
        )
    except (KeyError, TypeError, ValueError) as exc:
        raise InvalidRecord(f"speculative_decoding metrics cannot be read: {exc!r} in {dict(counts)!r}") from exc


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One request on one arm. Times in seconds; `at` is when the answer ended (UTC).

    `share` is the candidate's share of live requests at the moment when this one was assigned; None where nothing was assigned
    (shadow, offline, retries, requests that no arm is judged by, and all while the candidate has no room: `speculate_below`).
    """

    request_id: str
    arm: Arm
    kind: Kind
    release_id: str
    at: datetime
    finish: Finish
    e2e_s: float
    ttft_s: float | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    in_flight: int = 1
    acceptance: Acceptance | None = None
    error: str | None = None
    text_sha256: str | None = None
    retried_on_baseline: bool = False
    assigned: Arm | None = None
    share: float | None = None

    def __post_init__(self) -> None:
        """Check times and zone."""
        if self.at.tzinfo is None:
            raise InvalidRecord(f"outcome {self.request_id} has a time without zone: {self.at.isoformat()}; use UTC")
        if self.share is not None and not 0.0 <= self.share <= 1.0:
            raise InvalidRecord(f"outcome {self.request_id} has a share of {self.share}; it must be in [0, 1]")
        if self.e2e_s < 0 or (self.ttft_s is not None and self.ttft_s < 0):
            raise InvalidRecord(f"outcome {self.request_id} has a negative duration: e2e_s={self.e2e_s}, ttft_s={self.ttft_s}")

    @property
    def is_shed(self) -> bool:
        """The candidate's by its key, and answered by the baseline because too many were in flight."""
        return self.arm is Arm.BASELINE and self.assigned is Arm.CANDIDATE and not self.retried_on_baseline

    @property
    def tpot_s(self) -> float | None:
        """Seconds per output token after the first: (e2e - ttft) / (completion tokens - 1)."""
        if self.ttft_s is None or self.completion_tokens < 2:  # noqa: PLR2004
            return None
        return (self.e2e_s - self.ttft_s) / (self.completion_tokens - 1)

    def to_record(self) -> dict[str, Any]:
        """Return JSON-ready values; `from_record` is the inverse."""
        return asdict(self) | {"at": self.at.isoformat()}

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Self:
        """Build an outcome from `to_record` values.

        Raises:
            InvalidRecord: a field is missing, unknown or out of range.
        """
        try:
            counts = record.get("acceptance")
            return cls(
                **(
                    record
                    | {
                        "arm": Arm(record["arm"]),
                        "kind": Kind(record["kind"]),
                        "finish": Finish(record["finish"]),
                        "assigned": Arm(record["assigned"]) if record.get("assigned") else None,
                        "at": datetime.fromisoformat(record["at"]),
                        "acceptance": Acceptance(**(counts | {"histogram": tuple(counts["histogram"])})) if counts else None,
                    }
                ),
            )
        except (KeyError, TypeError, ValueError) as exc:
            raise InvalidRecord(f"not an outcome record: {exc!r} in {record!r}") from exc
