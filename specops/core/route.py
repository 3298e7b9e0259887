"""What the control plane tells a gateway: one small record, replaced whole."""

from dataclasses import asdict, dataclass
from typing import Any, Self

from specops.errors import InvalidRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Where traffic goes. `revision` only grows; a gateway ignores a lower one.

    `weight` is the candidate's live share, `mirror` the share of baseline requests copied to the candidate, answer withheld.
    Without a candidate URL both are 0. `speculate_below`: the candidate gets a live request only if fewer than so many are then
    in flight on it, that one included; None without such a limit, 1 for none at all.
    """

    revision: int
    baseline_url: str
    baseline_release: str
    candidate_url: str | None = None
    candidate_release: str | None = None
    rollout_id: str | None = None
    weight: float = 0.0
    mirror: float = 0.0
    speculate_below: int | None = None

    def __post_init__(self) -> None:
        """Check kinds and ranges, and that a share has somewhere to go."""
        texts = (self.baseline_url, self.baseline_release)
        names = (self.candidate_url, self.candidate_release, self.rollout_id)
        is_sound = all(isinstance(t, str) for t in texts) and all(n is None or isinstance(n, str) for n in names)
        if type(self.revision) is not int or not is_sound:
            raise InvalidRecord(f"route {self.revision!r} has a revision that is no whole number, or a name that is no text")
        if not (0 <= self.weight <= 1 and 0 <= self.mirror <= 1):
            raise InvalidRecord(f"route {self.revision} has weight {self.weight}, mirror {self.mirror}; both must be in [0, 1]")
        if self.speculate_below is not None and self.speculate_below < 1:
            raise InvalidRecord(f"route {self.revision} has speculate_below {self.speculate_below}; it must be at least 1")
        if self.candidate_url is None and (self.weight > 0 or self.mirror > 0):
            raise InvalidRecord(f"route {self.revision} sends traffic to a candidate but names no candidate_url")

    def to_record(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return asdict(self)

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Self:
        """Build a route from JSON values.

        Raises:
            InvalidRecord: a field is missing, unknown or out of range.
        """
        try:
            return cls(**record)
        except TypeError as exc:
            raise InvalidRecord(f"not a route: {exc}") from exc
