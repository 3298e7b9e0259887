"""Run benchmarks: `python -m tests.benchmarks.run [NAME]`, or `make bench [NAME=...]`.

Each module of this folder with a function `measure() -> Iterable[Row]` is a benchmark. Rows are printed as a table and written
to build/bench/NAME.json. Exit code 1 when a goal does not hold, 2 for an unknown name.
"""

import importlib
import json
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.benchmarks.row import Row

FOLDER = Path(__file__).parent
OUTPUT = FOLDER.parents[1] / "build" / "bench"
NOT_BENCHMARKS = frozenset({"__init__", "run", "row", "appender", "evidence_costs", "vllm_repair"})
SHOWN = {True: "[green]holds[/]", False: "[bold red]FAILS[/]", None: "not run"}


def names() -> list[str]:
    """Return the names of all benchmarks."""
    return sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in NOT_BENCHMARKS)


def run(name: str, console: Console) -> bool:
    """Run one benchmark, print and write its rows, and return whether no goal was missed."""
    began_s = time.monotonic()
    rows = tuple(importlib.import_module(f"tests.benchmarks.{name}").measure())
    OUTPUT.mkdir(parents=True, exist_ok=True)
    path = OUTPUT / f"{name}.json"
    path.write_text(json.dumps([row.to_record() for row in rows], indent=1) + "\n", encoding="utf-8")
    console.print(_table(name, rows))
    console.print(f"{path}, {time.monotonic() - began_s:.0f} s", soft_wrap=True, highlight=False)
    return bool(rows) and not any(row.holds is False for row in rows)


def _table(name: str, rows: tuple[Row, ...]) -> Table:
    table = Table(title=f"benchmark {name}", title_justify="left")
    for column in ("", "check", "figure", "goal", "against", "runs"):
        table.add_column(column, overflow="fold")
    for row in rows:
        figure = f"{row.figure:.4g}" if isinstance(row.figure, float) else str(row.figure)
        found = row.why if row.holds is None and row.why else f"{figure} {row.unit}".strip()
        shown = row.goal if row.goal == "reported" else SHOWN[row.holds]
        table.add_row(shown, row.check, found, row.goal, row.against, str(row.runs))
    return table


def main(arguments: list[str]) -> int:
    """Run the named benchmarks, or all; return the exit code."""
    known, console = names(), Console()
    unknown = [name for name in arguments if name not in known]
    if unknown:
        print(f"no benchmark {unknown[0]}; there are: {', '.join(known)}", file=sys.stderr)  # noqa: T201
        return 2
    held = [run(name, console) for name in arguments or known]  # a list: a miss must not keep the others from running
    return int(not all(held))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
