"""The verb ``users``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from .. import target
from ..cluster import nodes as cluster_nodes
from ..cluster import people
from ..failures import Exit
from ..terminal import console


def users_command(
    stack: console.Stack,
    apply: Annotated[
        bool, typer.Option("--apply", help="Apply the deployed list to every running node, instead of only looking.")
    ] = False,
    yes: console.Yes = False,
    as_json: console.Json = False,
) -> None:
    """Show which people have an account on which node.

    People come and go in hyperpod:users or hyperpod:usersFile. Deploy the
    change first: nodes take the list from the lifecycle bucket. New nodes get
    it when they boot, the others by --apply. It asks before it locks anybody
    out. Exits with 1 if a node is not as the configuration says, with 3 if one
    could not be asked.

    \b
      hyperpod users slurm-gpu
      hyperpod users slurm-gpu --apply
    """
    chosen = target.load(stack)
    people.require_slurm(chosen)
    nodes = [node for node in cluster_nodes.list_nodes(chosen) if node.status == "Running"]
    found = people.ask(chosen, nodes, apply=False)
    if apply:
        leaving = sorted({who for one in found for who in one.extra})
        if leaving:
            console.confirm(f"Lock the accounts of {', '.join(leaving)}, and end their jobs and processes?", yes=yes)
        found = people.ask(chosen, nodes, apply=True)
    if as_json:
        console.emit([{**one.__dict__, "good": one.good} for one in found])
    else:
        _show(chosen.cluster_name, stack, found, applied=apply)
    known = [one for one in found if not one.trouble]
    bad = any(not one.good for one in known)
    raise typer.Exit(Exit.FAILED if bad else Exit.CANNOT_KNOW if len(known) < len(found) else Exit.GOOD)


def _show(cluster: str, stack: str, found: Sequence[people.NodePeople], *, applied: bool) -> None:
    console.table(
        f"{cluster}: {len(found)} nodes",
        ["", "node", "people", "missing", "to be locked"],
        [
            (
                "UNKNOWN" if one.trouble else "PASS" if one.good else "FAIL",
                one.node,
                one.people,
                ", ".join(one.missing) or "-",
                ", ".join(one.extra) or "-",
            )
            for one in found
        ],
    )
    for one in found:
        for line in (*one.warnings, *filter(None, [one.trouble])):
            console.prose(f"  {one.node}: {line}", "red")
    behind = [one for one in found if not (one.trouble or one.good or one.warnings)]
    if behind and applied:
        console.note(f"The bucket has another list than Pulumi.{stack}.yaml: deploy {stack}, and apply it again.", "")
    elif behind:
        console.note(f"hyperpod users {stack} --apply", "")
