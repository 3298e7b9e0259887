"""`specops release`: prove a pair, register it with the way it is served, show what it is made of."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specops.cli.render import emit_json, emit_table

if TYPE_CHECKING:
    from specops.core.candidate import Model
    from specops.core.pair import Pair
    from specops.core.release import Release
    from specops.wiring import House

MAX_PREFIX = 150  # characters of a release's name that its parts' names begin with
app = typer.Typer(no_args_is_help=True, help="Prove that target and draft belong together; register and show releases.")
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Method = Annotated[str | None, typer.Option(help="vLLM's name: draft_model, eagle3, mtp, ngram, ...; default: plain decoding.")]
Teacher = Annotated[str | None, typer.Option(help="Name or digest of the model a draft was distilled from; you vouch for it.")]


@app.command()
def register(
    *,
    name: Annotated[str, typer.Option(help="Handle for people; no part of the identity.")],
    target: Annotated[str, typer.Option(help="Folder, or name or digest of a registered target.")],
    draft: Annotated[str | None, typer.Option(help="Folder, or name or digest of a registered draft.")] = None,
    method: Method = None,
    k: Annotated[int, typer.Option(min=0, max=128, help="num_speculative_tokens.")] = 0,
    engine: Annotated[str, typer.Option(help="Engine's name.")] = "vllm",
    engine_version: Annotated[str, typer.Option(help="Engine's version: another one may round differently.")] = "",
    engine_args: Annotated[str, typer.Option(help="Arguments as for vllm serve, quoted as one word.")] = "",
    allow_lossy: Annotated[list[str] | None, typer.Option(help="Allow this lossy setting by name; repeatable.")] = None,
    teacher: Teacher = None,
    json: Json = False,
) -> None:
    """Prove the pair, hash everything, and register the release; refused if it cannot keep the target's output."""
    from specops.adapters.vllm_command import parse_command  # noqa: PLC0415
    from specops.control.register import enroll  # noqa: PLC0415
    from specops.core.candidate import Candidate  # noqa: PLC0415
    from specops.wiring import now, opened  # noqa: PLC0415

    command = parse_command(f"vllm serve MODEL {engine_args}")
    settings = {"name": engine, "version": engine_version, "arguments": command.arguments}
    with opened() as house:
        teacher = _digest(house, teacher)
        mine, yours = _models(house, name, target, draft, teacher)
        candidate = Candidate(
            name=name, target=mine, draft=yours, method=method, num_speculative_tokens=k, teacher=teacher,
            speculative_config=command.speculative or {}, engine=settings,
        )  # fmt: skip
        done = enroll(house.store, candidate, allow_lossy=allow_lossy or (), actor=house.settings.who, now=now())
    if json:
        pair = _pair_record(done.pair) if done.pair is not None else None
        return emit_json({"release": _release_record(done.release), "pair": pair})
    typer.echo(f"registered {done.release.id} {name}")
    return _print_pair(done.pair) if done.pair is not None else None


@app.command("prove-pair")
def prove_pair(
    target: Annotated[str, typer.Argument(help="Folder, or name or digest of a registered target.")],
    draft: Annotated[str | None, typer.Argument(help="Folder, name or digest; none where the method has no weights.")] = None,
    *,
    method: Annotated[str, typer.Option(help="vLLM's name: draft_model, eagle3, mtp, ngram, ...")] = "draft_model",
    teacher: Teacher = None,
    json: Json = False,
) -> None:
    """Say whether target and draft belong together, and why not; registers nothing."""
    from specops.core.pair_proof import prove  # noqa: PLC0415
    from specops.wiring import opened  # noqa: PLC0415

    with opened() as house:
        teacher = _digest(house, teacher)
        mine, yours = _models(house, "pair", target, draft, teacher)
    pair = prove(mine.side, yours.side if yours is not None else None, method=method, teacher=teacher)
    return emit_json(_pair_record(pair)) if json else _print_pair(pair)


@app.command()
def show(name: Annotated[str, typer.Argument(help="Release name, id or digest.")], *, json: Json = False) -> None:
    """Show a release, and the proof of its pair."""
    from specops.wiring import opened  # noqa: PLC0415

    with opened() as house, house.store.read() as unit:
        release = unit.releases.get(name)
        pair = unit.pairs.get(release.pair) if release.pair else None
    if json:
        return emit_json({"release": _release_record(release), "pair": _pair_record(pair) if pair is not None else None})
    rows = [(key, value) for key, value in release.to_record().items() if value not in (None, {}, 0, ())]
    emit_table(f"{release.name} {release.id}", ("field", "value"), rows)
    return _print_pair(pair) if pair is not None else None


def _models(
    house: "House", name: str, target: str, draft: str | None, teacher: str | None
) -> tuple["Model", "Model | None"]:
    """Bring in both sides; a head is bound to the target whose hidden states it reads."""
    from specops.adapters.hf_folder import Binding  # noqa: PLC0415
    from specops.core.release import ArtifactKind  # noqa: PLC0415

    mine = _model(house, target, f"{name[:MAX_PREFIX]} target", ArtifactKind.TARGET, None)
    if draft is None:
        return mine, None
    binding = Binding(teacher=teacher, target=mine.weights.digest)
    return mine, _model(house, draft, f"{name[:MAX_PREFIX]} draft", ArtifactKind.DRAFT, binding)


def _digest(house: "House", key: str | None) -> str | None:
    """Return the whole digest of a registered model that a person names; None stays None."""
    from specops.control.lineage import model_digest  # noqa: PLC0415

    if key is None:
        return None
    with house.store.read() as unit:
        return model_digest(unit, key)


def _model(house: "House", source: str, name: str, kind: Any, binding: Any) -> "Model":  # noqa: ANN401  # types that import late
    from specops.adapters.model_folder import bring, bring_registered  # noqa: PLC0415

    if Path(source).is_dir():
        return bring(Path(source), name=name, kind=kind, binding=binding)
    from specops.control.lineage import model_digest  # noqa: PLC0415

    with house.store.read() as unit:
        artifact = unit.artifacts.get(model_digest(unit, source))
    return bring_registered(artifact, binding=binding)


def _release_record(release: "Release") -> dict[str, Any]:
    return release.to_record() | {"id": release.id, "digest": release.digest}


def _pair_record(pair: "Pair") -> dict[str, Any]:
    found = {"digest": pair.digest, "is_stale": pair.is_stale, "chat_templates_equal": pair.chat_templates_equal}
    return pair.to_record() | found


def _print_pair(pair: "Pair") -> None:
    typer.echo(f"pair {pair.digest[:16]} ({pair.method}): vocabulary {pair.vocabulary.kind}; {pair.vocabulary.message}")
    for remark in pair.remarks:
        typer.echo(f"note: {remark.message}")
