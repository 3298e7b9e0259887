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
    from specops.control.lineage_time import record_report  # noqa: PLC0415
    from specops.core.canonical import sha256_hex  # noqa: PLC0415
    from specops.dossier import compile_report  # noqa: PLC0415
    from specops.report.bundle import to_json  # noqa: PLC0415
    from specops.report.page import build as build_page  # noqa: PLC0415
    from specops.wiring import newest_rollout, now, opened  # noqa: PLC0415

    with opened() as house:
        chosen = rollout_id or newest_rollout(house)
        data = compile_report(house, chosen)
        if json:
            return typer.echo(to_json(data))
        build_page(data, out)
        files = {out.name: sha256_hex(out.read_bytes())}
        record_report(house.store, rollout_id=str(chosen), files=files, actor=house.settings.who, now=now())
    return typer.echo(f"written: {out.resolve()} (trace it back: specops lineage trace {out.name})")
