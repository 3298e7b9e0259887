"""`specops lineage`: what something is made of, how two differ, what depends on it, what served when, and back to the bytes.

Questions only; what changes the lineage is in `lineage_*.py` beside it, on the same `app`.
"""

import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from specops.cli import lineage_tables as tables
from specops.cli.render import emit_json, emit_table

app = typer.Typer(no_args_is_help=True, help="What things are made of, what depends on them, what served when.")
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
THING = "Name, id or digest (its first 8 digits will do) of a release, pair or artifact."
Key = Annotated[str, typer.Argument(metavar="X", help=THING)]


@app.command()
def show(
    name: Annotated[str | None, typer.Argument(metavar="[X]", help=f"{THING} Default: list all releases.")] = None,
    *,
    json: Json = False,
) -> None:
    """Show a release, pair or artifact with all that it came from; claims are marked. Without a name: list releases."""
    from specops.control import lineage  # noqa: PLC0415
    from specops.wiring import opened  # noqa: PLC0415

    with opened() as house, house.store.read() as unit:
        if name is None:
            return tables.releases(unit.releases.all(), json=json)
        shown = lineage.show(unit, name)
    return emit_json(tables.shown_record(shown)) if json else tables.shown(shown)


@app.command()
def diff(
    left: Annotated[str, typer.Argument(help="Release or artifact: name, id or digest.")],
    right: Annotated[str, typer.Argument(help="The other one.")],
    *,
    json: Json = False,
) -> None:
    """Compare two releases or artifacts down to tensors, tokenizer entries and keys; say what each difference can change."""
    from specops.adapters.registered_file import read_registered  # noqa: PLC0415
    from specops.control import lineage  # noqa: PLC0415
    from specops.wiring import opened  # noqa: PLC0415

    with opened() as house, house.store.read() as unit:
        found = lineage.diff(unit, left, right, read=read_registered)
    return emit_json(asdict(found) | {"can_change": found.can_change}) if json else tables.compared(found)


@app.command()
def impact(key: Key, *, json: Json = False) -> None:
    """List what has to be looked at again when X changes: artifacts, pairs, releases with their evidence, rollouts."""
    from specops.control.impact import impact as ask  # noqa: PLC0415
    from specops.wiring import opened  # noqa: PLC0415

    with opened() as house, house.store.read() as unit:
        found = ask(unit, key)
    return emit_json(asdict(found)) if json else tables.impact(found)


@app.command()
def stale(
    target: Annotated[str | None, typer.Option(help="Target or release to compare with; default: the served one.")] = None,
    *,
    json: Json = False,
) -> None:
    """List the drafts whose teacher is not the served target; they are exact, but slower than they could be."""
    from specops.control.impact import stale as ask  # noqa: PLC0415
    from specops.wiring import opened  # noqa: PLC0415

    with opened() as house, house.store.read() as unit:
        found = ask(unit, target)
    if json:
        return emit_json(asdict(found))
    rows = [(d.name, d.digest[:12], ", ".join(d.teachers), ", ".join(d.releases), d.why) for d in found.stale]
    title = f"stale beside {found.target_name} {found.target[:12]}"
    emit_table(title, ("draft", "digest", "teachers", "used by", "why"), rows)
    return typer.echo(f"{len(found.stale)} stale, {found.fresh} fresh")


@app.command()
def at(
    time: Annotated[str, typer.Argument(metavar="TIME", help="ISO 8601 with a zone: 2026-11-29T12:00:00Z.")],
    *,
    json: Json = False,
) -> None:
    """Say what served at a time, in which shares, and who had moved it."""
    from specops.cli.times import parse_time  # noqa: PLC0415
    from specops.control.lineage_time import served  # noqa: PLC0415
    from specops.wiring import opened  # noqa: PLC0415

    with opened() as house, house.store.read() as unit:
        found = served(unit, parse_time(time))
        names = {key: unit.releases.get(key).name for key, _ in found.shares if unit.releases.find(key)}
    if json:
        return emit_json(asdict(found) | {"shares": dict(found.shares), "names": names})
    emit_table(f"served at {found.at}", ("release", "id", "share"), [(names.get(k), k, f"{s:.0%}") for k, s in found.shares])
    if found.rollout and found.rollout.mirror:
        typer.echo(f"{found.rollout.mirror:.0%} of the baseline's requests were mirrored to {found.rollout.candidate}")
    return typer.echo(found.why)


@app.command()
def trace(
    key: Annotated[str, typer.Argument(metavar="WHAT", help="MLflow run id, request id, report file or its digest.")],
    rollout: Annotated[str | None, typer.Option(help="Search the requests of this rollout only.")] = None,
    *,
    json: Json = False,
) -> None:
    """Follow a request, an MLflow run or a report back to releases, artifacts, files and audit entries."""
    from specops.adapters.mlflow_runs import run_tags  # noqa: PLC0415
    from specops.control import lineage_time  # noqa: PLC0415
    from specops.wiring import opened  # noqa: PLC0415

    digest = _file_digest(key)
    with opened() as house, house.store.read() as unit:
        uri = house.settings.mlflow_uri
        found = lineage_time.trace(unit, key, sha256=digest, run_tags=lambda run: run_tags(uri, run), rollout=rollout)
    return emit_json(tables.trace_record(found)) if json else tables.trace(found)


def _file_digest(key: str) -> str | None:
    """Return the SHA-256 of a file, read piece by piece; None where the key names none."""
    import hashlib  # noqa: PLC0415

    from specops.errors import InvalidInput  # noqa: PLC0415

    if not os.path.isfile(key):  # noqa: PTH113  # Path.is_file raises for a name that no file can have
        return None
    try:
        with Path(key).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as exc:
        raise InvalidInput(f"cannot read {key}: {exc.strerror}; check the rights, or give its SHA-256 instead") from exc


@app.command()
def graph(
    key: Annotated[str | None, typer.Argument(metavar="[X]", help=f"{THING} Default: all releases.")] = None,
    out: Annotated[Path, typer.Option(help="File to write: .html or .svg.")] = Path("lineage.html"),
    limit: Annotated[int, typer.Option(min=2, max=2000, help="At most so many nodes, nearest first.")] = 200,
    *,
    json: Json = False,
) -> None:
    """Draw what X came from and what depends on it; --json prints nodes and edges instead."""
    from specops.control import lineage  # noqa: PLC0415
    from specops.report.lineage_graph import write  # noqa: PLC0415
    from specops.wiring import opened  # noqa: PLC0415

    with opened() as house, house.store.read() as unit:
        found = lineage.graph(unit, key, limit=limit)
    if json:
        return emit_json(asdict(found))
    write(found.nodes, found.edges, out, title=f"Lineage of {key or 'all releases'}")
    left = f"; {found.left_out} further nodes left out, see --limit" if found.left_out else ""
    return typer.echo(f"written: {out.resolve()} ({len(found.nodes)} nodes, {len(found.edges)} edges{left})")
