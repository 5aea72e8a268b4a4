"""The verb ``accounts``."""

from __future__ import annotations

from .. import console, target
from ..cluster import slurm_accounts


def accounts_command(stack: console.Stack, as_json: console.Json = False) -> None:
    """Apply the configured accounts and limits to Slurm.

    Sets what hyperpod:slurm names and differs. What people have added or the
    configuration no longer names is kept; the latter is listed, with the
    command that removes it.

    \b
      hyperpod accounts slurm-gpu
    """
    chosen = target.load(stack)
    with console.progress().status(f"Asking the controller of {chosen.cluster_name} ..."):
        done = slurm_accounts.apply(chosen)
    if as_json:
        console.emit(done)
        return
    for line in done:
        console.say(line, "yellow" if line.startswith("kept:") else "")
