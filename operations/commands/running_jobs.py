"""``job list``, ``job logs`` and ``job cancel``: what becomes of jobs that are submitted."""

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from .. import target
from ..cluster.slurm_jobs import SlurmJobs
from ..failures import Failure, bad_input
from ..jobs import run as job_run
from ..jobs.render import kinds, standing
from ..jobs.requests import JobError
from ..jobs.specs import JOBS
from ..kubernetes import kubeconfig
from ..terminal import console

Name = Annotated[str, typer.Argument(metavar="JOB", help=f"One of {', '.join(JOBS)}.")]
Submitted = Annotated[str, typer.Argument(metavar="JOB", help="Its name, or with Slurm its number.")]
Namespace = Annotated[
    str | None, typer.Option("--namespace", "-n", help="EKS: a team's namespace (default: the first team's).")
]
Kubeconfig = Annotated[
    Path | None, typer.Option("--kubeconfig", help="Use this kubeconfig instead of asking EKS.", dir_okay=False)
]


def api_of(chosen: target.Target, file: Path | None) -> job_run.Api:
    """The stack's Kubernetes API. Raises Failure where it cannot be reached."""
    from ..jobs.kubernetes_api import KubernetesApi  # importing its client takes half of the command's time

    return KubernetesApi.of(file or kubeconfig.render(kubeconfig.describe(chosen)))


def slurm_of(chosen: target.Target, file: Path | None, namespace: str | None = None) -> SlurmJobs:
    """The stack's Slurm. Raises Failure where it cannot be reached, and for what is Kubernetes'."""
    given = {"--kubeconfig": file, "--namespace": namespace}
    if wrong := [option for option, value in given.items() if value]:
        raise bad_input(f"{' and '.join(wrong)}: {chosen.stack} runs Slurm", f"hyperpod job list {chosen.stack}")
    return SlurmJobs(chosen)


def list_command(stack: console.Stack, kubeconfig_file: Kubeconfig = None, as_json: console.Json = False) -> None:
    """List the jobs that are there.

    With Slurm the whole queue, on EKS this project's jobs and yours of `hyperpod run` in every team's namespace.

    \b
      hyperpod job list eks-gpu
    """
    chosen = target.load(stack)
    if chosen.on_eks:
        found = _in_namespaces(chosen, api_of(chosen, kubeconfig_file))
    else:
        found = slurm_of(chosen, kubeconfig_file).jobs()
    if as_json:
        console.emit(found)
    elif found:
        console.table("", list(found[0]), [tuple(row.values()) for row in found])
    else:
        console.note(f"no job is there; to run one: hyperpod job run {stack} JOB")


def _in_namespaces(chosen: target.Target, api: Any) -> list[dict[str, str]]:
    settings = chosen.config.settings
    spaces = [settings.namespace_of(team.name) for team in settings.namespaces]
    there = [job for kind in kinds(chosen.config) for space in spaces for job in api.labelled(*kind, space)]
    return [
        {
            "job": job["metadata"]["name"],
            "namespace": job["metadata"]["namespace"],
            "state": job_run.state(api, job),
        }
        for job in there
    ]


def logs_command(
    stack: console.Stack,
    name: Submitted,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job ends, or Ctrl-C.")] = False,
    namespace: Namespace = None,
    kubeconfig_file: Kubeconfig = None,
) -> None:
    """Print what a job has said.

    With Slurm a name stands for the newest job that has it.

    \b
      hyperpod job logs eks-gpu nanogpt
      hyperpod job logs slurm-gpu nanogpt -f
    """
    chosen = target.load(stack)
    if not chosen.on_eks:
        jobs = slurm_of(chosen, kubeconfig_file, namespace)
        seen = jobs.look(name)
        if follow:
            succeeded, _ = jobs.follow(seen.id, console.say, lambda phase: None, math.inf)
            console.note(f"{name} {'succeeded' if succeeded else 'failed'}")
        else:
            for line in seen.said.decode(errors="replace").splitlines():
                console.say(line)
            console.note(f"job {seen.id} of {seen.user}: {seen.phase}")
        return
    api = api_of(chosen, kubeconfig_file)
    objects, _ = _standing(chosen, api, name, namespace)
    if follow:
        succeeded, _ = job_run.follow(api, objects, console.say, lambda phase: None, math.inf)
        console.note(f"{name} {'succeeded' if succeeded else 'failed'}")
        return
    for line in job_run.said(api, objects[-1]):
        console.say(line)


def cancel_command(
    stack: console.Stack,
    name: Submitted,
    namespace: Namespace = None,
    yes: console.Yes = False,
    kubeconfig_file: Kubeconfig = None,
) -> None:
    """End a job. Checkpoints stay.

    \b
      hyperpod job cancel eks-gpu nanogpt
      hyperpod job cancel slurm-gpu 17
    """
    chosen = target.load(stack)
    if not chosen.on_eks:
        jobs = slurm_of(chosen, kubeconfig_file, namespace)
        seen = jobs.look(name)
        if seen.ended:
            raise _not_there(name, stack)
        console.confirm(f"End {name}, job {seen.id} of {seen.user} ({seen.phase})?", yes=yes)
        jobs.cancel(seen.id)
        console.say(f"{name} is cancelled", "green")
        return
    api = api_of(chosen, kubeconfig_file)
    objects, state = _standing(chosen, api, name, namespace)
    console.confirm(f"Delete {name} ({state})?", yes=yes)
    for document in reversed(objects):
        api.delete(document)
    console.say(f"{name} is deleted", "green")


def _standing(
    chosen: target.Target, api: job_run.Api, name: str, namespace: str | None
) -> tuple[list[dict[str, Any]], str]:
    """A job's objects and what it is doing. Raises Failure where there is none of its name."""
    try:
        for objects in standing(name, chosen.config, namespace):
            if state := job_run.state(api, objects[-1]):
                return objects, state
    except JobError as error:
        raise bad_input(str(error)) from None
    raise _not_there(name, chosen.stack)


def _not_there(name: str, stack: str) -> Failure:
    return bad_input(f"there is no job {name}", f"hyperpod job list {stack}")
