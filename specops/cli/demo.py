"""`specops quickstart` and `specops demo`: the story, and the recipe of the shipped pair."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, help="The shipped demo pair and its recipe.")


def quickstart(
    seed: Annotated[int, typer.Option(help="Seed of prompts and arrivals.")] = 1,
    data_dir: Annotated[
        Path, typer.Option(help="Folder for everything the story writes; it is moved aside when it exists.")
    ] = Path("specops-data"),
) -> int:
    """Play the whole story on this machine: register, preflight, offline, shadow, canary, collapse, fallback, report.

    Needs the extra `all` and about 4 GB of memory. Exit 0 only if every expectation held.
    """
    from specops.demo.story import play  # noqa: PLC0415

    return 0 if play(data_dir, seed=seed) else 1


@app.command()
def train(out: Annotated[Path, typer.Argument(help="Folder for target, draft, stale and prompts.json.")]) -> None:
    """Train the demo pair anew by the shipped recipe (about an hour on two cores)."""
    from specops.demo.recipe import run  # noqa: PLC0415

    run(out)
