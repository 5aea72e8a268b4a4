"""The verb ``errors``."""

from datetime import timedelta
from typing import Annotated

import typer

from .. import target
from ..deployment import errors
from ..failures import Exit
from ..failures.advice import about
from ..terminal import console

# AWS CloudTrail API Reference, LookupEvents: 90 days.
_MOST_HOURS = 2160


def _hours(value: float) -> float:
    """Check the range; click's own check accepts nan."""
    if not 0 < value <= _MOST_HOURS:
        raise typer.BadParameter(f"{value:g} is not more than 0 and at most {_MOST_HOURS} (90 days)")
    return value


def errors_command(
    stack: console.Stack,
    hours: Annotated[
        float,
        typer.Option("--hours", callback=_hours, help="Hours to look back, at most 2160 (CloudTrail keeps 90 days)."),
    ] = 24,
    as_json: console.Json = False,
) -> None:
    """List what went wrong with a stack, newest first.

    Sources: Pulumi's last commands, the cluster and its nodes, the cluster's
    events, the nodes' lifecycle logs, and CloudTrail (about 15 minutes late).
    Exits with 1 if something was found.

    \b
      hyperpod errors dev
      hyperpod errors slurm-gpu --hours 72 --json
    """
    chosen = target.load(stack)
    with console.progress().status("") as status:
        problems = errors.collect(chosen, timedelta(hours=hours), lambda source: status.update(f"Asking {source} ..."))
    if as_json:
        console.emit(problems)
    else:
        for one in problems.found:
            console.prose(f"{one.time:%Y-%m-%d %H:%M:%S}  {one.source}: {one.what}", "bold")
            console.prose(f"  {one.message}")
            console.prose(f"  Next: {one.next_step}", "dim")
            console.prose(f"  {about(one.message).more}", "dim")
        for why, sources in problems.unasked().items():
            console.prose(f"could not query {', '.join(sources)}: {why}", "yellow")
        if not problems.found:
            if problems.unknown:
                console.prose(f"Nothing was found for {stack}, but some sources could not be queried.", "yellow")
            else:
                console.prose(f"Nothing went wrong with {stack} in the last {hours:g} hours.", "green")
        if problems.next_step:
            console.prose(f"Next: {problems.next_step}")
    found = Exit.FAILED if problems.found else Exit.CANNOT_KNOW if problems.unknown else Exit.GOOD
    raise typer.Exit(found)
