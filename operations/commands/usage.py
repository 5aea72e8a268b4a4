"""The verb ``usage``."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from .. import target
from ..spending import usage
from ..terminal import console
from ..terminal.tables import Column
from ..workspaces import answers

_SUMS: tuple[Column, ...] = (("hours", "right"), ("$", "right"))


def usage_command(
    stack: console.Stack,
    since: Annotated[
        str | None,
        typer.Option(
            "--since", metavar="TIME", help="From when, by the controller's clock, on EKS in UTC. Default: this month."
        ),
    ] = None,
    picture: Annotated[
        Path | None, typer.Option("--picture", metavar="FILE", help="File for a plot (png, svg, pdf).")
    ] = None,
    as_json: console.Json = False,
) -> None:
    """Show who used how many accelerator hours, and their cost.

    At the list prices of the nodes. From Slurm's accounting, by account and
    user, for stacks with slurm.accounting (docs/slurm-teams.md). On EKS from
    the metrics, by team and instance type, for stacks with
    observability.prometheus (docs/kubernetes-cluster.md).

    \b
      hyperpod usage slurm-gpu
      hyperpod usage eks-gpu --since 2026-11-01
      hyperpod usage slurm-gpu --since 2026-11-01 --picture november.png
      hyperpod usage slurm-gpu --json
    """
    chosen = target.load(stack)
    begin = usage.start(since, datetime.now(UTC) if chosen.on_eks else datetime.now())
    if not chosen.on_eks and chosen.config.settings.slurm.accounting is None:
        console.note(
            f"{stack} has no hyperpod:slurm.accounting: unless its slurm.conf names another, Slurm keeps no record of "
            "jobs (docs/slurm-teams.md, Accounting).",
            "yellow",
        )
    source = "metrics" if chosen.on_eks else "controller"
    with console.progress().status(f"Asking the {source} of {chosen.cluster_name} ..."):
        if chosen.on_eks:
            asked = usage.questions(chosen, begin, datetime.now(UTC))
            found = usage.read_metrics(chosen.config, answers(chosen, asked), begin)
        else:
            found = usage.ask(chosen, begin)
    if picture:
        usage.draw(found, picture)
        found = replace(found, picture=str(picture))
    if as_json:
        console.emit({**found.__dict__, "uses": [use.__dict__ for use in found.uses], "usd": found.usd})
        return
    console.table(
        f"{found.cluster} since {found.since}: {found.gpu_hours:,.1f} accelerator hours, {found.dollars}",
        [*(("team", "type") if chosen.on_eks else ("account", "user", ("jobs", "right"))), *_SUMS],
        [
            (
                use.account,
                *((use.instance_type,) if chosen.on_eks else (use.user, str(use.jobs))),
                f"{use.gpu_hours:,.1f}",
                "unknown" if use.usd is None else f"{use.usd:,.2f}",
            )
            for use in found.uses
        ],
    )
    for line in found.notes:
        console.remark(line)
    if found.picture:
        console.say(f"  plot: {found.picture}", "dim")
