"""`specops audit`: verify the log, read it, sign its head."""

from typing import Annotated

import typer

from specops.cli.render import emit_json, emit_table

app = typer.Typer(no_args_is_help=True, help="Verify and read the audit log.")
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def verify(*, json: Json = False) -> None:
    """Recompute the Merkle tree, check every signed checkpoint against it; exit 1 names the first bad entry."""
    from specops.wiring import opened  # noqa: PLC0415

    with opened() as house:
        proof = house.verify()
    if json:
        return emit_json({"size": proof.size, "proven": proof.proven, "root": proof.root, "checkpoints": proof.checkpoints})
    return typer.echo(
        f"verified: {proof.size} entries, {proof.proven} under {proof.checkpoints} signed checkpoints, root {proof.root}"
    )


@app.command()
def checkpoint() -> None:
    """Sign the head of the log now and write it inside and outside the database."""
    from specops.wiring import opened  # noqa: PLC0415

    with opened() as house:
        house.checkpoint()
        typer.echo(f"written to {house.settings.checkpoints}")


@app.command()
def log(last: Annotated[int, typer.Option(min=1, help="How many entries, newest last.")] = 30, *, json: Json = False) -> None:
    """Print the newest entries."""
    from specops.wiring import opened  # noqa: PLC0415

    with opened() as house, house.store.read() as unit:
        entries = unit.audit.all()[-last:]
    if json:
        return emit_json(
            [
                {"index": e.index, "at": e.at, "tag": e.tag, "actor": e.actor, "subject": e.subject, "payload": e.payload}
                for e in entries
            ]
        )
    return emit_table(
        "audit log",
        ("#", "at", "tag", "actor", "subject"),
        [(e.index, f"{e.at:%Y-%m-%d %H:%M:%S}", e.tag, e.actor, e.subject[:32]) for e in entries],
    )
