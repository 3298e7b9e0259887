"""`specops lineage add` and `lineage check`: register a folder by content, and ask later whether it still is the same."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specops.cli.lineage import Json, app
from specops.cli.render import emit_json, emit_table
from specops.core.release import ArtifactKind
from specops.errors import EXIT_DONE, EXIT_FAIL

if TYPE_CHECKING:
    from specops.adapters.rescan import HashCache
    from specops.core.release import Artifact
    from specops.wiring import House

CACHE = "hashes.db"
Folder = Annotated[Path, typer.Argument(help="Folder that holds the files.")]
Full = Annotated[bool, typer.Option("--full", help="Read every byte, whatever was hashed before.")]


@app.command()
def add(
    folder: Folder,
    *,
    kind: Annotated[ArtifactKind, typer.Option(help="What the files are.")],
    name: Annotated[str, typer.Option(help="Handle for people; no part of the identity.")],
    files: Annotated[list[str] | None, typer.Option(help="Path in the folder; repeat. Default: all but hidden ones.")] = None,
    tensors: Annotated[bool, typer.Option(help="Also digest each tensor.")] = True,
    full: Full = False,
    json: Json = False,
) -> None:
    """Register a folder, or some files of it, by content. Unchanged files are not read again."""
    from specops.adapters.weights import hash_artifact  # noqa: PLC0415
    from specops.control.register import register, registered_names  # noqa: PLC0415
    from specops.wiring import now, opened  # noqa: PLC0415

    with opened() as house, _cache(house.settings.data_dir, full=full) as cache, _bar(f"hashing {name}") as progress:
        artifact = hash_artifact(kind, name, folder, files=files, tensors=tensors, progress=progress, cache=cache)
        known = registered_names(house.store, [artifact.digest]).get(artifact.digest)
        register(house.store, artifacts=(artifact,), edges=(), releases=(), actor=house.settings.who, now=now())
    _show(artifact, known, json=json)


@app.command()
def check(
    name: Annotated[str, typer.Argument(help="Name of an artifact, or its digest (eight digits or more).")],
    folder: Folder,
    *,
    full: Full = False,
    json: Json = False,
) -> int:
    """Check that a folder still holds what was registered; each difference is named and explained."""
    from specops.adapters.weights import compare_artifact  # noqa: PLC0415
    from specops.wiring import opened  # noqa: PLC0415

    with opened() as house, _cache(house.settings.data_dir, full=full) as cache, _bar(f"checking {name}") as progress:
        artifact = _registered(house, name)
        found = compare_artifact(artifact, folder, full=full, progress=progress, cache=cache)
    if json:
        differences = [{"path": d.path, "change": d.change, "message": d.message} for d in found]
        emit_json({"digest": artifact.digest, "same": not found, "full": full, "differences": differences})
    elif found:
        rows = [(d.path, d.change, d.message) for d in found]
        emit_table(f"{artifact.name} {artifact.digest[:12]}", ("file", "change", "what"), rows)
    else:
        typer.echo(f"{folder} holds {artifact.name} {artifact.digest[:12]}: {len(artifact.files)} files as registered")
    return EXIT_FAIL if found else EXIT_DONE


def _registered(house: "House", name: str) -> "Artifact":
    """Return the one artifact of this name or digest, its tensors too.

    Raises:
        InvalidRecord: there is none, or several.
    """
    from dataclasses import replace  # noqa: PLC0415

    from specops.errors import InvalidRecord  # noqa: PLC0415

    with house.store.read() as unit:
        found = unit.artifacts.find(name)
        if len(found) != 1:
            names = ", ".join(f"{a.kind} {a.digest[:16]}" for a in found[:5])
            way_out = f"it is one of {names}; give a digest" if found else "see specops lineage show"
            raise InvalidRecord(f"{len(found)} artifacts are called {name!r}, one expected; {way_out}")
        return replace(found[0], tensors=unit.artifacts.tensors_of(found[0].digest))


def _cache(data_dir: Path, *, full: bool) -> "HashCache":
    from specops.adapters.rescan import HashCache  # noqa: PLC0415

    return HashCache(data_dir / CACHE, full=full)


@contextlib.contextmanager
def _bar(title: str) -> Iterator[Callable[[int, int], None]]:
    """Show bytes, GB/s and the time left on the terminal; nothing where nobody watches."""
    from rich import progress as rich  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415

    console = Console(stderr=True)
    speed = (rich.DownloadColumn(), rich.TransferSpeedColumn(), rich.TimeRemainingColumn())
    columns = (rich.TextColumn("{task.description}"), rich.BarColumn(), *speed)
    with rich.Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as shown:
        task = shown.add_task(title.replace("[", r"\["), total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)


def _show(artifact: "Artifact", known: str | None, *, json: bool) -> None:
    """Print what was registered; `known` is the name it had already, which stays."""
    record = {"digest": artifact.digest, "kind": artifact.kind, "name": known or artifact.name, "bytes": artifact.size}
    if json:
        files = [{"path": f.path, "size": f.size, "sha256": f.sha256, "blake3": f.blake3} for f in artifact.files]
        return emit_json(record | {"already_registered": known is not None, "files": files, "tensors": len(artifact.tensors)})
    return emit_table(
        "registered" if known is None else f"already registered as {known}",
        ("field", "value"),
        [*record.items(), ("files", len(artifact.files)), ("tensors", len(artifact.tensors))]
    )
