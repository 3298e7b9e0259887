"""`specops trace`: the recorded rounds of requests: list them."""

from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specops.cli.render import emit_json, emit_table

if TYPE_CHECKING:
    from datetime import datetime

    from specops.store.traces import TraceLine

app = typer.Typer(no_args_is_help=True, help="Recorded rounds of requests.")
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Folder = Annotated[Path | None, typer.Option("--dir", help="Folder of traces; default: the setting trace_dir.")]
Since = Annotated[str | None, typer.Option(help="Only requests from this time on, as 2026-11-29T12:00:00Z; else UTC.")]
Before = Annotated[str | None, typer.Option(help="Only requests before this time.")]


@app.command("list")
def list_traces(
    folder: Folder = None,
    since: Since = None,
    before: Before = None,
    last: Annotated[int, typer.Option(min=1, help="How many, newest first.")] = 30,
    *,
    json: Json = False,
) -> None:
    """List the recorded requests; a file that cannot be read is listed with what is wrong."""
    from specops.wiring import trace_folder  # noqa: PLC0415

    lines = trace_folder(folder).lines(since=_time(since), before=_time(before), last=last)
    if json:
        names = ("request_id", "at", "rounds", "drafted", "accepted", "emitted", "ended", "path", "wrong")
        return emit_json([{name: getattr(line, name) for name in names} for line in lines])
    if not lines:
        return typer.echo(f"no traces in {trace_folder(folder).folder}")
    return emit_table("traces", ("at", "request", "rounds", "accepted", "tokens", "ended by"), map(_row, lines))


def _row(line: "TraceLine") -> tuple[object, ...]:
    """Return a file's cells; a broken one has no counts."""
    at = f"{line.at:%Y-%m-%d %H:%M:%S}"
    if line.wrong is not None:
        return at, line.wrong, None, None, None, None
    share = f"{line.accepted} of {line.drafted}" if line.drafted else "nothing drafted"
    return at, line.request_id, line.rounds, share, line.emitted, line.ended


def _time(text: str | None) -> "datetime | None":
    from specops.cli.times import parse_time  # noqa: PLC0415

    return None if text is None else parse_time(text, zone=UTC)
