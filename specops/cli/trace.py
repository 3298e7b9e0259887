"""`specops trace`: the recorded rounds of requests: list them, show one, check them, erase them."""

from dataclasses import asdict
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specops.cli.render import emit_json, emit_table

if TYPE_CHECKING:
    from datetime import datetime

    from specops.store.traces import TraceLine

app = typer.Typer(no_args_is_help=True, help="Recorded rounds of requests: list, show, explain, compare, rerun, check, erase.")
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
        return typer.echo(f"no traces in {trace_folder(folder).folder}; specops engine serve --trace full records them")
    return emit_table("traces", ("at", "request", "rounds", "accepted", "tokens", "ended by"), map(_row, lines))


@app.command()
def show(
    request: Annotated[str, typer.Argument(help="Id of the request.")],
    folder: Folder = None,
    html: Annotated[Path | None, typer.Option(help="Write it as a page instead.")] = None,
    model: Annotated[Path | None, typer.Option(help="Folder with tokenizer.json: the page has texts, not ids.")] = None,
    *,
    json: Json = False,
) -> None:
    """Show a request's rounds: what was drafted, kept and put in its place, how sure the target was, where the time went."""
    from specops.report.trace_text import lines_of  # noqa: PLC0415
    from specops.wiring import trace_folder  # noqa: PLC0415

    trace = trace_folder(folder).read(request)
    if html:
        from specops.engines.rerun import token_texts  # noqa: PLC0415
        from specops.report.trace_page import build  # noqa: PLC0415

        build(trace, html, token_texts(model) if model else None)
        return typer.echo(f"written: {html.resolve()}")
    return emit_json(trace.to_record()) if json else typer.echo("\n".join(lines_of(trace)))


@app.command()
def check(
    request: Annotated[str | None, typer.Argument(help="Id of a request; without it every trace is checked.")] = None,
    folder: Folder = None,
    since: Since = None,
    before: Before = None,
    *,
    json: Json = False,
) -> int:
    """Recompute what must hold in any trace. Exit 1 if a rule is broken or a file cannot be read."""
    from specops.core.trace import Trace  # noqa: PLC0415
    from specops.core.trace_check import check as broken_rules  # noqa: PLC0415
    from specops.wiring import trace_folder  # noqa: PLC0415

    place = trace_folder(folder)
    found = [place.read(request)] if request else list(place.read_all(since=_time(since), before=_time(before)))
    traces = [each for each in found if isinstance(each, Trace)]
    unreadable = [{"path": str(each.path), "wrong": each.wrong} for each in found if not isinstance(each, Trace)]
    broken = [{"request_id": trace.request_id} | asdict(one) for trace in traces for one in broken_rules(trace)]
    if json:
        emit_json({"traces": len(traces), "broken": broken, "unreadable": unreadable})
    else:
        if broken:
            emit_table("broken rules", tuple(broken[0]), [tuple(line.values()) for line in broken])
        for each in unreadable:
            typer.echo(f"cannot be read: {each['wrong']}")
        names = {line["request_id"] for line in broken}
        typer.echo(f"{len(traces)} traces checked, {len(names)} broken, {len(unreadable)} unreadable")
    return int(bool(broken or unreadable))


@app.command()
def erase(
    request: Annotated[str | None, typer.Argument(help="Id of the request whose traces go.")] = None,
    folder: Folder = None,
    before: Annotated[str | None, typer.Option(help="Or all requests that arrived before this time.")] = None,
) -> None:
    """Remove the traces of a request, or old ones; nothing else refers to them."""
    from specops.wiring import trace_folder  # noqa: PLC0415

    typer.echo(f"{trace_folder(folder).erase(request, before=_time(before))} traces erased")


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
