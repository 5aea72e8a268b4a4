"""Checks of the image with which a group's nodes start. Every rule yields its own problems."""

from collections.abc import Iterator

from ..schema.problems import Problem
from .keys import ClusterKeys, WorkerGroup


def image_problems(settings: ClusterKeys, *, continuous: bool) -> Iterator[Problem]:
    """Yield every problem of the groups' images and patches. ``continuous``: how nodes come.

    SageMaker Developer Guide, "Cluster management with custom AMIs" and "Amazon SageMaker HyperPod AMI automatic
    patching", Prerequisites; AWS::SageMaker::Cluster, ImageReleaseVersion.
    """
    for number, group in enumerate(settings.groups):
        key = f"hyperpod:workers[{number}]"
        if settings.orchestrator == "slurm":
            yield from _for_eks(key, group)
        if group.image_id:
            yield from _own_image(key, group, continuous=continuous)


def _for_eks(key: str, group: WorkerGroup) -> Iterator[Problem]:
    only = {
        "imageRelease": (group.image_release, "HyperPod pins a release of its image only on EKS"),
        "autoPatch": (group.auto_patch, "HyperPod patches nodes by itself only on EKS"),
    }
    for field, (given, what) in only.items():
        if given:
            yield Problem(key=f"{key}.{field}", what=what, fix="leave it out with orchestrator slurm")


def _own_image(key: str, group: WorkerGroup, *, continuous: bool) -> Iterator[Problem]:
    if not continuous:
        yield Problem(
            key=f"{key}.imageId",
            what="an image of your own needs continuous provisioning",
            fix="set hyperpod:nodeProvisioning to Continuous",
        )
    for field, given in {"imageRelease": group.image_release, "autoPatch": group.auto_patch}.items():
        if given:
            yield Problem(key=f"{key}.{field}", what="is for HyperPod's own images", fix="leave it out, or imageId")
