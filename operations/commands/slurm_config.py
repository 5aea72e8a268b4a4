"""The verb ``slurm-config``."""

from __future__ import annotations

from .. import console, target
from ..cluster import slurm_config


def slurm_config_command(stack: console.Stack, as_json: console.Json = False) -> None:
    """Bring the stack's lines of slurm.conf to Slurm.

    They are the files of the folder that hyperpod:slurm.extraConf names.
    Deploy a change first: the controller takes them from the lifecycle
    bucket. It starts a second slurmctld with them, apart from the running
    one; where that one does not start, nothing is changed, and the line is
    named.

    \b
      hyperpod slurm-config slurm-gpu
    """
    chosen = target.load(stack)
    with console.progress().status(f"Asking the controller of {chosen.cluster_name} ..."):
        done = slurm_config.apply(chosen)
    if as_json:
        console.emit(done.__dict__)
        return
    files = ", ".join(done.files) or "no file of its own"
    console.say(f"{done.node} {'now uses' if done.changed else 'has used'} {files}{'' if done.changed else ' already'}")
