"""The verb ``status``."""

from datetime import datetime

import typer

from .. import target
from ..deployment.status import ABSENT, Status
from ..deployment.status import status as ask
from ..terminal import console

_COLOURS = {"healthy": "green", "changing": "yellow", "broken": "red"}


def status_command(stack: console.Stack, as_json: console.Json = False) -> None:
    """Show a stack at a glance, and the next step.

    What is there, is it healthy, what it costs an hour, and what was done last
    from this folder. Asks SageMaker alone: `validate` looks into the nodes.
    Exits with 1 if the cluster or a node has failed.

    \b
      hyperpod status dev
      hyperpod status dev -o json
    """
    found = ask(target.load(stack))
    if as_json:
        console.emit(found)
    else:
        _show(found)
    raise typer.Exit(found.code)


def _show(found: Status) -> None:
    if found.cluster == ABSENT:
        console.prose(f"{found.stack}: no cluster in {found.region}", "bold")
    else:
        console.prose(f"{found.stack}: {found.health}, {found.cluster} in {found.region}", _COLOURS[found.health])
        if found.message:
            console.prose(f"  {found.message}", "red")
        width = max(len(group.name) for group in found.groups)
        for group in found.groups:
            there = ", ".join(f"{number} {status}" for status, number in group.nodes.items()) or "none yet"
            console.prose(f"  {group.name:{width}}  {there} of {group.wanted} x {group.instance_type}")
        console.prose(f"  cost   {found.cost}, as configured")
    if last := found.last:
        when = datetime.fromisoformat(last["time"]).astimezone()
        ended = "succeeded" if last["succeeded"] else "failed"
        console.say(f"  last   {last['command']} {ended}, {when:%Y-%m-%d %H:%M}")
        if cause := last.get("cause"):
            console.prose(f"         {cause['resource']}: {cause['text']}")
    for warning in found.warnings:
        console.prose(f"Warning: {warning}", "yellow")
    console.prose(f"Next: {found.next_step}")
