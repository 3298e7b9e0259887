"""`specops samples`: raw prompts and outputs that are kept for a time: look at one, erase one, erase what is over its time."""

from typing import Annotated

import typer

from specops.cli.render import emit_json

app = typer.Typer(no_args_is_help=True, help="Look at and erase kept prompts and outputs (setting keep_samples).")
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
RequestId = Annotated[str, typer.Argument(help="Id of the request, as in its outcome.")]


@app.command()
def show(request_id: RequestId, *, json: Json = False) -> None:
    """Print what is kept of a request."""
    from specops.wiring import opened  # noqa: PLC0415

    with opened() as house, house.store.read() as unit:
        parts = house.samples().show(unit, request_id)
    texts = [(one, one.content.decode(errors="replace")) for one in parts]
    if json:
        return emit_json([{"part": o.part, "text": text, "at": o.at, "expires_at": o.expires_at} for o, text in texts])
    for one, text in texts:
        typer.echo(f"{one.part}, until {one.expires_at:%Y-%m-%d}:\n{text}")
    return None if parts else typer.echo("nothing is kept of this request")


@app.command()
def erase(request_id: RequestId) -> None:
    """Erase what is kept of a request; the audit log says that, under a keyed hash, and not what."""
    from specops.wiring import now, opened  # noqa: PLC0415

    with opened() as house, house.store.begin() as unit:
        parts = house.samples().erase(unit, request_id, actor=house.settings.who, now=now())
    typer.echo(f"erased {parts} parts")


@app.command()
def expire() -> None:
    """Erase what is over its time now; the control plane does it every hour."""
    from specops.wiring import opened  # noqa: PLC0415

    with opened() as house:
        typer.echo(f"erased {house.expire_samples()} parts")
