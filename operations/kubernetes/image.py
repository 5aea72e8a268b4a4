"""Build the jobs' container image and push it to the stack's registry, or print how."""

import base64
import hashlib
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..failures import Failure, bad_input, cannot_know
from ..jobs.specs import IMAGE_ARCHITECTURE
from ..target import Target
from ..terminal import console

ROOT = Path(__file__).parents[2]
RECIPE = "jobs/image"
# The architecture of the Dockerfile's base image.
PLATFORM = "linux/amd64"
_TAG_LENGTH = 12


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What would be done: the image's full name and the commands, without the login, which needs a password."""

    image: str
    registry: str
    commands: tuple[tuple[str, ...], ...]


def tag(folder: Path) -> str:
    """The recipe's own name: another recipe has another one, since tags in the registry cannot be moved."""
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        digest.update(f"{path.name}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:_TAG_LENGTH]


def plan(repository: str, root: Path = ROOT, recipe: str = RECIPE) -> Plan:
    """How the image is built and pushed. ``repository`` is the stack's output trainingRepository."""
    image = f"{repository}:{tag(root / recipe)}"
    return Plan(
        image=image,
        registry=repository.split("/")[0],
        commands=(
            ("docker", "build", "--platform", PLATFORM, "--tag", image, recipe),
            ("docker", "push", image),
        ),
    )


def repository_of(chosen: Target) -> str:
    """The address of the stack's repository. Raises Failure where the stack has none."""
    if not chosen.on_eks:
        raise bad_input(
            f"{chosen.stack} is a Slurm stack, and this image is for jobs on EKS",
            "use an EKS stack; docs/slurm.md has containers on Slurm",
        )
    if chosen.config.settings.accelerator != "gpu":
        raise bad_input("this image is for GPUs; the Neuron jobs run on AWS's own image", "job neuron needs no --image")
    if all(group.type.architecture != IMAGE_ARCHITECTURE for group in chosen.config.training_groups):
        raise bad_input(
            "the recipe's base image is for x86-64, and no worker is",
            f"docker build --platform linux/arm64 --build-arg BASE=IMAGE {RECIPE}, with an IMAGE for arm64",
        )
    found = chosen.aws.client("ecr").describe_repositories(repositoryNames=[f"{chosen.cluster_name}/training"])
    return str(found["repositories"][0]["repositoryUri"])


def build(chosen: Target, wanted: Plan) -> None:
    """Log in, build and push. Raises Failure with the command that failed."""
    if shutil.which("docker") is None:
        raise cannot_know(
            "Docker is not installed on this machine",
            "run this where Docker is installed; without --build it prints the commands",
        )
    answer = chosen.aws.client("ecr").get_authorization_token()["authorizationData"][0]
    user, _, password = base64.b64decode(answer["authorizationToken"]).decode().partition(":")
    # On standard input: every user of the machine can read a password in the arguments.
    _run(("docker", "login", "--username", user, "--password-stdin", wanted.registry), password)
    for command in wanted.commands:
        _run(command)


def pushed(chosen: Target, wanted: Plan) -> Plan:
    """The plan with the image named by its digest, which is one image forever, where the registry has it."""
    repository, _, its_tag = wanted.image.rpartition(":")
    listed = chosen.aws.client("ecr").list_images(
        repositoryName=repository.partition("/")[2], filter={"tagStatus": "TAGGED"}, maxResults=1000
    )["imageIds"]
    digests = [one["imageDigest"] for one in listed if one.get("imageTag") == its_tag]
    return replace(wanted, image=f"{repository}@{digests[0]}") if digests else wanted


def _run(command: Sequence[str], stdin: str | None = None) -> None:
    console.note(shlex.join(command))
    done = subprocess.run(command, cwd=ROOT, input=stdin, text=True, check=False)
    if done.returncode != 0:
        raise Failure(f"{shlex.join(command[:2])} ended with status {done.returncode}", "its own output says why")
