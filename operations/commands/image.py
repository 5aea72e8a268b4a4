"""The verb ``image``."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from .. import target
from ..kubernetes.image import build, plan, pushed, repository_of
from ..terminal import console


def image_command(
    stack: console.Stack,
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
    """
    chosen = target.load(stack)
    wanted = plan(repository_of(chosen))
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
        console.note(f"Then: hyperpod job run {stack} nccl-tests --image {wanted.image}")
    else:
        console.say(wanted.image)
