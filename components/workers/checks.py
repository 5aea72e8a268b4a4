"""Checks of instance groups."""

from collections import Counter
from collections.abc import Iterator

from ..catalogue.accelerators import CATALOGUE, UnknownInstanceType, lookup
from ..catalogue.regions import Region
from ..schema.problems import Problem
from .keys import DEFAULT_CONTROLLER_TYPE, DEFAULT_LOST_NODE_SECONDS, ClusterKeys, WorkerGroup

# CreateCluster, InstanceGroups.
MAX_GROUPS = 100
# SageMaker Developer Guide, "Reserve Flexible Training Plans for ML workloads", UltraServers in SageMaker AI.
ULTRASERVERS, ULTRASERVER_REGION, ULTRASERVER_ZONE = "ml.p6e-", "us-east-1", "us-east-1-dfw-2a"


def worker_problems(
    settings: ClusterKeys, region: Region | None, *, existing_vpc: bool, continuous: bool
) -> Iterator[Problem]:
    """Yield every problem of the worker groups, except those of their types. ``continuous``: how nodes come."""
    for name, times in Counter(group.name for group in settings.workers).items():
        if times > 1:
            yield Problem(key="hyperpod:workers", what=f'{times} groups are named "{name}"', fix="names must differ")
    if len(settings.workers) > MAX_GROUPS - 2:
        yield Problem(
            key="hyperpod:workers",
            what=f"{len(settings.workers)} groups",
            fix=f"HyperPod takes {MAX_GROUPS}, controller and login included",
        )
    for index, group in enumerate(settings.workers):
        key = f"hyperpod:workers[{index}]"
        yield from _worker(key, group, settings)
        yield from _capacity(key, group, region, continuous=continuous)
        for place, name in group.keyed_types(key):
            yield from _accelerator(place, name, settings)
            yield from _ultraserver(place, name, region, existing_vpc=existing_vpc)


def _worker(key: str, group: WorkerGroup, settings: ClusterKeys) -> Iterator[Problem]:
    if settings.orchestrator == "slurm" and group.name in ("controller", "login"):
        yield Problem(
            key=f"{key}.name", what=f'"{group.name}" cannot name a worker group', fix="taken by the head nodes"
        )
    count = settings.count_of(group)
    if group.min_count is not None and group.min_count > count:
        yield Problem(
            key=f"{key}.minCount", what=f"{group.min_count} is more than the group's count", fix=f"0 to {count}"
        )
    if (row := CATALOGUE.get(group.instance_type)) and group.threads_per_core > row.threads_per_core:
        yield Problem(
            key=f"{key}.threadsPerCore",
            what=f"a core of {row.name} has no second thread",
            fix=f"{row.threads_per_core}, or leave it out",
        )
    if settings.orchestrator == "slurm":
        for field in ("labels", "taints"):
            if getattr(group, field):
                yield Problem(
                    key=f"{key}.{field}", what="is for Kubernetes nodes", fix="leave it out with orchestrator slurm"
                )


def _accelerator(key: str, name: str, settings: ClusterKeys) -> Iterator[Problem]:
    try:
        row = lookup(name)
    except UnknownInstanceType as unknown:
        yield Problem(key=key, what=str(unknown))
        return
    if not row.hyperpod:
        yield Problem(key=key, what=f"HyperPod does not offer {name}")
    if row.accelerator and row.accelerator != settings.accelerator:
        what = f"{name} has {row.accelerator}, but hyperpod:accelerator is {settings.accelerator}"
        yield Problem(
            key=key, what=what, fix=f"`hyperpod types --accelerator {settings.accelerator}` lists those that fit"
        )


def _ultraserver(key: str, name: str, region: Region | None, *, existing_vpc: bool) -> Iterator[Problem]:
    there = existing_vpc and (region is None or region.name == ULTRASERVER_REGION)
    if name.startswith(ULTRASERVERS) and not there:
        yield Problem(
            key=key,
            what=f"SageMaker has {name} only in the Local Zone {ULTRASERVER_ZONE}",
            fix="your own VPC there (hyperpod:network.vpcId), which this project cannot create, or another type",
        )


def _capacity(key: str, group: WorkerGroup, region: Region | None, *, continuous: bool) -> Iterator[Problem]:
    if group.training_plan_arn is not None:
        where = group.training_plan_arn.split(":")[3]
        if region and where != region.name:
            yield Problem(
                key=f"{key}.trainingPlanArn", what=f"the plan is in {where}", fix=f"the cluster is in {region.name}"
            )
        if group.capacity == "spot":
            yield Problem(
                key=f"{key}.capacity",
                what="spot with a training plan",
                fix="a plan is reserved capacity: use one or the other",
            )
    needs_continuous = {"capacity": group.capacity == "spot", "minCount": group.min_count is not None}
    for field, needed in needs_continuous.items():
        if needed and not continuous:
            what = "spot capacity" if field == "capacity" else "a minimum count"
            yield Problem(
                key=f"{key}.{field}",
                what=f"{what} needs continuous provisioning",
                fix="set hyperpod:nodeProvisioning to Continuous",
            )


def head_node_problems(settings: ClusterKeys, lost_node_seconds: int) -> Iterator[Problem]:
    """Yield every problem of controller and login nodes."""
    if settings.orchestrator == "eks":
        given = {
            "login": settings.login is not None,
            "controllerInstanceType": settings.controller_instance_type != DEFAULT_CONTROLLER_TYPE,
            "lostNodeSeconds": lost_node_seconds != DEFAULT_LOST_NODE_SECONDS,
        }
        for key, present in given.items():
            if present:
                yield Problem(key=f"hyperpod:{key}", what="is for Slurm", fix="leave it out with orchestrator eks")
        return
    heads = {"hyperpod:controllerInstanceType": settings.controller_instance_type}
    if settings.login:
        heads["hyperpod:login.instanceType"] = settings.login.instance_type
    for key, name in heads.items():
        try:
            row = lookup(name)
        except UnknownInstanceType as unknown:
            yield Problem(key=key, what=str(unknown))
            continue
        if row.accelerator or not row.hyperpod:
            what = (
                f"{name} has accelerators, which no job would use"
                if row.hyperpod
                else f"HyperPod does not offer {name}"
            )
            yield Problem(
                key=key, what=what, fix="a type for controller and login nodes, as ml.m5.2xlarge or ml.c5.4xlarge"
            )
