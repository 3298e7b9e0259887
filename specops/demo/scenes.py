"""How the story speaks: scenes, expectations, and the closing table."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from specops.errors import Unavailable
from specops.settings import Settings


@dataclass(slots=True)
class Scenes:
    """Printing and expectations of the running story."""

    console: Console
    expectations: list[tuple[str, str, bool]] = field(default_factory=list)

    def scene(self, number: int, title: str, words: str) -> None:
        """Open a scene."""
        self.console.print(f"\n[bold cyan]{number}. {title}[/]  {words}")

    def say(self, words: str) -> None:
        """Print a line inside a scene."""
        self.console.print(f"   {words}", highlight=False)

    def expect(self, what: str, found: str, *, held: bool) -> None:
        """Record an expectation and show whether it held."""
        self.expectations.append((what, found, held))
        self.say(f"{'[green]held[/]' if held else '[bold red]FAILED[/]'}  {what}: {found}")

    @property
    def all_held(self) -> bool:
        """Whether every expectation held."""
        return all(held for _, _, held in self.expectations)

    def progress(self) -> Progress:
        """Return a progress bar."""
        return Progress(
            TextColumn("   {task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self.console,
            transient=True,
        )


def wait_until(holds: Callable[[], bool], *, timeout_s: float, what: str) -> None:
    """Wait for a condition.

    Raises:
        Unavailable: it did not come to hold in time.
    """
    deadline = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > deadline:
            raise Unavailable(f"waited {timeout_s:.0f} s for {what}; see the logs")
        time.sleep(0.1)


def closing_table(scenes: Scenes, settings: Settings, seconds: float) -> None:
    """Say what was expected and what happened, and where to look."""
    table = Table(title="What was expected, and what happened", title_justify="left")
    for column in ("", "expectation", "found"):
        table.add_column(column, overflow="fold")
    for what, found, held in scenes.expectations:
        table.add_row("[green]held[/]" if held else "[red]FAILED[/]", what, found)
    scenes.console.print()
    scenes.console.print(table)
    for line in (
        f"report   {settings.data_dir / 'report.html'}",
        f"logs     {settings.data_dir / 'logs'}",
        f"mlflow   mlflow ui --backend-store-uri {settings.mlflow_uri}",
        f"store    SPECOPS_DATA_DIR={settings.data_dir} specops rollout status",
        f"{'every expectation held' if scenes.all_held else 'NOT every expectation held'}, {seconds:.0f} s",
    ):
        scenes.console.print(line, soft_wrap=True, highlight=False)
