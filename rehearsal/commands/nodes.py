"""The command ``nodes``: a Slurm stack's nodes on this machine."""

import time
from typing import Annotated

import typer

from operations.failures import cannot_know
from operations.terminal.interrupts import interruptible

from ..files import check_files, console_beside, progress_beside, write
from ..nodes.slurm_packages import DEFAULT as DEFAULT_SLURM
from ..nodes.slurm_packages import ReleaseName
from . import Json, Set, Stack, Write, announce, end, load, note, result_file


def nodes_command(
    stack: Stack = "dev",
    config: Set = None,
    workers: Annotated[
        int | None, typer.Option(metavar="N", help="Workers to start in each group (default: its count).")
    ] = None,
    slurm: Annotated[
        ReleaseName, typer.Option(help="Which release of Slurm: HyperPod's, or the next one.")
    ] = DEFAULT_SLURM,
    as_json: Json = False,
    result: Write = None,
    if_possible: Annotated[
        bool,
        typer.Option(
            "--if-possible", help="Where the machine lacks something, or the stack runs EKS, say so and exit 0."
        ),
    ] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the nodes running until Enter or Ctrl-C.")] = False,
) -> None:
    """Boot a Slurm stack's nodes on this machine, and use them.

    The stack comes up in the embedded AWS account, every node of it as an
    isolated host, and the stack's lifecycle scripts run on them as HyperPod
    runs them. Then come jobs, ssh, MPI, training, the loss of a worker and
    reboots. Needs root and Debian packages.

    \b
      hyperpod rehearse nodes dev
      hyperpod rehearse nodes slurm-gpu --workers 4
    """
    from ..nodes import requirements

    result = result_file(as_json, result)
    check_files(None, result)
    console, meanwhile = console_beside(result), progress_beside(result)
    project, chosen = load(stack, config)
    if if_possible and chosen.settings.orchestrator != "slurm":
        return
    if lacking := requirements.missing(slurm):
        if if_possible:
            what = ", ".join(requirements.named(lacking))
            note(f"The nodes were not rehearsed: this machine lacks {what}. To rehearse them:")
            note(f"  {requirements.how(lacking, stack)}")
            return
        needed = "\n".join(["This machine lacks what the node rehearsal needs:", *lacking])
        raise cannot_know(needed, requirements.how(lacking, stack))
    announce(meanwhile, "the nodes of ", stack, chosen)
    from ..nodes.cluster import Options
    from ..nodes.outcome import Outcome
    from ..nodes.rehearse import run
    from ..nodes.show import ending

    outcome, began = Outcome(stack=stack), time.monotonic()
    with interruptible():
        run(project, chosen, outcome, meanwhile, Options(workers=workers, slurm=slurm, continuous=True), keep=keep)
    console.print(ending(outcome, time.monotonic() - began), soft_wrap=not console.is_terminal)
    write(outcome.as_json(), result)
    end(outcome)
