"""``job image`` and ``job pull``: the jobs' container image, made and brought to the nodes."""

import shlex
import time
from typing import Annotated

import typer

from .. import target
from ..failures import Exit, bad_input
from ..jobs import pull as pulling
from ..jobs.requests import find_group
from ..jobs.specs import JOBS
from ..kubernetes.image import RECIPE, build, plan, pushed, repository_of
from ..terminal import console
from .running_jobs import Kubeconfig, api_of


def image_command(
    stack: console.Stack,
    job: Annotated[
        str | None, typer.Option("--for", metavar="JOB", help="A job that needs an image of its own: torchtitan.")
    ] = None,
    build_now: Annotated[
        bool, typer.Option("--build", help="Build and push the image; needs Docker and 60 GB of disk space.")
    ] = False,
    as_json: console.Json = False,
) -> None:
    """Print or run the commands that build the jobs' image.

    jobs/image/Dockerfile adds nccl-tests and the packages of the training scripts to AWS's Deep Learning Container
    with EFA. The image is pushed to the stack's registry. Use it with `job run NAME --image IMAGE`.

    \b
      hyperpod job image eks-gpu
      hyperpod job image eks-gpu --build
      hyperpod job image eks-gpu --for torchtitan --build
    """
    chosen = target.load(stack)
    wanted = plan(repository_of(chosen), recipe=_recipe(job))
    if build_now:
        build(chosen, wanted)
    wanted = pushed(chosen, wanted)
    if as_json:
        console.emit(wanted)
        return
    if not build_now:
        region = chosen.config.region.name
        console.say(
            f"aws ecr get-login-password --region {region} | "
            f"docker login --username AWS --password-stdin {wanted.registry}"
        )
        for command in wanted.commands:
            console.say(shlex.join(command))
        console.note(f"Then: hyperpod job run {stack} {job or 'nccl-tests'} --image {wanted.image}")
    else:
        console.say(wanted.image)


def _recipe(job: str | None) -> str:
    """The folder that makes a job's image. Raises Failure for a job without one of its own."""
    own = {name: one.recipe for name, one in JOBS.items() if one.recipe}
    if job is not None and job not in own:
        raise bad_input(f"{job} needs no image of its own", f"--for is for {', '.join(own)}")
    return own[job] if job else RECIPE


def pull_command(
    stack: console.Stack,
    image: Annotated[str, typer.Argument(metavar="IMAGE", help="The image, best by its digest.")],
    group: Annotated[
        str | None, typer.Option("--group", "-g", metavar="GROUP", help="Worker group (default: the first).")
    ] = None,
    timeout: Annotated[float, typer.Option("--timeout", min=0, help="Time limit in seconds.")] = 3600,
    kubeconfig_file: Kubeconfig = None,
    as_json: console.Json = False,
) -> None:
    """Pull an image to every node of a worker group, before the first job. EKS only.

    Exits with 1 where a node could not pull it. The kubelet deletes unused
    images once its disk is 85 % full. The administrators' kubeconfig can do
    this, a team's cannot.

    \b
      hyperpod job pull eks-gpu REPOSITORY@sha256:... --group workers
    """
    chosen = target.load(stack)
    if not chosen.on_eks:
        raise bad_input(f"{stack} runs Slurm", "enroot import, once, to /fsx: every node then has it")
    workers, problems = find_group(chosen.config, group)
    if problems:
        raise bad_input("; ".join(problems))
    api, began = api_of(chosen, kubeconfig_file), time.monotonic()
    refused = pulling.pull(
        api,
        chosen.config,
        workers,
        image,
        timeout,
        lambda done, wanted: console.note(f"{done} of {wanted} nodes of {workers.name} have the image"),
    )
    seconds = time.monotonic() - began
    if as_json:
        console.emit({"image": image, "group": workers.name, "seconds": round(seconds, 1), "refused": refused})
    else:
        for node, why in refused.items():
            console.prose(f"{node}: {why}", "red")
        if not refused:
            console.prose(f"every node of {workers.name} has the image, after {seconds / 60:.1f} minutes", "green")
    raise typer.Exit(Exit.FAILED if refused else Exit.GOOD)
