"""`specops lineage import`: bring in what serves already, from its folder, command line, registry or server."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specops.cli.lineage import Json
from specops.cli.lineage import app as lineage
from specops.cli.render import emit_json, emit_table
from specops.core.release import ArtifactKind

if TYPE_CHECKING:
    from specops.core.imports import Imported

app = typer.Typer(
    no_args_is_help=True,
    help="Register what a folder, command line, GGUF file, MLflow or a server holds. Names of other models stay claims.",
)
lineage.add_typer(app, name="import")
Name = Annotated[str, typer.Option(help="Handle for people; no part of the identity.")]
Kind = Annotated[ArtifactKind | None, typer.Option(help="Default: a head is a draft, anything else a target.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be registered; change nothing.")]


@app.command("hf")
def hf_folder(
    folder: Annotated[Path, typer.Argument(help="Folder with config.json and safetensors.")],
    *,
    name: Name,
    kind: Kind = None,
    base: Annotated[str | None, typer.Option(help="Name or digest of the registered model it was made from.")] = None,
    teacher: Annotated[str | None, typer.Option(help="Name or digest of the target a draft was distilled from.")] = None,
    target: Annotated[str | None, typer.Option(help="Name or digest of the target whose states a head reads.")] = None,
    tensors: Annotated[bool, typer.Option(help="Also hash each tensor.")] = True,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Import a Hugging Face folder: weights, tokenizer, chat template and generation defaults, each by content."""
    from specops.adapters.hf_folder import Binding, import_folder  # noqa: PLC0415

    binding = Binding(**_digests({"base": base, "teacher": teacher, "target": target}))
    found = import_folder(folder, name=name, kind=kind, binding=binding, tensors=tensors)
    _finish(found, dry_run=dry_run, json=json)


@app.command("vllm")
def vllm_command(
    command: Annotated[str, typer.Argument(help="The whole command line, quoted as one word.")],
    *,
    name: Name,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Import a vLLM command line as an engine configuration; secrets in it are dropped."""
    from specops.adapters.vllm_command import parse_command  # noqa: PLC0415

    _finish(parse_command(command).to_imported(name), dry_run=dry_run, json=json)


@app.command("speculative-config")
def speculative_config(
    config: Annotated[str, typer.Argument(help="The JSON value of --speculative-config.")],
    *,
    name: Name,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Import a speculative configuration alone."""
    from specops.adapters.vllm_command import parse_speculative  # noqa: PLC0415

    _finish(parse_speculative(config).to_imported(name), dry_run=dry_run, json=json)


@app.command("gguf")
def gguf_file(
    file: Annotated[Path, typer.Argument(help="A .gguf file.")],
    *,
    name: Name,
    kind: Kind = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Import a GGUF file: its header as properties and claims, each tensor by digest."""
    from specops.adapters.gguf_file import import_gguf  # noqa: PLC0415

    _finish(import_gguf(file, name=name, kind=kind), dry_run=dry_run, json=json)


@app.command("mlflow")
def mlflow_reference(
    reference: Annotated[str, typer.Argument(help="models:/NAME/VERSION, models:/NAME@ALIAS, a run id or runs:/ID/PATH.")],
    *,
    name: Name,
    kind: Kind = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Import a model version or run of the configured MLflow; all that MLflow says is a claim."""
    from specops.adapters.mlflow_import import import_mlflow  # noqa: PLC0415
    from specops.settings import load_settings  # noqa: PLC0415

    found = import_mlflow(load_settings().mlflow_uri, reference, name=name, kind=kind)
    _finish(found, dry_run=dry_run, json=json)


@app.command("server")
def running_server(
    url: Annotated[str, typer.Argument(help="Base URL of an OpenAI-compatible server.")],
    *,
    name: Name,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Import what a running server says about itself; all of it is a claim."""
    from specops.adapters.running_server import import_server  # noqa: PLC0415

    _finish(import_server(url, name=name), dry_run=dry_run, json=json)


def _digests(named: dict[str, str | None]) -> dict[str, str]:
    """Return the whole digests of the registered models that options name; the store is opened only if there are any."""
    from specops.control.lineage import model_digest  # noqa: PLC0415
    from specops.wiring import opened  # noqa: PLC0415

    given = {option: key for option, key in named.items() if key is not None}
    if not given:
        return {}
    with opened() as house, house.store.read() as unit:
        return {option: model_digest(unit, key) for option, key in given.items()}


def _finish(found: "Imported", *, dry_run: bool, json: bool) -> None:
    """Register what was found, unless it is a dry run, and say what it is."""
    from specops.control.register import register, registered_names  # noqa: PLC0415
    from specops.wiring import now, opened  # noqa: PLC0415

    known: dict[str, str] = {}
    if not dry_run:
        with opened() as house:
            known = registered_names(house.store, [a.digest for a in found.artifacts])
            register(
                house.store, artifacts=found.artifacts, edges=found.edges, releases=(), actor=house.settings.who, now=now()
            )
    if json:
        record = {
            "registered": not dry_run,
            "artifacts": [
                {"digest": a.digest, "kind": a.kind, "name": known.get(a.digest, a.name)}
                | {"already_registered": a.digest in known, "files": len(a.files), "bytes": a.size, "tensors": len(a.tensors)}
                | {"properties": a.properties, "claims": a.claims}
                for a in found.artifacts
            ],
            "edges": [{"source": e.source, "kind": e.kind, "target": e.target} for e in found.edges],
            "notes": list(found.notes),
        }
        return emit_json(record)
    names = {a.digest: a.name for a in found.artifacts} | known
    emit_table(
        "would register" if dry_run else "already registered" if names.keys() <= known.keys() else "registered",
        ("kind", "name", "digest", "files", "bytes", "tensors"),
        [(a.kind, names[a.digest], a.digest[:12], len(a.files), a.size, len(a.tensors)) for a in found.artifacts],
    )
    for edge in found.edges:
        typer.echo(f"{names.get(edge.source, edge.source[:12])} {edge.kind} {names.get(edge.target, edge.target[:12])}")
    for artifact in found.artifacts:
        if artifact.digest in known:
            typer.echo(f"note: {artifact.kind} {artifact.digest[:12]} was already registered as {known[artifact.digest]}")
    for note in found.notes:
        typer.echo(f"note: {note}")
    return None
