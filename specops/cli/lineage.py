"""`specops lineage`: what a release is made of, and what differs between two."""

from typing import Annotated

import typer

from specops.cli.render import emit_json, emit_table

app = typer.Typer(no_args_is_help=True, help="What a release is made of, and how two differ.")
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def show(
    name: Annotated[str | None, typer.Argument(help="Release name or id; default: list all.")] = None, *, json: Json = False
) -> None:
    """Show a release with its artifacts, or list all releases."""
    from specops.wiring import opened  # noqa: PLC0415

    with opened() as house, house.store.read() as unit:
        releases = unit.releases.all()
        artifacts = {a.digest: a for a in unit.artifacts.all()}
        edges = unit.edges.all()
        chosen = unit.releases.get(name) if name else None
    if chosen is None:
        if json:
            return emit_json([r.to_record() | {"id": r.id, "digest": r.digest} for r in releases])
        return emit_table(
            "releases",
            ("name", "id", "method", "k"),
            [(r.name, r.id, r.method or "plain", r.num_speculative_tokens) for r in releases],
        )
    from specops.core.lineage import ancestors  # noqa: PLC0415

    roots = [d for d in (chosen.target, chosen.draft, chosen.tokenizer) if d]
    reached = {d for root in roots for d in ancestors(edges, root)} | set(roots)
    mine = [artifacts[d] for d in sorted(reached) if d in artifacts]
    drawn = [e for e in edges if e.source in reached]
    if json:
        return emit_json(
            {
                "release": chosen.to_record() | {"id": chosen.id, "digest": chosen.digest},
                "artifacts": [
                    {"digest": a.digest, "kind": a.kind, "name": a.name, "facts": a.facts, "files": len(a.files)} for a in mine
                ],
                "edges": [{"source": e.source, "kind": e.kind, "target": e.target} for e in drawn],
            }
        )
    emit_table(
        f"{chosen.name} {chosen.id}",
        ("field", "value"),
        [(k, v) for k, v in chosen.to_record().items() if v not in (None, {}, 0)],
    )
    emit_table("artifacts", ("kind", "name", "digest", "files"), [(a.kind, a.name, a.digest[:12], len(a.files)) for a in mine])
    names = {a.digest: a.name for a in artifacts.values()}
    return emit_table(
        "edges",
        ("from", "relation", "to"),
        [(names.get(e.source, e.source[:12]), e.kind, names.get(e.target, e.target[:12])) for e in drawn],
    )


@app.command()
def diff(
    left: Annotated[str, typer.Argument(help="Release name or id.")],
    right: Annotated[str, typer.Argument(help="Release name or id.")],
    *,
    json: Json = False,
) -> None:
    """Compare two releases component by component, and say what each difference can change."""
    from dataclasses import asdict  # noqa: PLC0415

    from specops.core.lineage import diff as diff_releases  # noqa: PLC0415
    from specops.wiring import opened  # noqa: PLC0415

    with opened() as house, house.store.read() as unit:
        differences = diff_releases(unit.releases.get(left), unit.releases.get(right))
    if json:
        return emit_json([asdict(d) for d in differences])
    if not differences:
        return typer.echo("no difference")
    return emit_table(
        f"{left} -> {right}",
        ("component", left, right, "can change", "why"),
        [(d.component, _short(d.left), _short(d.right), d.can_change, d.why) for d in differences],
    )


def _short(value: object) -> str:
    """Cut a digest to what tells two apart; other values as they are."""
    text = "" if value is None else str(value)
    return text[:12] if len(text) == 64 else text  # noqa: PLR2004  # hex digits of a SHA-256
