"""How `specops policy` says what it found: rows of a simulation, lines of a backtest, a chart in a file."""

from pathlib import Path
from typing import TYPE_CHECKING

from specops.errors import InvalidInput

if TYPE_CHECKING:
    from specops.core.policy_backtest import Backtest
    from specops.core.policy_simulate import Figures

SIMULATED = ("check", "shift", "alarms at limit", "allowed", "failed early", "power", "median delay", "once promoted")


def simulated_row(figures: "Figures") -> tuple[str, ...]:
    """Return the cells of one check, in the order of `SIMULATED`."""
    never = "-"
    return (
        figures.check,
        f"{figures.before:.3g} to {figures.after:.3g}",
        f"{figures.alarms:.2%}",
        f"{figures.allowed:.2%}",
        f"{figures.early:.2%}",
        f"{figures.power:.0%}",
        never if figures.delay is None else str(figures.delay),
        never if figures.monitor_delay is None else str(figures.monitor_delay),
    )


def backtest_lines(done: "Backtest", before: str, after: str) -> list[str]:
    """Return the first difference, then what each policy would have done."""
    change = done.first_change
    lines = [f"{done.outcomes} outcomes; gates are taken as approved, traffic as it was"]
    lines.append(
        "the verdicts never differ"
        if change is None
        else f"first difference after {change.outcomes} outcomes, {change.at.isoformat()}, request {change.request_id}: "
        f"{before} says {change.before}, {after} says {change.after}"
    )
    for name, events in ((f"{before} (recorded)", done.before), (f"{after} (tried)", done.after)):
        lines.append(f"{name}: {'nothing done' if not events else ''}".rstrip())
        lines += [f"  {e.outcomes:>6} {e.at.isoformat()} {e.action} -> {e.state}: {e.reason}" for e in events]
    return lines


def write_text(path: Path, text: str) -> None:
    """Write a file.

    Raises:
        InvalidInput: it can't be written.
    """
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as exc:
        raise InvalidInput(f"{path} cannot be written: {exc.strerror}; name another file") from exc
