"""The verb ``watch``."""

from dataclasses import asdict
from typing import Annotated

import typer

from .. import target
from ..deployment.watch import Watch, Watched
from ..engine.durations import clock
from ..failures.advice import about
from ..terminal import console
from ..terminal.command_line import printable


def watch_command(
    stack: console.Stack,
    timeout: Annotated[float, typer.Option("--timeout", min=0, help="Time limit in seconds.")] = 3600,
    as_json: console.Json = False,
) -> None:
    """Follow nodes that are still to come, until all run.

    Shows each change of a node, the cluster's events and the last line of the
    first nodes' scripts. Ends with 1 at the first lifecycle script that fails,
    with its log and the next step, and when the time is over. Missing capacity
    is waited for. Changes nothing: Ctrl-C stops only the watching.

    \b
      hyperpod watch dev
      hyperpod watch eks-gpu --timeout 7200
      hyperpod watch slurm-gpu --json    in CI, after deploy
    """
    chosen = target.load(stack)
    shown = console.progress()
    with shown.status(f"Watching {chosen.cluster_name} ...") as status:

        def beat(line: str) -> None:
            if shown.is_terminal:
                status.update(printable(line))
            else:
                console.note(line)

        done = Watch(chosen, lambda line: console.note(printable(line), ""), beat).run(timeout)
    if as_json:
        found = about(done.cause.text).code if done.cause else ""
        console.emit({**asdict(done), "code": found, "exit_code": int(done.code)})
    else:
        _show(done)
    raise typer.Exit(done.code)


def _show(done: Watched) -> None:
    took = clock(done.seconds)
    if done.complete:
        console.prose(f"{done.stack}: all {sum(wanted for _, wanted in done.nodes.values())} nodes run.", "bold green")
    elif done.cause is None:
        missing = ", ".join(f"{there} of {wanted} {group}" for group, (there, wanted) in done.nodes.items())
        console.prose(f"{done.stack} is not complete after {took}: {missing}.", "bold yellow")
    else:
        console.prose(f"{done.stack}: nodes failed after {took}.", "bold red")
        console.prose(f"  {done.cause}")
    for log in done.node_logs:
        console.say(f"The end of {log.stream}:", "bold")
        for line in log.lines:
            console.say(f"  {line}")
    console.prose(f"Next: {done.next_step}")
    if done.cause:
        console.prose(about(done.cause.text).more, "dim")
