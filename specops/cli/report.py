"""`specops report`: build the HTML report of a rollout from the store."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, help="Build reports.")


@app.command()
def build(
    rollout_id: Annotated[str | None, typer.Argument(help="Rollout id; default: the newest.")] = None,
    out: Annotated[Path, typer.Option(help="HTML file to write; replaced whole.")] = Path("report.html"),
    *,
    json: Annotated[bool, typer.Option("--json", help="Print the report's data as JSON and write nothing.")] = False,
) -> None:
    """Write a self-contained HTML report: evidence, decisions, lineage, the seven adoption questions, audit checkpoint."""
    from specops.dossier import compile_report  # noqa: PLC0415
    from specops.report.bundle import to_json  # noqa: PLC0415
    from specops.report.page import build as build_page  # noqa: PLC0415
    from specops.wiring import opened  # noqa: PLC0415

    with opened() as house:
        data = compile_report(house, rollout_id)
    if json:
        return typer.echo(to_json(data))
    build_page(data, out)
    return typer.echo(f"written: {out.resolve()}")
