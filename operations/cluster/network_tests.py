"""Runs a test of the network: a command on the Slurm controller, or a job of ``jobs/eks``."""

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from ..failures import Failure, bad_input
from ..jobs import run as job_run
from ..jobs.choices import Choices
from ..jobs.render import render
from ..jobs.requests import JobError
from ..target import Target
from . import nodes as cluster_nodes
from . import sessions

Object = dict[str, Any]


def on_controller(target: Target, program: str, arguments: str, timeout: float, waits: float | None = None) -> Object:
    """The document that a command of /opt/hyperpod/bin prints with --json. Raises Failure where it prints none.

    ``timeout`` is of one test and ``waits`` of all that it runs, by default one, in seconds. Slurm may have to wait for
    idle nodes first.
    """
    command = f"sudo -n /opt/hyperpod/bin/{program} {arguments} --json"
    controller = cluster_nodes.controller(cluster_nodes.list_nodes(target))
    ran = sessions.run_remote(target, controller, f"{command} --timeout {timeout:.0f}", (waits or timeout) + 120)
    found = re.search(r"^\{$.*^\}$", ran.output, re.MULTILINE | re.DOTALL)
    if found is None:
        said = [line for line in ran.output.splitlines() if line.strip()]
        raise Failure(
            f"{program} ended with {ran.code}: {said[-1].strip() if said else 'no output'}",
            f"hyperpod node exec {target.stack} controller -- sinfo -R",
        )
    return dict(json.loads(found.group(0)))


def in_pods(
    target: Target,
    name: str,
    nodes: int,
    timeout: float,
    on_phase: job_run.OnPhase,
    on_pods: Callable[[Sequence[Object]], None] = lambda pods: None,
    collective: str = "all_reduce",
) -> tuple[bool, list[str]]:
    """Run a job to its end, then delete it. Returns whether it succeeded, and its output.

    ``on_phase`` is told what it waits for and each line of output, ``on_pods`` which pods it has. ``collective`` is
    what a bandwidth test measures. Raises Failure.
    """
    try:
        objects = render(name, target.config, Choices(nodes=nodes), deadline=timeout, collective=collective)
    except JobError as error:
        raise bad_input(str(error)) from None
    api = cluster_nodes.kubernetes(target)
    job_run.check(api, objects, target.config)
    try:
        job_run.submit(api, objects)
        return job_run.follow(api, objects, on_phase, on_phase, timeout, on_pods=on_pods)
    except job_run.TimedOut as error:
        again = f"hyperpod job run {target.stack} {name} --nodes {nodes} --keep"
        error.hint = f"it was deleted; {again} keeps it"
        raise
    finally:
        for one in reversed(objects):
            api.delete(one)
