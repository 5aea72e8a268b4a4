"""The verb ``capacity``."""

from datetime import datetime
from typing import Annotated

import typer

from .. import target
from ..failures import Exit, bad_input
from ..spending import capacity
from ..spending.capacity import PLAN_DAYS, Offer
from ..terminal import console


def capacity_command(
    stack: console.Stack,
    days: Annotated[
        int, typer.Option("--days", metavar="N", min=PLAN_DAYS[0], max=PLAN_DAYS[1], help="Length of a training plan.")
    ] = 7,
    after: Annotated[
        datetime | None,
        typer.Option("--after", metavar="DATE", formats=["%Y-%m-%d"], help="Only plans that start then or later."),
    ] = None,
    as_json: console.Json = False,
) -> None:
    """Show where and how the nodes of each worker type can be had.

    On demand and spot: the zones that have the type, and what the quota leaves.
    Training plans, and extensions of those that the stack has: what AWS offers
    now, with start, length and price. AWS does not publish how many instances
    are free on demand: a deployment may still wait for capacity. Exits with 1
    if no offer fits the stack, with 3 if that is unknown.

    \b
      hyperpod capacity slurm-gpu
      hyperpod capacity slurm-gpu --days 14 --after 2027-01-10
      hyperpod capacity slurm-gpu --json
    """
    chosen = target.load(stack)
    if not chosen.config.training_groups:
        raise bad_input(f"{stack} has no worker group with accelerators", "hyperpod:workers names groups and types")
    found = capacity.offers(chosen, days, after)
    if as_json:
        console.emit(found)
    else:
        _show(chosen.config.zone_id, found)
    types = {one.instance_type for one in found}
    fit = {one.instance_type for one in found if one.fits}
    unknown = {one.instance_type for one in found if one.fits is None}
    raise typer.Exit(Exit.GOOD if fit == types else Exit.CANNOT_KNOW if types <= fit | unknown else Exit.FAILED)


def _show(zone: str, found: list[Offer]) -> None:
    console.table(
        f"Nodes for a stack in {zone}",
        ["", "type", "purchase", "zones", ("nodes", "right"), ("wanted", "right"), "from", ("days", "right"), "price"],
        [
            (
                {True: "fits", False: "no", None: "?"}[one.fits],
                one.instance_type,
                one.purchase,
                ", ".join(one.zones) or "?",
                "?" if one.nodes is None else str(one.nodes),
                str(one.wanted),
                one.starts[:10] or "now",
                "-" if one.hours is None else f"{one.hours / 24:g}",
                _price(one),
            )
            for one in found
        ],
        ["price", "nodes", "from", "days", "zones", "wanted"],
    )
    for one in found:
        if one.why:
            console.prose(f"  {one.instance_type}, {one.purchase}: {one.why}", "yellow")
    for one in found:
        if one.next:
            console.say(f"{one.purchase}, {one.instance_type}{f', from {one.starts[:10]}' if one.starts else ''}:")
            console.say(f"  {one.next}")
    if any(one.purchase == "training plan" and one.next for one in found):
        console.prose("A plan is paid in advance. Give its ARN to the group in hyperpod:workers, as trainingPlanArn.")


def _price(one: Offer) -> str:
    if one.upfront_usd is not None:
        return f"${one.upfront_usd:,.0f} in advance"
    return "?" if one.hourly_usd is None else f"${one.hourly_usd:,.2f} an hour"
