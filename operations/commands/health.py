"""The verb ``health``."""

from __future__ import annotations

from typing import Annotated

import typer
from botocore.exceptions import BotoCoreError, ClientError

from stack.failures import Exit, Failure

from .. import console, target
from ..cluster import health
from ..cluster import nodes as cluster_nodes


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
      hyperpod health slurm-gpu
      hyperpod health eks-gpu --now --json
    """
    chosen = target.load(stack)
    nodes = cluster_nodes.list_nodes(chosen)
    try:
        nodes = cluster_nodes.with_states(chosen, nodes)
    except (Failure, ClientError, BotoCoreError) as error:
        console.note(f"the scheduler's states are unknown: {error}", "yellow")
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
                    one.checks,
                    health.ago(one.age_seconds),
                    _said(one),
                )
                for one in found
            ],
        )
        for one in found:
            for check, why in one.bad.items():
                console.say(f"  {one.node}: {check}: {why}", "red")
            if one.bad and one.done:
                console.say(f"  {one.node}: {one.done}")
    statuses = {one.status for one in found}
    raise typer.Exit(Exit.FAILED if "FAIL" in statuses else Exit.CANNOT_KNOW if "UNKNOWN" in statuses else Exit.GOOD)


def _said(one: health.NodeHealth) -> str:
    if one.bad:
        return ", ".join(one.bad)
    unknown = f"unknown: {', '.join(one.unknown)}" if one.unknown else "well"
    return one.trouble or unknown
