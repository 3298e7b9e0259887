"""What a benchmark reports: rows of checks with a figure, a goal, and what the figure was measured against."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One check of one benchmark.

    `goal` is text such as ">= 1.2". `holds` is None when the check could not be run here; `why` then says the reason.
    `against` names the peer or floor measured in the same run, `runs` how many measurements the figure rests on.
    """

    check: str
    figure: float | str | None
    unit: str
    goal: str
    holds: bool | None
    against: str
    runs: int
    why: str = ""

    def to_record(self) -> dict[str, object]:
        """Return JSON-ready values; `why` only where there is one."""
        names = ("check", "figure", "unit", "goal", "holds", "against", "runs")
        return {name: getattr(self, name) for name in names} | ({"why": self.why} if self.why else {})
