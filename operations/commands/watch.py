"""The verb ``watch``."""

from __future__ import annotations

from typing import Annotated

import typer

from .. import console, target
from ..deployment.arrivals import Arrivals, follow


def watch_command(
    stack: console.Stack,
    timeout: Annotated[float, typer.Option("--timeout", help="Time limit in seconds.")] = 10_800,
    as_json: console.Json = False,
) -> None:
    """Wait for the nodes that a cluster is up without.

    A line for each node whose state changes. Ends with 0 when every node runs,
    and with 1 at the first lifecycle script that fails, with its step and log
    line: HyperPod makes such nodes again, at their price. After three hours,
    when HyperPod itself gives up on `minCount`, or --timeout it ends with 1.

    \b
      hyperpod watch slurm-gpu
      hyperpod watch slurm-gpu --timeout 1800 --json
    """
    with console.progress().status("asking for the nodes") as line:

        def tick(state: Arrivals) -> None:
            line.update(f"{state.seconds // 60}:{state.seconds % 60:02} {state}")

        found = follow(target.load(stack), console.note, tick, timeout)
    if as_json:
        console.emit(found)
    else:
        console.say(f"{found}: all of them are there.")
