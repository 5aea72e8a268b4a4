"""The verb ``node run-scripts``."""

from dataclasses import replace
from typing import Annotated

import typer
from rich.markup import escape

from .. import target
from ..cluster import changes, run_scripts
from ..failures import Exit
from ..terminal import console
from .changes import show


def run_scripts_command(
    stack: console.Stack,
    where: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NODE|GROUP]...", help="Nodes and groups. Default: all, the controller first."),
    ] = None,
    at_once: Annotated[int, typer.Option("--at-once", min=1, metavar="N", help="Number of nodes at a time.")] = 1,
    drain: Annotated[
        bool, typer.Option("--drain/--no-drain", help="Let the jobs of a worker end first. Default: yes.")
    ] = True,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0, help="Seconds to wait for the jobs of a worker to end.")
    ] = 86400.0,
    yes: console.Yes = False,
    as_json: console.Json = False,
) -> None:
    """Run the current lifecycle scripts on nodes again.

    For Slurm, where no call to AWS does it for a controller.
    Brings what was changed after the nodes' first boot to them: keys of
    hyperpod:slurm, new scripts. Deploy the change first. The scripts come from
    the stack's bucket and leave alone what is right already. Workers take no
    new jobs meanwhile, and their jobs end first. Stops at the first node that
    fails, which stays out of Slurm, and exits with 1.

    \b
      hyperpod node run-scripts slurm-gpu controller
      hyperpod node run-scripts slurm-gpu workers --at-once 4
      hyperpod node run-scripts slurm-gpu workers-2 --no-drain
    """
    chosen = target.load(stack)
    nodes, wanted = run_scripts.chosen(chosen, where or [])
    plan = changes.plan(chosen, "run-scripts", nodes, wanted)
    jobs = "goes on; its node waits for it" if drain else "goes on"
    show(replace(plan, jobs=[replace(job, survives=jobs) for job in plan.jobs]))
    console.confirm(f"Run the scripts on {len(wanted)} nodes?", yes=yes)
    done: list[run_scripts.Ran] = []
    with console.progress().status("") as status:
        for one in run_scripts.run(
            chosen,
            nodes,
            wanted,
            lambda said: status.update(escape(said)),
            at_once=at_once,
            drain=drain,
            patience=timeout,
        ):
            done.append(one)
            if not as_json:
                _show(one)
    left = [node.name for node in wanted[len(done) :]]
    good = not left and all(one.good for one in done)
    if as_json:
        console.emit({"nodes": done, "not_run": left, "good": good})
    elif left:
        console.prose(f"not run on {', '.join(left)}", "yellow")
    raise typer.Exit(Exit.GOOD if good else Exit.FAILED)


def _show(one: run_scripts.Ran) -> None:
    console.table(
        f"{one.node}: {one.status} after {one.seconds:.1f} s, {one.changed} files changed",
        ["step", ("seconds", "right"), "result", "detail"],
        [
            (step["name"], f"{step['seconds']:.2f}", step["result"], "; ".join([step["detail"], *step["warnings"]]))
            for step in one.steps
        ],
    )
    if one.trouble:
        console.prose(f"  {one.trouble}", "red")
    if one.out:
        console.prose(f"  {one.node} gets no jobs until this verb has succeeded there, or scontrol resumes it", "red")
