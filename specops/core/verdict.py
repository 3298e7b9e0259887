"""What a policy says about the evidence so far. A FAIL is a value, not an error."""

from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from specops.core.ladder import Rung, most_severe


class Result(StrEnum):
    """Best to worst; the verdict of several checks is the worst of theirs."""

    PASS = "PASS"  # noqa: S105  # a verdict, not a password
    PENDING = "PENDING"
    INCONCLUSIVE = "INCONCLUSIVE"
    ERROR = "ERROR"
    FAIL = "FAIL"


METHOD = 2  # grows when the same outcomes under the same policy would give other numbers; replay compares it first
SEVERITY = {result: rank for rank, result in enumerate(Result)}


def worst(results: list[Result]) -> Result:
    """Return the worst result; no check at all is ERROR, so that an empty policy never passes."""
    return max(results, key=SEVERITY.__getitem__) if results else Result.ERROR


@dataclass(frozen=True, slots=True, kw_only=True)
class StratumFigure:
    """One stratum's part in a finding: samples, mean in the finding's unit, its own limit, e-values against and for it."""

    label: str
    n: int
    estimate: float | None
    limit: float
    e_value: float
    pass_e_value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One check's say, with the numbers behind it.

    `e_value` speaks against the check's null ("the candidate is fine" for a guard); it fails at `e_threshold`.
    `pass_e_value` speaks against "the candidate is worse than the limit"; the check passes at `pass_threshold`.
    `low`, `high`: anytime-valid confidence sequence of `estimate`. Unit of all three: `unit`.
    `action` is what a FAIL of this check asks for. A `precursor` alerts and never decides. `overdue`: it has not passed, and
    has waited longer than its `max_wait`. `above`: it found fault, or looks, only with more requests in flight.
    """

    check: str
    result: Result
    metric: str
    n: int
    estimate: float | None
    low: float | None
    high: float | None
    limit: float
    unit: str
    e_value: float
    e_threshold: float
    pass_e_value: float | None
    pass_threshold: float | None
    owner: str
    reason: str
    action: Rung = Rung.ROLL_BACK
    precursor: bool = False
    strata: tuple[StratumFigure, ...] = ()
    overdue: bool = False
    above: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The worst of the findings that decide, the policy and the version of the method that judged, and the outcome count.

    `pass_factor`: how many times its usual bar each check had to reach to pass.
    """

    result: Result
    findings: tuple[Finding, ...]
    policy_digest: str
    outcomes: int
    at: datetime
    pass_factor: float = 1.0
    method: int = METHOD

    @property
    def deciding(self) -> tuple[Finding, ...]:
        """The findings whose result is the verdict's; precursors never are among them."""
        return tuple(f for f in self.findings if f.result is self.result and not f.precursor)

    @property
    def reason(self) -> str:
        """One line: the reasons of the findings that decided."""
        return "; ".join(f.reason for f in self.deciding)

    @property
    def action(self) -> Rung | None:
        """What a FAIL asks for: the most severe rung among the findings that decided; None for any other result."""
        return most_severe(f.action for f in self.deciding) if self.result is Result.FAIL else None

    @property
    def overdue(self) -> tuple[Finding, ...]:
        """Findings that may not be waited for any longer, whatever else the verdict says."""
        return tuple(f for f in self.findings if f.overdue and not f.precursor)

    @property
    def precursors(self) -> tuple[Finding, ...]:
        """Precursors that fired: worth an alert, no reason to act."""
        return tuple(f for f in self.findings if f.precursor and f.result is Result.FAIL)

    def to_record(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return asdict(self) | {"at": self.at.isoformat(), "action": self.action}
