"""The verb ``init``."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, cast, get_args

import typer

from components.catalogue.accelerators import ACCELERATORS, CATALOGUE, AcceleratorName
from components.config.type_checks import type_notes
from components.estimates.cost import estimate
from components.estimates.quotas import needed
from stack.failures import bad_input

from .. import console
from ..aws import Aws
from ..deployment import new_stack
from ..deployment.new_stack import Orchestrator, Wanted
from ..target import ROOT


def init_command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The new stack's name: letters, digits and hyphens.")],
    orchestrator: Annotated[
        Orchestrator | None, typer.Option("--orchestrator", help="What schedules jobs. [default: slurm]")
    ] = None,
    accelerator: Annotated[
        AcceleratorName | None, typer.Option("--accelerator", help="What the workers have. [default: gpu]")
    ] = None,
    region: Annotated[str | None, typer.Option("--region", help="AWS region. [default: us-west-2]")] = None,
    instance_type: Annotated[
        str | None, typer.Option("--instance-type", metavar="TYPE", help="Of the workers, as ml.p5.48xlarge.")
    ] = None,
    zone: Annotated[
        str | None, typer.Option("--zone", metavar="ID", help="Zone id of the workers, as usw2-az2.")
    ] = None,
    nodes: Annotated[int | None, typer.Option("--nodes", min=1, metavar="N", help="Workers. [default: 2]")] = None,
    budget: Annotated[
        float | None, typer.Option("--budget", metavar="USD", help="Instead of --nodes: as many as fit, $ an hour.")
    ] = None,
    as_json: console.Json = False,
) -> None:
    """Write a new stack's file.

    Asks for what no option says; without a terminal, takes the defaults. Says
    what the stack costs and which quotas it needs, and with AWS credentials
    which zones offer the instance type. Creates nothing in AWS.

    \b
      hyperpod init research
      hyperpod init research --instance-type ml.p5en.48xlarge --nodes 4
      hyperpod init trial --accelerator trainium --budget 60
    """
    path = ROOT / f"Pulumi.{name}.yaml"
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9-]{0,99}", name):
        raise bad_input(f'"{name}" cannot be a stack\'s name', "letters, digits and hyphens")
    if path.exists():
        raise bad_input(f"{path.name} exists already", "another name, or edit that file")
    if nodes and budget:
        raise bad_input("--nodes and --budget exclude each other", "leave one out")
    runs = orchestrator or cast(Orchestrator, _ask("Scheduler", get_args(Orchestrator), "slurm"))
    has = accelerator or cast(AcceleratorName, _ask("Accelerator", get_args(AcceleratorName), "gpu"))
    where = region or _ask("Region", (), "us-west-2")
    possible = new_stack.zones(where, runs)
    types = sorted(one.name for one in CATALOGUE.values() if one.accelerator == has and one.hyperpod)
    kind = instance_type or _ask("Instance type", types, ACCELERATORS[has].default_worker_type)
    offered, unknown = new_stack.offering(Aws(where), kind)
    best = next((one for one in offered if one in possible), possible[0])
    at = zone or _ask("Zone", [one for one in possible if one in offered] or possible, best)
    wanted = Wanted(
        name=name, orchestrator=runs, accelerator=has, region=where, zone=at, instance_type=kind, nodes=nodes or 2
    )
    if budget:
        wanted = replace(wanted, nodes=new_stack.most_nodes(wanted, budget))
    elif nodes is None:
        wanted = replace(wanted, nodes=int(_ask("Workers", (), "2")))
    stack = new_stack.planned(wanted)
    path.write_text(new_stack.text(wanted))
    price = estimate(stack.config)
    warnings = [*price.warnings, *type_notes(stack.config)]
    if as_json:
        console.emit(
            {
                "file": path.name,
                "hourly_usd": price.hourly_usd,
                "cost": price.words,
                "nodes": wanted.nodes,
                "zone": at,
                "offered_in": offered,
                "quotas": [one.as_json() for one in needed(stack.config)],
                "warnings": warnings,
            }
        )
        return
    by_list = " by list prices" if price.whole.known else ""
    console.prose(f"{path.name}: {wanted.nodes} x {kind} in {where} ({at}), {price.words}{by_list}", "bold")
    for line in warnings:
        console.prose(f"Warning: {line}", "yellow")
    where_else = f"EC2 offers {kind} in {', '.join(offered)}" if offered else f"no zone of {where} offers {kind}"
    console.prose(f"  {where_else if not unknown else f'which zones offer {kind} could not be asked: {unknown}'}")
    console.table(
        "Quotas",
        ["service", "quota", ("needed", "right")],
        [(one.service, one.name, one.needed) for one in needed(stack.config)],
    )
    console.say(
        f"Next: hyperpod rehearse {name}    # without an AWS account\n"
        f"      hyperpod quotas {name}      # which of these to request\n"
        f"      hyperpod deploy {name}"
    )


def _ask(what: str, choices: Sequence[str], default: str) -> str:
    """An answer, or the default where there is nobody to ask."""
    if not sys.stdin.isatty():
        return default
    if 0 < len(choices) <= 4:
        what = f"{what} ({', '.join(choices)})"
    while (answer := typer.prompt(what, default=default, err=True)) not in (choices or (answer,)):
        console.note(f"one of {', '.join(choices)}", "")
    return str(answer)
