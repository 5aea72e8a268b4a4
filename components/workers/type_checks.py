"""Checks what a stack's instance types rule out, and warns of what people should know before they pay."""

from collections.abc import Iterator, Sequence

from ..catalogue.accelerators import ACCELERATORS, InstanceType, find, nearest
from ..schema.problems import Problem
from .instance_groups import InstanceGroup
from .keys import ClusterKeys, WorkerGroup
from .taints import taints_of

# CUDA C++ Programming Guide, "Compute Capabilities": __nv_bfloat16 from 8.0 on; a T4 has 7.5.
_NO_BFLOAT16 = "T4"


def type_problems(settings: ClusterKeys, *, packages: bool) -> Iterator[Problem]:
    """Report a stack without accelerators, tests that HyperPod lacks, and what nodes with Arm processors cannot do
    here.

    HyperPod has ARM64 images of every supported Kubernetes version and of Slurm 25.11 (SageMaker Developer Guide,
    "SageMaker HyperPod AMI releases for Amazon EKS", August 29, 2026, and "... for Slurm", September 17, 2026).
    """
    if not any(group.accelerated for group in settings.groups):
        yield Problem(
            key="hyperpod:workers",
            what="no group has accelerators, so no job can train",
            fix=f"add a group, such as of {ACCELERATORS[settings.accelerator].default_worker_type}; its count may be 0",
        )
    for number, group in enumerate(settings.groups):
        key = f"hyperpod:workers[{number}]"
        if group.deep_health_checks:
            yield from _untested(settings, f"{key}.deepHealthChecks", group)
        if (row := find(group.instance_type)) is None or row.architecture != "arm64":
            continue
        if settings.orchestrator == "slurm":
            yield from _for_x86(f"{key}.instanceType", row.name, packages)
            continue
        if not row.accelerator and not any(taint.repels for taint in taints_of(settings, group)):
            yield Problem(
                key=f"{key}.taints",
                what=f"{row.name} has Arm processors, and any pod may run there; not every image of the HyperPod chart "
                "and of the add-ons is known to have a build for them",
                fix="a taint that your own pods tolerate, as {key: arch, value: arm64, effect: NoSchedule}",
            )
    if settings.orchestrator == "slurm":
        heads = {"hyperpod:controllerInstanceType": settings.controller_instance_type}
        if settings.login:
            heads["hyperpod:login.instanceType"] = settings.login.instance_type
        for key, name in heads.items():
            if (row := find(name)) and row.architecture == "arm64":
                yield from _for_x86(key, name, packages)


def _untested(settings: ClusterKeys, key: str, group: WorkerGroup) -> Iterator[Problem]:
    """Refuse deep health checks for other types than accelerated ones, with Slurm GPUs (SageMaker Developer Guide,
    "Deep health checks" of EKS and of Slurm clusters, instance type compatibility).
    """
    if not group.accelerated:
        yield Problem(key=key, what=f"{group.instance_type} has no accelerators to check", fix="leave it out")
    elif settings.orchestrator == "slurm" and settings.accelerator != "gpu":
        yield Problem(
            key=key,
            what="on Slurm, HyperPod has such checks only for GPUs",
            fix="leave it out with accelerator trainium",
        )


def _for_x86(key: str, name: str, packages: bool) -> Iterator[Problem]:
    """Refuse Enroot's packages on Arm: they go to every node, and `hyperpod download containers` fetches those for
    x86_64.
    """
    if packages:
        yield Problem(
            key=key,
            what=f"{name} has Arm processors, and the packages of hyperpod:slurm.containerPackages are for x86_64",
            fix="leave one of the two out",
        )


def type_notes(groups: Sequence[InstanceGroup], *, slurm: bool) -> Iterator[str]:
    """Name what a stack's instance types lack, for people who are about to pay for it."""
    nodes = sum(group.count for group in groups if group.role == "worker" and group.type.accelerator)
    for row in {row.name: row for group in groups for row in group.types}.values():
        if not row.catalogued:
            yield _unknown(row, slurm=slurm)
        elif row.accelerator and row.efa == "no" and nodes > 1:
            yield (
                f"{row.name} has no EFA: jobs on several nodes use TCP, at {row.network_gbps:g} Gbit/s a node at most"
            )
        if row.accelerator_model == _NO_BFLOAT16:
            yield f"{row.name} has {_NO_BFLOAT16} GPUs, which lack bfloat16: this project's trainers compute in it"


def _unknown(row: InstanceType, *, slurm: bool) -> str:
    lacks = "no price, and no facts about EFA, accelerators, CPUs, memory and NVMe"
    then = "its local disks are not used"
    if slurm and row.accelerator:
        then += ", and Slurm has no accelerators of it to allocate (--gres), only whole nodes"
    near = nearest(row.name)
    like = f"Near to it: {', '.join(near)}. " if near else ""
    return (
        f"{row.name} is not in the catalogue: {lacks}. AWS decides whether it exists; {then}. "
        f"{like}A row in components/catalogue/instance_types.csv ends this"
    )
