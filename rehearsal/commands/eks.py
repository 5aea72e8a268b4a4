"""The command ``eks``: an EKS stack's objects in a real Kubernetes API."""

import shutil
import sys
import time
from typing import Annotated

import typer

from operations.failures import bad_input
from operations.terminal.command_line import called
from operations.terminal.interrupts import interruptible
from operations.terminal.output_options import OPTIONS

from ..files import check_files, console_beside, progress_beside, write
from . import ROOT, Engine, Json, Set, Stack, Write, announce, end, load, note, result_file


def eks_command(
    stack: Stack = "eks-gpu",
    config: Set = None,
    engine: Annotated[
        Engine, typer.Option(help="pulumi: the real CLI with the real pulumi-eks and pulumi-kubernetes plugins.")
    ] = "embedded",
    cycles: Annotated[int, typer.Option(min=1, metavar="N", help="Times up and down.")] = 2,
    as_json: Json = False,
    result: Write = None,
    if_possible: Annotated[
        bool,
        typer.Option(
            "--if-possible",
            help="Where programs are missing or the stack runs Slurm, say so and exit 0; nothing is built.",
        ),
    ] = False,
) -> None:
    """Apply an EKS stack's objects to a real Kubernetes API.

    The stack comes up in the embedded AWS account, its objects through real
    Helm and server-side apply, with nodes as the catalogue describes them.
    Jobs are submitted, placed, queued and refused; one trains. Everything is
    removed again.

    \b
      hyperpod rehearse eks eks-gpu
      hyperpod rehearse eks eks-trainium --cycles 1 --write result.json
    """
    project, chosen = load(stack, config)
    if chosen.settings.orchestrator != "eks":
        if if_possible:
            return
        raise bad_input(f"stack {stack} runs Slurm", f"hyperpod rehearse nodes {stack}")
    from ..kubernetes import network

    result = result_file(as_json, result)
    check_files(None, result)
    console, meanwhile = console_beside(result), progress_beside(result)
    if not network.isolated():
        announce(meanwhile, "Kubernetes of ", stack, chosen)
    from ..kubernetes import binaries
    from ..kubernetes.control_plane import ControlPlane
    from ..kubernetes.nodes import names_of
    from ..kubernetes.outcome import Outcome
    from ..kubernetes.rehearse import lacking, run
    from ..kubernetes.show import ending

    unbuilt = binaries.missing() if if_possible else []
    why = f"not built yet: {', '.join(unbuilt)}" if unbuilt else lacking(engine)
    if why and if_possible:
        first = "make kubernetes-tools && " if unbuilt else ""
        go = "" if shutil.which("go") or not unbuilt else " with Go 1.25 or newer (https://go.dev/dl)"
        note(f"Kubernetes was not rehearsed: {why}. To rehearse it{go}:")
        note(f"  {first}{called()} rehearse eks {stack}")
        return
    if why:
        raise bad_input(why)
    try:
        # Building the programs needs the network; the run itself does not.
        found = binaries.find_all(meanwhile)
    except binaries.Missing as programs:
        raise bad_input(str(programs)) from None
    if not network.isolated():
        words = OPTIONS.words[OPTIONS.words.index("eks") :]
        network.isolate([sys.executable, str(ROOT / "hyperpod.py"), "rehearse", *words])
    network.set_up()
    outcome, began = Outcome(stack=stack), time.monotonic()
    with interruptible():
        plane = ControlPlane(found, names_of(chosen))
        run(project, chosen, outcome, meanwhile, plane, cycles=cycles, engine=engine)
    console.print(ending(outcome, time.monotonic() - began), soft_wrap=not console.is_terminal)
    write(outcome.as_json(), result)
    end(outcome)
