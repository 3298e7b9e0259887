"""`specops trace why`, `compare`, `rerun` and `mlflow`: from the outcome backward, and what would have been otherwise."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specops.cli.render import emit_json, emit_table
from specops.cli.trace import Folder, Json, app

if TYPE_CHECKING:
    from specops.core.trace_compare import Comparison


@app.command()
def why(
    request: Annotated[str, typer.Argument(help="Id of the request.")],
    folder: Folder = None,
    plain: Annotated[str | None, typer.Option(help="Id of the same request decoded plainly: where do they part?")] = None,
    model: Annotated[Path | None, typer.Option(help="Folder with tokenizer.json, to tell when the script changes.")] = None,
    *,
    json: Json = False,
) -> None:
    """Say why a request was slow, short, or other than plain decoding; only what passes a threshold is said."""
    from specops.core.trace_why import why as reasons  # noqa: PLC0415
    from specops.engines.rerun import token_texts  # noqa: PLC0415
    from specops.wiring import trace_folder  # noqa: PLC0415

    place = trace_folder(folder)
    other = place.read(plain) if plain else None
    found = reasons(place.read(request), other, text=token_texts(model) if model else None)
    if json:
        return emit_json(found.to_record())
    typer.echo(f"{found.request_id}: {found.ended}")
    for each in found.findings:
        where = f" (rounds {each.rounds[0]} to {each.rounds[1]})" if each.rounds else ""
        typer.echo(f"- {each.sentence}{where}\n  next: {each.next_step}")
    if not found.findings:
        typer.echo("- nothing stands out")
    for reason in found.not_judged:
        typer.echo(f"  not judged: {reason}")
    return None


@app.command()
def compare(
    first: Annotated[str, typer.Argument(help="Id of a request.")],
    second: Annotated[str, typer.Argument(help="Id of another.")],
    folder: Folder = None,
    *,
    json: Json = False,
) -> None:
    """Put two requests side by side: settings that differ, the first token at which they part, what each cost."""
    from specops.core.trace_compare import compare as compared  # noqa: PLC0415
    from specops.wiring import trace_folder  # noqa: PLC0415

    place = trace_folder(folder)
    _emit(compared(place.read(first), place.read(second)), json=json)


@app.command()
def rerun(
    request: Annotated[str, typer.Argument(help="Id of the request.")],
    model: Annotated[Path, typer.Option(help="Folder of the target.")],
    draft: Annotated[Path | None, typer.Option(help="Folder of a draft model, the recorded one or another.")] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", help="What is otherwise: k=2, temperature=0, seed=7, draft=none, drop=0:12, rounds=10, ..."),
    ] = None,
    folder: Folder = None,
    *,
    json: Json = False,
) -> None:
    """Decode a recorded request again with something changed, and compare; without --set, see if it reproduces."""
    from specops.core.trace_compare import compare as compared  # noqa: PLC0415
    from specops.engines.rerun import rerun_from_folders  # noqa: PLC0415
    from specops.wiring import trace_folder  # noqa: PLC0415

    place = trace_folder(folder)
    recorded = place.read(request)
    again = rerun_from_folders(recorded, model, draft, changes or [])
    place.write(again)
    _emit(compared(recorded, again), json=json)


@app.command()
def mlflow(
    request: Annotated[str, typer.Argument(help="Id of the request.")],
    folder: Folder = None,
    uri: Annotated[str | None, typer.Option(help="MLflow's tracking URI; default: the setting mlflow_tracking_uri.")] = None,
) -> None:
    """Send a recorded request to MLflow: a span for each round and stage; sent once, however often it is called."""
    from specops.adapters.mlflow_traces import send_trace  # noqa: PLC0415
    from specops.settings import load_settings  # noqa: PLC0415
    from specops.wiring import trace_folder  # noqa: PLC0415

    place = uri or load_settings().mlflow_uri
    typer.echo(f"{send_trace(trace_folder(folder).read(request), place)} in experiment specops of {place}")


def _emit(found: "Comparison", *, json: bool) -> None:
    if json:
        return emit_json(found.to_record())
    one, two = found.first, found.second
    rows = [
        ("tokens", one.tokens, two.tokens), ("rounds", one.rounds, two.rounds),
        ("accepted", f"{one.accepted} of {one.drafted}", f"{two.accepted} of {two.drafted}"),
        ("tokens per target pass", _number(one.tokens_per_pass), _number(two.tokens_per_pass)),
        ("ms per token", _number(one.token_s, 1e3), _number(two.token_s, 1e3)),
        ("ms in all", _number(one.total_s, 1e3), _number(two.total_s, 1e3)),
    ]  # fmt: skip
    rows += [(name, str(was), str(now)) for name, (was, now) in found.changed.items()]
    emit_table("comparison", ("", *found.request_ids), rows)
    parts = found.difference
    differs = "the answers are equal" if parts is None else f"they part at token {parts.at}: {parts.first} and {parts.second}"
    return typer.echo(differs if found.same_prompt else f"other prompts; {differs}")


def _number(value: float | None, unit: float = 1.0) -> str:
    return "-" if value is None else f"{value * unit:.2f}"
