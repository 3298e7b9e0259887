"""How commands print: JSON on request, otherwise a table or lines."""

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import typer

PIPED_WIDTH = 180  # columns when nobody watches: a log file wraps nothing


def emit_json(value: Any) -> None:  # noqa: ANN401  # any JSON value
    """Print a JSON value, keys as given, times as ISO 8601 in UTC."""
    typer.echo(json.dumps(value, indent=2, default=_plain))


def _plain(value: object) -> str:
    """Return a time as ISO 8601 in UTC, anything else as its text."""
    if not isinstance(value, datetime):
        return str(value)
    return (value.astimezone(UTC) if value.tzinfo else value).isoformat()


def emit_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table to the terminal; brackets in title and cells are text."""
    from rich import box  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415  # rich costs 0.1 s that --help need not pay
    from rich.markup import escape  # noqa: PLC0415  # a cell may hold brackets: specops[torch] is no markup
    from rich.table import Table  # noqa: PLC0415

    table = Table(title=escape(title), title_justify="left", header_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*("" if cell is None else escape(str(cell)) for cell in row))
    console = Console(emoji=False)  # the tag audit:key:rotated has no picture in it
    (console if console.is_terminal else Console(width=PIPED_WIDTH, emoji=False)).print(table)
