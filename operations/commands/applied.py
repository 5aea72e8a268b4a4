"""The verbs ``accounts``, ``slurm-config`` and ``governance``: what only they bring to a deployed cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from .. import target
from ..cluster import slurm_accounts, slurm_config
from ..kubernetes import governance
from ..terminal import console


def accounts_command(stack: console.Stack, as_json: console.Json = False) -> None:
    """Apply the configured accounts and limits to Slurm.

    Sets what hyperpod:slurm names and differs. What people have added or the
    configuration no longer names is kept; the latter is listed, with the
    command that removes it.

    \b
      hyperpod accounts slurm-gpu
    """
    chosen = target.load(stack)
    with console.progress().status(f"Asking the controller of {chosen.cluster_name} ..."):
        done = slurm_accounts.apply(chosen)
    if as_json:
        console.emit(done)
        return
    for line in done:
        console.say(line, "yellow" if line.startswith("kept:") else "")


def slurm_config_command(stack: console.Stack, as_json: console.Json = False) -> None:
    """Bring the stack's lines of slurm.conf to Slurm.

    They are the files of the folder that hyperpod:slurm.extraConf names.
    Deploy a change first: the controller takes them from the lifecycle
    bucket. It starts a second slurmctld with them, apart from the running
    one; where that one does not start, nothing is changed, and the line is
    named.

    \b
      hyperpod slurm-config slurm-gpu
    """
    chosen = target.load(stack)
    with console.progress().status(f"Asking the controller of {chosen.cluster_name} ..."):
        done = slurm_config.apply(chosen)
    if as_json:
        console.emit(done.__dict__)
        return
    files = ", ".join(done.files) or "no file of its own"
    console.say(f"{done.node} {'now uses' if done.changed else 'has used'} {files}{'' if done.changed else ' already'}")


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
    changes = governance.remove(chosen) if take_away else governance.apply(chosen)
    if as_json:
        console.emit(changes)
        return
    for change in changes:
        console.say(f"{change.what}: {change.done}")
    if not changes:
        console.say("there is nothing to remove")
