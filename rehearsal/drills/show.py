"""The drills in a terminal: a line before each one, what its user saw after it, and a table at the end."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from components.config import Config
from operations.engine.durations import clock
from operations.project.loading import Project
from operations.terminal.tables import Column, Rows

from . import run
from .model import Drill, Result
from .run import Outcome


def hold(project: Project, config: Config, only: Sequence[str], console: Console) -> Outcome:
    """Hold these drills, or all, and show each. Raises Failure for a name that no drill has."""
    progress = Progress(console)
    return run.run(project, config, run.chosen(only), progress.start, progress.end)


class Progress:
    """Prints each drill as it is held."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def start(self, drill: Drill[Any]) -> None:
        """Show what is broken now."""
        self._console.print(Text.assemble((drill.name, "bold"), f": {drill.breaks}"))

    def end(self, result: Result) -> None:
        """Show the result."""
        lines = [Text(line, style="dim") for line in (result.seen, *result.told) if line]
        bad = ("", result.why), ("lost: ", "; ".join(result.lost)), ("left: ", "; ".join(result.left))
        lines += [Text(title + text, style="red") for title, text in bad if text]
        mark = Text("  ✓ passed", style="green") if result.passed else Text("  ✗ failed", style="red")
        self._console.print(Group(*(Padding(line, (0, 0, 0, 4)) for line in lines), mark))


def table(outcome: Outcome) -> RenderableType:
    """All drills and how they ended."""
    rows: list[Sequence[str | Text]] = []
    for one in outcome.results:
        style = "green" if one.passed else "red"
        counts = [str(len(what)) if what else "nothing" for what in (one.lost, one.left)]
        rows.append((Text("✓" if one.passed else "✗", style), one.name, *counts, clock(one.seconds)))
    columns: list[Column] = ["", "drill", ("lost", "right"), ("left", "right"), ("recovers", "right")]
    parts: list[RenderableType] = [Text(), Rows(columns, rows)]
    if outcome.not_run:
        parts.append(Text("\nNot held:", style="bold yellow"))
        for why in dict.fromkeys(outcome.not_run.values()):
            names = ", ".join(name for name, reason in outcome.not_run.items() if reason == why)
            parts.append(Padding(Text(f"{names}: {why}"), (0, 0, 0, 2)))
    failed = [one.name for one in outcome.results if not one.passed]
    if failed:
        parts.append(Text(f"\nFailed: {', '.join(failed)}", style="bold red"))
    elif outcome.results:
        number = len(outcome.results)
        passed = "The drill passed." if number == 1 else f"All {number} drills passed."
        parts.append(Text(f"\n{passed}", style="bold green"))
    return Group(*parts)
