"""The verbs ``node health`` and ``node deep-check``."""

from dataclasses import replace
from datetime import date
from typing import Annotated

import typer
from botocore.exceptions import BotoCoreError, ClientError

from .. import target
from ..cluster import changes, deep_checks, health, jobs_on_nodes
from ..cluster import nodes as cluster_nodes
from ..failures import Exit, Failure, described
from ..terminal import console
from .changes import show


def health_command(
    stack: console.Stack,
    now: Annotated[
        bool, typer.Option("--now", help="Run the checks first, instead of showing the last results.")
    ] = False,
    as_json: console.Json = False,
) -> None:
    """Show what the nodes' own health checks found.

    Every worker checks itself every five minutes: devices, EFA, ECC, XIDs,
    NVLink, file system, disk, clock. docs/health.md says what each check
    means and what healthPolicy does. Exits with 1 if a node is bad, with 3 if
    one could not be asked.

    \b
      hyperpod node health slurm-gpu
      hyperpod node health eks-gpu --now --json
    """
    chosen = target.load(stack)
    nodes = cluster_nodes.list_nodes(chosen)
    try:
        nodes = cluster_nodes.with_states(chosen, nodes)
    except (Failure, ClientError, BotoCoreError) as error:
        console.note(f"the scheduler's states are unknown: {described(error, stack).message}", "yellow")
    with console.progress().status(f"Asking the workers of {chosen.cluster_name} ..."):
        found = health.ask(chosen, nodes, now=now)
    states = {node.name: node for node in nodes}
    if as_json:
        console.emit([{**one.__dict__, "state": states[one.node].state} for one in found])
    else:
        console.table(
            f"{chosen.cluster_name}: {len(found)} workers",
            ["", "node", "state", "checks", "ago", "found"],
            [
                (
                    one.status,
                    one.node,
                    states[one.node].state or "?",
                    one.checks or "-",
                    health.ago(one.age_seconds),
                    _said(one),
                )
                for one in found
            ],
        )
        for one in found:
            for check, why in one.bad.items():
                console.prose(f"  {one.node}: {check}: {why}", "red")
            if one.bad and one.done:
                console.prose(f"  {one.node}: {one.done}")
    statuses = {one.status for one in found}
    raise typer.Exit(Exit.FAILED if "FAIL" in statuses else Exit.CANNOT_KNOW if "UNKNOWN" in statuses else Exit.GOOD)


def _said(one: health.NodeHealth) -> str:
    if one.bad:
        return ", ".join(one.bad)
    unknown = f"unknown: {', '.join(one.unknown)}" if one.unknown else "well"
    return one.trouble or unknown


def deep_check_command(
    stack: console.Stack,
    where: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NODE|GROUP]...", help="Nodes and groups. Default: all workers with accelerators."),
    ] = None,
    check: Annotated[
        list[deep_checks.DeepCheck] | None,
        typer.Option(
            "--check", metavar="CHECK", help=f"{', '.join(deep_checks.DeepCheck)}. Repeatable. Default: the first."
        ),
    ] = None,
    only_idle: Annotated[bool, typer.Option("--idle", help="Only nodes without a job.")] = False,
    at_most: Annotated[
        int | None, typer.Option("--at-most", metavar="N", min=1, help="Only N of the nodes, others on each day.")
    ] = None,
    yes: console.Yes = False,
    as_json: console.Json = False,
) -> None:
    """Start HyperPod's own deep health checks on nodes.

    They load the devices for an hour or more, and HyperPod reboots or replaces
    a node that fails. Shows the nodes' jobs and asks for confirmation. HyperPod
    takes one such request at a time. --idle and --at-most are for a timer.

    \b
      hyperpod node deep-check slurm-gpu workers-2
      hyperpod node deep-check eks-gpu workers --check InstanceConnectivity
      hyperpod node deep-check slurm-gpu --idle --at-most 2 --yes
    """
    chosen = target.load(stack)
    checks = list(dict.fromkeys(check or [deep_checks.DeepCheck.STRESS]))
    nodes = cluster_nodes.list_nodes(chosen)
    wanted = deep_checks.testable(chosen, nodes, where or [], checks)
    if only_idle:
        wanted = jobs_on_nodes.idle(chosen, nodes, wanted)
        if not wanted:
            nothing = {"cluster": "", "nodes": [], "checks": checks, "jobs": []}
            console.emit(nothing) if as_json else console.prose("No node is idle. Nothing was started.")
            return
    wanted = deep_checks.in_turn(wanted, at_most, date.today())
    plan = changes.plan(chosen, "deep-check", nodes, wanted)
    if old := [node.name for node in wanted if node.image not in ("", "UpToDate")]:
        plan.effects.append(f"the checks need the newest image, and {', '.join(old)} has none: update-software")
    jobs = "AWS does not say what becomes of it" if chosen.on_eks else "goes on; after 10 minutes its node is left out"
    show(replace(plan, jobs=[replace(job, survives=jobs) for job in plan.jobs]))
    console.confirm(f"Check {len(wanted)} nodes: {', '.join(checks)}?", yes=yes)
    arn = deep_checks.start(chosen, nodes, wanted, checks)
    if as_json:
        console.emit({"cluster": arn, "nodes": [node.name for node in wanted], "checks": checks, "jobs": plan.jobs})
    else:
        console.prose(f"HyperPod checks {len(wanted)} nodes. Follow it: hyperpod node list {stack} --watch", "green")
