"""The verb ``rotate-munge``."""

from __future__ import annotations

from typing import Annotated

import typer

from stack.failures import Exit

from .. import console, target
from ..cluster import munge_key


def rotate_munge_command(
    stack: console.Stack,
    leave_out: Annotated[
        list[str] | None,
        typer.Option("--leave-out", help="A node that cannot be asked: it takes the key when it reboots."),
    ] = None,
    yes: console.Yes = False,
    as_json: console.Json = False,
) -> None:
    """Give a Slurm cluster another MUNGE key.

    Running jobs go on and queued ones stay. Slurm does not answer for some
    seconds: first every node is prepared, then all change at once. Nodes that
    are off, or come later, take the key when they boot. Cut off at any point,
    it can be run again. Exits with 1 if a node does not use the new key.

    \b
      hyperpod rotate-munge slurm-gpu
      hyperpod rotate-munge slurm-gpu --leave-out workers-3
    """
    loaded = target.load(stack)
    now, later = munge_key.chosen(loaded, leave_out or [])
    console.confirm(f"Stop Slurm's controller for some seconds, and change the key on {len(now)} nodes?", yes=yes)
    with console.progress().status("") as status:
        done = munge_key.rotate(loaded, now, later, status.update)
    if as_json:
        console.emit({**done.__dict__, "good": done.good})
    else:
        console.say(f"{len(done.nodes) - len(done.late)} of {len(done.nodes)} nodes use the new key, {done.digest}")
        for names, what in (
            (done.late, "the old key, so Slurm refuses it: hyperpod reboot it, or run this verb again"),
            (done.silent, "the new key, and does not answer Slurm: hyperpod diagnose"),
        ):
            for name in names:
                console.say(f"  {name} has {what}", "red")
        if done.later:
            console.note(f"Not running or left out: {', '.join(done.later)}. They take the key when they boot.", "")
    raise typer.Exit(Exit.GOOD if done.good else Exit.FAILED)
