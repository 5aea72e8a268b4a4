"""The verb ``cost``."""

from __future__ import annotations

from typing import Annotated

import typer

from components.catalogue.prices import HOURS_PER_MONTH

from .. import console, target
from ..spending.costs import bill, live_rates


def cost_command(
    stack: console.Stack,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", "-c", metavar="KEY=VALUE", help="Override a configuration value. Repeatable."),
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Use AWS's current prices in the stack's region. Needs credentials.")
    ] = False,
    as_json: console.Json = False,
) -> None:
    """Show what a stack costs, by part.

    Without --live, the prices come from this project's tables and AWS is not called.

    \b
      hyperpod cost dev
      hyperpod cost slurm-gpu --config hyperpod:size=large
      hyperpod cost slurm-gpu --live --json
    """
    chosen = target.load(stack, config)
    found = bill(chosen.config, live_rates(chosen.config, chosen.aws) if live else None)
    if as_json:
        console.emit(found)
        return
    share = found.accelerator_hourly_usd / found.hourly_usd
    console.table(
        f"{stack}: ${found.hourly_usd:,.2f} an hour, ${found.monthly_usd:,.0f} a month, {share:.0%} of it accelerators",
        ["part", ("$/hour", "right"), ("$/month", "right")],
        [
            (part, f"{hourly:,.3f}", f"{hourly * HOURS_PER_MONTH:,.0f}")
            for part, hourly in sorted(found.parts.items(), key=lambda row: -row[1])
        ],
    )
    if found.warning:
        console.say(f"Warning: {found.warning}", "yellow")
    for line in (*found.notes, *found.sources):
        console.say(f"  {line}", "dim")
