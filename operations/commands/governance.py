"""The verb ``governance``."""

from __future__ import annotations

from typing import Annotated

import typer

from .. import console, target
from ..kubernetes.governance import apply, remove


def governance_command(
    stack: console.Stack,
    take_away: Annotated[
        bool, typer.Option("--remove", help="Remove the policy, before a destroy by Pulumi alone.")
    ] = False,
    as_json: console.Json = False,
) -> None:
    """Apply task governance as configured.

    Creates or updates the cluster's policy: SageMaker's job priorities, and that teams share by weight what is idle.
    Run it once after the first deploy with hyperpod:charts.queues set to task-governance. The teams' quotas are
    resources of the stack.

    \b
      hyperpod governance eks-gpu
    """
    chosen = target.load(stack)
    changes = remove(chosen) if take_away else apply(chosen)
    if as_json:
        console.emit(changes)
        return
    for change in changes:
        console.say(f"{change.what}: {change.done}")
    if not changes:
        console.say("there is nothing to remove")
