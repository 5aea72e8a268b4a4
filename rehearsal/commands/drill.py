"""The command ``drill``: what happens when something breaks."""

from __future__ import annotations

from typing import Annotated

import typer

from stack.failures import Exit
from stack.interrupts import interruptible

from ..files import check_files, console_beside, write
from . import Json, Set, Stack, load

EPILOG = "Exit code: 0 every drill that this machine can hold passed, 1 otherwise, 2 bad input, 130 Ctrl-C."


def drill_command(
    stack: Stack = "dev",
    config: Set = None,
    only: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Hold this drill alone. Repeatable.")] = None,
    result: Json = None,
) -> None:
    """Break a stack on purpose, one fault at a time, and recover it.

    A drill passes if its user is told the cause and nothing is lost or left
    behind: in the embedded AWS account, and on a Slurm stack's nodes.

    \b
      hyperpod rehearse drill dev
      hyperpod rehearse drill eks-gpu --only capacity --json drills.json
    """
    check_files(None, result)
    from ..drills.show import hold

    with interruptible():
        outcome = hold(*load(stack, config), only or (), console_beside(result))
    write(outcome.as_json(), result)
    raise typer.Exit(Exit.GOOD if outcome.passed else Exit.FAILED)
