"""The verb ``cost``."""

from __future__ import annotations

from typing import Annotated

import typer

from components.catalogue.prices import HOURS_PER_MONTH

from .. import console, target
from ..spending.costs import Bill, bill, live_rates


def cost_command(
    stack: console.Stack,
    other: Annotated[
        str, typer.Argument(metavar="[OTHER]", help="Another stack: show what it costs more or less, by part.")
    ] = "",
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
      hyperpod cost dev slurm-gpu
      hyperpod cost slurm-gpu --config hyperpod:size=large
      hyperpod cost slurm-gpu --live --json
    """
    chosen = target.load(stack, config)
    if other:
        _compare(bill(chosen.config), bill(target.load(other).config), stack, other, as_json)
        return
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
        console.prose(f"Warning: {found.warning}", "yellow")
    for line in (*found.notes, *found.sources):
        console.remark(line)


def _compare(one: Bill, two: Bill, stack: str, other: str, as_json: bool) -> None:
    """Show two stacks' costs by the tables, part by part, and the difference."""
    parts = {part: (one.parts.get(part, 0.0), two.parts.get(part, 0.0)) for part in {**one.parts, **two.parts}}
    more = two.hourly_usd - one.hourly_usd
    if as_json:
        both = {part: {stack: first, other: second} for part, (first, second) in parts.items()}
        console.emit({"parts": both, "hourly_usd": {stack: one.hourly_usd, other: two.hourly_usd}, "difference": more})
        return
    rows = sorted(parts.items(), key=lambda row: -abs(row[1][1] - row[1][0]))
    console.table(
        f"{other} costs ${abs(more):,.2f} an hour {'more' if more >= 0 else 'less'} than {stack}",
        ["part", (f"{stack} $/hour", "right"), (f"{other} $/hour", "right"), ("difference", "right")],
        [(part, f"{first:,.3f}", f"{second:,.3f}", f"{second - first:+,.3f}") for part, (first, second) in rows],
    )
