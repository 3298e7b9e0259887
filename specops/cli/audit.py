"""`specops audit`: verify the log, read it, sign its head, prove that an entry is in it."""

from datetime import UTC
from pathlib import Path
from typing import Annotated

import typer

from specops.cli.render import emit_json, emit_table

app = typer.Typer(no_args_is_help=True, help="Verify, read and prove the audit log.")
MOST = (1 << 63) - 1  # what a database can count
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Out = Annotated[Path | None, typer.Option("--out", help="Write to this file instead.")]


@app.command()
def verify(*, json: Json = False) -> None:
    """Recompute the Merkle tree, check every signed checkpoint against it; exit 1 names the first bad entry."""
    from specops.wiring import opened  # noqa: PLC0415

    with opened() as house:
        proof = house.verify()
    if json:
        value = {"size": proof.size, "proven": proof.proven, "root": proof.root, "checkpoints": proof.checkpoints}
        return emit_json(value | {"places": proof.places, "warnings": proof.warnings})
    _warn(proof.warnings)
    return typer.echo(
        f"verified: {proof.size} entries, {proof.proven} under {proof.checkpoints} signed checkpoints, root {proof.root}"
    )


@app.command()
def checkpoint() -> None:
    """Sign the head of the log now and write it inside and outside the database."""
    from specops.wiring import opened  # noqa: PLC0415

    with opened() as house:
        _warn(house.checkpoint())
        typer.echo(f"written to {house.settings.checkpoints}")


@app.command()
def log(
    last: Annotated[int, typer.Option(min=1, max=MOST, help="How many entries, newest last.")] = 30,
    subject: Annotated[str | None, typer.Option(help="Only entries about this rollout, release or digest.")] = None,
    tag: Annotated[str | None, typer.Option(help="Only this tag, or all below rollout or rollout:step.")] = None,
    since: Annotated[str | None, typer.Option(help="Only from this time on, as 2026-11-29T12:00:00Z; else UTC.")] = None,
    *,
    json: Json = False,
) -> None:
    """Print the newest entries."""
    from specops.cli.times import parse_time  # noqa: PLC0415
    from specops.wiring import opened  # noqa: PLC0415

    begin = parse_time(since, zone=UTC) if since is not None else None
    with opened() as house, house.store.read() as unit:
        entries = list(unit.audit.read(subject=subject, tag=tag, since=begin, last=last))
    if json:
        names = ("index", "at", "tag", "actor", "subject", "payload")
        return emit_json([{name: getattr(entry, name) for name in names} for entry in entries])
    rows = [(e.index, f"{e.at:%Y-%m-%d %H:%M:%S}", e.tag, e.actor, e.subject) for e in entries]
    return emit_table("audit log", ("#", "at", "tag", "actor", "subject"), rows)


@app.command()
def prove(index: Annotated[int, typer.Argument(min=0, max=MOST, help="Number of the entry, from 0.")], out: Out = None) -> None:
    """Print a proof that an entry is in the signed log; docs/reference/check_proof.py checks it without specops."""
    from specops.wiring import opened  # noqa: PLC0415

    with opened() as house:
        _emit(house.prove(index), out)


@app.command()
def consistency(
    old: Annotated[int, typer.Argument(min=1, max=MOST, help="Entries of the older log.")],
    new: Annotated[int, typer.Argument(min=1, max=MOST, help="Entries of the newer log.")],
    out: Out = None,
) -> None:
    """Print a proof that the log only grew between the first checkpoints over OLD and over NEW entries."""
    from specops.core.audit import size_in  # noqa: PLC0415
    from specops.wiring import opened  # noqa: PLC0415

    with opened() as house:
        bundle = house.prove_consistency(old, new)
    used = size_in(bundle["old"]), size_in(bundle["new"])
    if used != (old, new):
        typer.echo(f"proven for the signed sizes {used[0]} and {used[1]}; asked for {old} and {new}", err=True)
    _emit(bundle, out)


@app.command("rotate-key")
def rotate_key() -> None:
    """Sign with a new key from now on; notes of the old one still verify. Restart running processes afterwards."""
    from specops.wiring import opened  # noqa: PLC0415

    with opened() as house:
        typer.echo(f"new public key, keep it elsewhere too: {house.rotate_key()}")


def _warn(lines: tuple[str, ...]) -> None:
    """Say what a person should look at, beside the result."""
    for line in lines:
        typer.echo(f"warning: {line}", err=True)


def _emit(value: object, out: Path | None) -> None:
    """Print JSON, or write it."""
    if out is None:
        return emit_json(value)
    import json  # noqa: PLC0415

    try:
        out.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    except OSError as exc:
        from specops.errors import InvalidInput  # noqa: PLC0415

        raise InvalidInput(f"cannot write {out}: {exc}; choose another file") from exc
    return typer.echo(f"written to {out}")
