"""The verb ``init``."""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Annotated, cast

import typer

from components.catalogue.accelerators import ACCELERATORS, AcceleratorName, find, nearest
from components.catalogue.regions import REGIONS
from components.config import ConfigError
from components.estimates.cost import estimate
from components.estimates.quotas import needed

from .. import files
from ..aws import Aws
from ..deployment import new_stack
from ..deployment.new_stack import Orchestrator, Wanted
from ..failures import Failure, bad_input
from ..spending import capacity, types
from ..target import ROOT
from ..terminal import console, questions

_SCHEDULERS: Mapping[str, str] = {
    "slurm": "slurm   sbatch and srun, on nodes with a shared home",
    "eks": "eks     Kubernetes: pods, operators, queues",
}
# Picked for a type that the catalogue does not have yet; no option has such a word.
_OTHER = "?"
# What people have said, by the key that it comes to.
_OPTIONS = {
    "aws:region": "--region",
    "hyperpod:accelerator": "--accelerator",
    "hyperpod:availabilityZoneId": "--zone",
    "hyperpod:clusterName": "NAME",
    "hyperpod:orchestrator": "--orchestrator",
    "hyperpod:workers[0].count": "--nodes",
    "hyperpod:workers[0].instanceType": "--instance-type",
}


def init_command(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The new stack's name: lower-case letters, digits and hyphens.")
    ] = None,
    orchestrator: Annotated[
        Orchestrator | None, typer.Option("--orchestrator", help="What schedules jobs. [default: slurm]")
    ] = None,
    accelerator: Annotated[
        AcceleratorName | None, typer.Option("--accelerator", help="What the workers have. [default: by the type]")
    ] = None,
    region: Annotated[str | None, typer.Option("--region", help="AWS region. [default: us-west-2]")] = None,
    instance_type: Annotated[
        str | None,
        typer.Option("--instance-type", metavar="TYPE", help="Type of the workers, as ml.p5.48xlarge or p5.48xlarge."),
    ] = None,
    zone: Annotated[
        str | None, typer.Option("--zone", metavar="ID", help="Zone id of the workers, as usw2-az2.")
    ] = None,
    nodes: Annotated[
        int | None, typer.Option("--nodes", "-N", min=1, metavar="N", help="Workers. [default: 2]")
    ] = None,
    budget: Annotated[
        float | None, typer.Option("--budget", metavar="USD", help="Instead of --nodes: as many as fit, $ an hour.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the file instead of writing it.")] = False,
    as_json: console.Json = False,
) -> None:
    """Write a new stack's file.

    Asks for what no option says; without a terminal, takes the defaults. Ctrl-C
    or Ctrl-D at a question ends it before anything is written. Says what the
    stack costs and which quotas it needs, and with AWS credentials which zones
    offer the instance type. Creates nothing in AWS.

    \b
      hyperpod init research
      hyperpod init research --instance-type ml.p5en.48xlarge --nodes 4
      hyperpod init trial --accelerator trainium --budget 60 --dry-run
    """
    chosen = name or _ask("Name", "", lambda answer: _wrong_name(answer) or _taken(answer))
    if wrong := _wrong_name(chosen):
        raise bad_input(wrong, "lower-case letters, digits and hyphens")
    path = ROOT / f"Pulumi.{chosen}.yaml"
    if wrong := _taken(chosen):
        raise bad_input(wrong, "another name, or edit that file")
    if not (dry_run or os.access(ROOT, os.W_OK)):
        raise Failure(f"{path}: the folder cannot be written to", "--dry-run prints the file", name="file")
    if nodes and budget:
        raise bad_input("--nodes and --budget exclude each other", "leave one out")
    runs = orchestrator or cast(Orchestrator, _pick("Scheduler", _SCHEDULERS, "slurm"))
    where = region or _pick("Region", _regions(), "us-west-2")
    possible = new_stack.zones(where, runs)
    default = ACCELERATORS[accelerator or "gpu"].default_worker_type
    kind = instance_type or _pick("Instance type, $ an hour", _types(accelerator), default)
    kind = new_stack.type_name(_ask("Name of the type", default, _wrong_type) if kind == _OTHER else kind)
    row = find(kind)
    has = accelerator or (row.accelerator if row else None) or "gpu"
    offered, unknown = capacity.zones_of(Aws(where), kind)
    best = next((one for one in offered if one in possible), possible[0])
    there = [one for one in possible if one in offered] or possible
    at = zone or _pick("Zone", {one: one for one in there}, best)
    wanted = Wanted(
        name=chosen, orchestrator=runs, accelerator=has, region=where, zone=at, instance_type=kind, nodes=nodes or 2
    )
    try:
        if budget:
            wanted = replace(wanted, nodes=new_stack.most_nodes(wanted, budget))
        elif nodes is None:
            wanted = replace(wanted, nodes=int(_ask("Workers", "2", _wrong_number)))
        stack = new_stack.planned(wanted)
    except ConfigError as refused:
        raise _in_options(refused) from None
    text = new_stack.text(wanted)
    if not dry_run:
        files.write(path, text)
    price = estimate(stack.config)
    warnings = [*price.warnings, *stack.config.notes]
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
                **({"text": text} if dry_run else {}),
            }
        )
        return
    if dry_run:
        console.say(text.rstrip())
        console.note(f"Not written: {path.name}, {wanted.nodes} x {kind} in {where} ({at}), {price.words}")
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
        f"Next: hyperpod rehearse {chosen}    # without an AWS account\n"
        f"      hyperpod quotas {chosen}      # which of these to request\n"
        f"      hyperpod deploy {chosen}"
    )


def _ask(what: str, default: str, wrong: Callable[[str], str]) -> str:
    """An answer that is not ``wrong``, or the default where there is nobody to ask. Raises Failure without either."""
    if questions.at_terminal():
        return questions.ask(what, default, wrong)
    if not default:
        raise bad_input(f"{what.upper()} is missing, and there is no terminal to ask at", "hyperpod init --help")
    return default


def _pick(what: str, titles: Mapping[str, str], default: str) -> str:
    """The one that is picked, or the default where there is nobody to ask."""
    return questions.pick(what, titles, default) if questions.at_terminal() else default


def _regions() -> dict[str, str]:
    return {name: name for name, one in sorted(REGIONS.items()) if one.hyperpod}


def _types(accelerator: AcceleratorName | None) -> dict[str, str]:
    """The types with accelerators, each with price, EFA, accelerators and their memory."""
    found = [row for row in types.listed(types.Wanted(has=accelerator)) if row.accelerator]
    rows = [
        (
            row.name,
            "$?" if row.hourly_usd is None else f"{'' if row.price_basis == 'hyperpod' else '~'}${row.hourly_usd:.2f}",
            "no EFA" if row.efa == "no" else f"EFA {types.efa(row)}",
            f"{types.accelerators(row)}, {row.accelerator_memory_gib} GiB",
        )
        for row in found
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    titles = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
    return {**{row.name: title for row, title in zip(found, titles, strict=True)}, _OTHER: "another type"}


def _wrong_name(name: str) -> str:
    return "" if re.fullmatch(r"[a-z0-9](-?[a-z0-9]){0,99}", name) else f'"{name}" cannot be a stack\'s name'


def _taken(name: str) -> str:
    return f"Pulumi.{name}.yaml exists already" if (ROOT / f"Pulumi.{name}.yaml").exists() else ""


def _wrong_number(answer: str) -> str:
    return "" if answer.isdecimal() and int(answer) else "a whole number, 1 or more"


def _wrong_type(answer: str) -> str:
    name = new_stack.type_name(answer)
    if find(name):
        return ""
    near = nearest(name)
    return f'"{answer}" is not an instance type' + (f"; did you mean {near[0]}?" if near else "; one like p5.48xlarge")


def _in_options(refused: ConfigError) -> Failure:
    """What is wrong with a stack that does not exist yet, by the options that would have made it."""
    text = "\n".join(str(replace(one, where="")) for one in refused.problems)
    for key, option in _OPTIONS.items():
        text = text.replace(key, option)
    return bad_input(text, "hyperpod init --help")
