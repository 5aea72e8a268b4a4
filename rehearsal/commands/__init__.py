"""The commands of the rehearsal, and what they have in common.

Each checks its input before it imports what it runs: the account takes a second, Kubernetes two.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console

from components.config import Config
from operations.failures import Exit, bad_input
from operations.project.loading import Project, checked, load_project
from operations.terminal.output_options import OPTIONS

from ..files import STANDARD_OUTPUT

if TYPE_CHECKING:
    from ..checks import Findings

ROOT = Path(__file__).parents[2]
CANNOT_RUN = (
    "Exit code: 0 every check passed and nothing is left, 1 otherwise, "
    "2 the machine or the configuration does not allow a run, 130 Ctrl-C."
)

Stack = Annotated[str, typer.Argument(metavar="[STACK]", help="Which Pulumi.STACK.yaml.")]
Engine = Literal["embedded", "pulumi"]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--config",
        "-c",
        metavar="KEY=VALUE",
        help="Set a key as `pulumi config set` does, for this run only; lists and objects as JSON. Repeatable.",
    ),
]
Report = Annotated[Path | None, typer.Option(metavar="FILE.html", help="Write an HTML report.", dir_okay=False)]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Write = Annotated[
    Path | None,
    typer.Option("--write", "-w", metavar="FILE", help="Write the result as JSON to FILE.", dir_okay=False),
]


def load(stack: str, config: Sequence[str] | None) -> tuple[Project, Config]:
    """Load the stack with this run's keys set. Raises ProjectError and ConfigError."""
    project = load_project(ROOT, stack, config or ())
    return project, checked(project)


def announce(console: Console, what: str, stack: str, config: Config, where: str = "") -> None:
    """Say what is rehearsed, before the imports that take seconds."""
    title = f"{what}{stack}: {config.title} in {config.region.name}{where}"
    console.print(f"[bold]Rehearsing[/] {title}", highlight=False, soft_wrap=not console.is_terminal)


def note(line: str) -> None:
    """A line beside the result; nothing with -q."""
    Console(stderr=True, quiet=OPTIONS.quiet).print(line, soft_wrap=True)


def result_file(as_json: bool, file: Path | None) -> Path | None:
    """Where the result goes as JSON. Raises Failure for two places."""
    if as_json and file:
        raise bad_input("--json prints the result, and --write writes it to a file", "leave one out")
    return STANDARD_OUTPUT if as_json else file


def end(outcome: Findings) -> None:
    """End with the exit code of what was found."""
    if not outcome.passed:
        raise typer.Exit(Exit.CANCELLED if outcome.cancelled else Exit.FAILED)
