"""The command ``drill``: what happens when something breaks."""

import sys
from typing import Annotated

import typer

from operations.failures import Exit
from operations.terminal.interrupts import interruptible
from operations.terminal.output_options import OPTIONS

from ..files import check_files, console_beside, progress_beside, write
from . import ROOT, Json, Set, Stack, Write, load, result_file

EPILOG = "Exit code: 0 every drill that this machine can hold passed, 1 otherwise, 2 bad input, 130 Ctrl-C."


def drill_command(
    stack: Stack = "dev",
    config: Set = None,
    only: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Hold this drill alone. Repeatable.")] = None,
    as_json: Json = False,
    result: Write = None,
) -> None:
    """Break a stack on purpose, one fault at a time, and recover it.

    A drill passes if its user is told the cause and nothing is lost or left
    behind: in the embedded AWS account, on an EKS stack's Kubernetes API, and
    on a Slurm stack's nodes.

    \b
      hyperpod rehearse drill dev
      hyperpod rehearse drill eks-gpu --only capacity --write drills.json
    """
    result = result_file(as_json, result)
    check_files(None, result)
    from ..drills import run
    from ..drills.show import hold, table
    from ..kubernetes import network

    project, chosen = load(stack, config)
    if run.of_kubernetes(chosen, run.chosen(only or ())):
        if not network.isolated():
            words = OPTIONS.words[OPTIONS.words.index("drill") :]
            network.isolate([sys.executable, str(ROOT / "hyperpod.py"), "rehearse", *words])
        network.set_up()
    with interruptible():
        outcome = hold(project, chosen, only or (), progress_beside(result))
    console_beside(result).print(table(outcome))
    write(outcome.as_json(), result)
    raise typer.Exit(Exit.GOOD if outcome.passed else Exit.FAILED)
