"""The verb ``node users``."""

from collections.abc import Sequence

import typer

from .. import target
from ..cluster import people
from ..failures import Exit
from ..terminal import console


def users_command(
    stack: console.Stack,
    as_json: console.Json = False,
) -> None:
    """Show which people have an account on which node.

    Compares every node with hyperpod:users or hyperpod:usersFile, which new
    nodes get when they boot, and the others by `hyperpod apply`. Exits with 1
    if a node is not as the configuration says, with 3 if one could not be
    asked.

    \b
      hyperpod node users slurm-gpu
    """
    chosen = target.load(stack)
    found = people.ask(chosen, people.running(chosen), apply=False)
    if as_json:
        console.emit([{**one.__dict__, "good": one.good} for one in found])
    else:
        _show(chosen.cluster_name, stack, found)
    known = [one for one in found if not one.trouble]
    bad = any(not one.good for one in known)
    raise typer.Exit(Exit.FAILED if bad else Exit.CANNOT_KNOW if len(known) < len(found) else Exit.GOOD)


def _show(cluster: str, stack: str, found: Sequence[people.NodePeople]) -> None:
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
    if any(not (one.trouble or one.good or one.warnings) for one in found):
        console.note(f"hyperpod apply {stack} --part people", "")
