"""How commands print: JSON on request, otherwise a table or lines."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

import typer


def emit_json(value: Any) -> None:  # noqa: ANN401  # any JSON value
    """Print a JSON value, keys as given."""
    typer.echo(json.dumps(value, indent=2, default=str))


def emit_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table to the terminal."""
    from rich.console import Console  # noqa: PLC0415  # rich costs 0.1 s that --help need not pay
    from rich.table import Table  # noqa: PLC0415

    table = Table(title=title, title_justify="left", header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*("" if cell is None else str(cell) for cell in row))
    Console().print(table)


def number(value: float | None, digits: int = 3) -> str:
    """Format a figure; a missing one is a dash, never a zero."""
    return "-" if value is None else f"{value:.{digits}g}"
