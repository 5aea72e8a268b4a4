"""``job list``, ``job logs`` and ``job cancel``: what becomes of jobs that are submitted."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from components.config import Config
from stack.failures import Failure, bad_input
from stack.jobs import run as job_run
from stack.jobs.render import JobError, render
from stack.jobs.specs import JOBS

from .. import console, target
from ..kubernetes import kubeconfig

Name = Annotated[str, typer.Argument(metavar="JOB", help=f"One of {', '.join(JOBS)}.")]
Namespace = Annotated[str | None, typer.Option("--namespace", "-n", help="A team's namespace (default: the first's).")]
Kubeconfig = Annotated[
    Path | None, typer.Option("--kubeconfig", help="Use this kubeconfig instead of asking EKS.", dir_okay=False)
]


def api_of(chosen: target.Target, file: Path | None) -> job_run.Api:
    """The stack's Kubernetes API. Raises Failure where it cannot be reached."""
    from stack.jobs.kubernetes_api import KubernetesApi  # importing its client takes half of the command's time

    return KubernetesApi.of(file or kubeconfig.render(kubeconfig.describe(chosen)))


def rendered(name: str, config: Config, **choices: Any) -> list[dict[str, Any]]:
    """A job's objects. Raises Failure where this stack cannot run it so."""
    try:
        return render(name, config, **choices)
    except JobError as error:
        raise bad_input(str(error)) from None


def list_command(stack: console.Stack, kubeconfig_file: Kubeconfig = None, as_json: console.Json = False) -> None:
    """List the jobs that are there, in every team's namespace.

    \b
      hyperpod job list eks-gpu
    """
    chosen = target.load(stack)
    objects = [(name, _objects(name, chosen.config, team)) for name in JOBS for team in _namespaces(chosen.config)]
    api = api_of(chosen, kubeconfig_file)
    rows = [
        {"job": name, "namespace": document[-1]["metadata"]["namespace"], "state": job_run.state(api, document[-1])}
        for name, document in objects
        if document
    ]
    found = [row for row in rows if row["state"]]
    if as_json:
        console.emit(found)
    elif found:
        console.table("", ["job", "namespace", "state"], [tuple(row.values()) for row in found])
    else:
        console.note(f"no job is there; to run one: hyperpod job run {stack} JOB")


def logs_command(
    stack: console.Stack,
    name: Name,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job ends, or Ctrl-C.")] = False,
    namespace: Namespace = None,
    kubeconfig_file: Kubeconfig = None,
) -> None:
    """Print what a job has said.

    \b
      hyperpod job logs eks-gpu nanogpt
      hyperpod job logs eks-gpu nanogpt -f
    """
    chosen = target.load(stack)
    objects, api = rendered(name, chosen.config, namespace=namespace), api_of(chosen, kubeconfig_file)
    if not job_run.state(api, objects[-1]):
        raise _not_there(name, stack)
    if follow:
        succeeded, _ = job_run.follow(api, objects, console.say, lambda phase: None, math.inf)
        console.note(f"{name} {'succeeded' if succeeded else 'failed'}")
        return
    for line in job_run.said(api, objects[-1]):
        console.say(line)


def cancel_command(
    stack: console.Stack,
    name: Name,
    namespace: Namespace = None,
    yes: console.Yes = False,
    kubeconfig_file: Kubeconfig = None,
) -> None:
    """Delete a job and its pods. Checkpoints stay.

    \b
      hyperpod job cancel eks-gpu nanogpt
    """
    chosen = target.load(stack)
    objects, api = rendered(name, chosen.config, namespace=namespace), api_of(chosen, kubeconfig_file)
    if not (state := job_run.state(api, objects[-1])):
        raise _not_there(name, stack)
    console.confirm(f"Delete {name} ({state})?", yes=yes)
    for document in reversed(objects):
        api.delete(document)
    console.say(f"{name} is deleted", "green")


def _namespaces(config: Config) -> list[str | None]:
    return [team.name for team in config.settings.teams] or [None]


def _objects(name: str, config: Config, namespace: str | None) -> list[dict[str, Any]]:
    """A job's objects; none where this stack cannot run it."""
    try:
        return rendered(name, config, namespace=namespace)
    except Failure:
        return []


def _not_there(name: str, stack: str) -> Failure:
    return bad_input(f"there is no job {name}", f"hyperpod job list {stack}")
