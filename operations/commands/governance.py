"""`governance`: sets task governance up or removes it."""

from __future__ import annotations

from typing import Annotated

import typer

from .. import console, target
from ..kubernetes.governance import apply, remove


def governance_command(
    stack: console.Stack,
    take_away: Annotated[bool, typer.Option("--remove", help="Remove policy and quotas, before a destroy.")] = False,
    as_json: console.Json = False,
) -> None:
    """Set task governance up as configured.

    SageMaker's priorities, and a quota for each team: for stacks with hyperpod:charts.queues set to task-governance,
    after every deploy that changes teams or workers.

    \b
      python -m operations governance eks-gpu
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
