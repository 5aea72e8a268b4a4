"""Rules between configured values. Every rule yields its own problems; none stops the others."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterator

from ..catalogue.accelerators import CATALOGUE, UnknownInstanceType, lookup
from ..catalogue.regions import Region
from ..names import CLUSTER_LIMIT, LIFECYCLE_BUCKET, longest_cluster_name
from .accounting_checks import accounting_problems
from .fsx_checks import file_system_problems
from .image_checks import image_problems
from .kubernetes_checks import kubernetes_problems, partition_problems
from .model import DEFAULT_CONTROLLER_TYPE, DEFAULT_LOST_NODE_SECONDS, Settings, WorkerGroup
from .network_plan import network_problems
from .observability_checks import alert_problems, observability_problems
from .people import people_problems
from .problems import Problem
from .type_checks import type_problems
from .worker_partitions import worker_partition_problems

# CreateCluster, InstanceGroups.
MAX_GROUPS = 100
# SageMaker Developer Guide, "Reserve Flexible Training Plans for ML workloads", UltraServers in SageMaker AI.
ULTRASERVERS, ULTRASERVER_REGION, ULTRASERVER_ZONE = "ml.p6e-", "us-east-1", "us-east-1-dfw-2a"
# Tag Editor User Guide: 50 tags per resource, of which ours take at most ten.
MAX_TAGS = 40


def check(settings: Settings, region: Region | None) -> list[Problem]:
    """Every problem of the settings. Rules that need the region are skipped where it is unknown."""
    rules = (
        _cluster_name(settings, region),
        _zone(settings, region),
        _workers(settings, region),
        type_problems(settings),
        worker_partition_problems(settings),
        _head_nodes(settings),
        accounting_problems(settings, region),
        image_problems(settings),
        kubernetes_problems(settings, region),
        file_system_problems(settings),
        network_problems(settings),
        _role(settings, region),
        _ssh_key(settings),
        people_problems(settings.users, settings.orchestrator),
        _security(settings, region),
        _recovery(settings),
        observability_problems(settings, region),
        alert_problems(settings, region),
        _tags(settings),
    )
    return [problem for rule in rules for problem in rule]


def _cluster_name(settings: Settings, region: Region | None) -> Iterator[Problem]:
    name, key = settings.cluster_name, "hyperpod:clusterName"
    limit = longest_cluster_name(region.name) if region else CLUSTER_LIMIT
    if len(name) > limit:
        where = f"in {region.name}, where bucket and role names carry it" if region else "anywhere"
        yield Problem(key=key, what=f'"{name}" has {len(name)} characters', fix=f"at most {limit} {where}")


def _recovery(settings: Settings) -> Iterator[Problem]:
    """HyperPod does what a node's label or reason in Slurm asks for only where it may recover nodes by itself
    (awsome-distributed-ai, hyperpod-mental-model.md)."""
    if settings.health_policy in ("reboot", "replace") and settings.node_recovery == "None":
        yield Problem(
            key="hyperpod:healthPolicy",
            what=f"without automatic recovery HyperPod does not {settings.health_policy} the nodes that are marked",
            fix="nodeRecovery Automatic, or healthPolicy drain",
        )


def _zone(settings: Settings, region: Region | None) -> Iterator[Problem]:
    zone = settings.availability_zone_id
    if zone and region and zone not in region.zone_ids:
        yield Problem(
            key="hyperpod:availabilityZoneId",
            what=f'"{zone}" is not a zone of {region.name}',
            fix=f"one of {', '.join(region.zone_ids)}",
        )
    elif zone and region and settings.orchestrator == "eks" and zone not in region.eks_zone_ids():
        yield Problem(
            key="hyperpod:availabilityZoneId",
            what=f"EKS has no control plane in {zone}",
            fix=f"one of {', '.join(region.eks_zone_ids())}",
        )


def _workers(settings: Settings, region: Region | None) -> Iterator[Problem]:
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
        yield from _worker(f"hyperpod:workers[{index}]", group, settings, region)


def _worker(key: str, group: WorkerGroup, settings: Settings, region: Region | None) -> Iterator[Problem]:
    if settings.orchestrator == "slurm" and group.name in ("controller", "login"):
        yield Problem(
            key=f"{key}.name", what=f'"{group.name}" cannot name a worker group', fix="taken by the head nodes"
        )
    yield from _accelerator(f"{key}.instanceType", group.instance_type, settings)
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
    yield from _capacity(key, group, settings, region)
    there = settings.network.vpc_id and (region is None or region.name == ULTRASERVER_REGION)
    if group.instance_type.startswith(ULTRASERVERS) and not there:
        yield Problem(
            key=f"{key}.instanceType",
            what=f"SageMaker has {group.instance_type} only in the Local Zone {ULTRASERVER_ZONE}",
            fix="a VPC of yours there (hyperpod:network.vpcId), which no VPC of ours is, or another type",
        )
    if settings.orchestrator == "slurm":
        for field in ("labels", "taints"):
            if getattr(group, field):
                yield Problem(
                    key=f"{key}.{field}", what="is for Kubernetes nodes", fix="leave it out with orchestrator slurm"
                )


def _accelerator(key: str, name: str, settings: Settings) -> Iterator[Problem]:
    try:
        row = lookup(name)
    except UnknownInstanceType as unknown:
        yield Problem(key=key, what=str(unknown))
        return
    if not row.hyperpod:
        yield Problem(key=key, what=f"HyperPod does not offer {name}")
    if row.accelerator and row.accelerator != settings.accelerator:
        what = f"{name} has {row.accelerator}, but hyperpod:accelerator is {settings.accelerator}"
        fits = [n for n, t in CATALOGUE.items() if t.accelerator == settings.accelerator and t.hyperpod]
        yield Problem(key=key, what=what, fix=f"one of {', '.join(fits)}")


def _capacity(key: str, group: WorkerGroup, settings: Settings, region: Region | None) -> Iterator[Problem]:
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
        if needed and settings.node_provisioning != "Continuous":
            what = "spot capacity" if field == "capacity" else "a minimum count"
            yield Problem(
                key=f"{key}.{field}",
                what=f"{what} needs continuous provisioning",
                fix="set hyperpod:nodeProvisioning to Continuous",
            )


def _head_nodes(settings: Settings) -> Iterator[Problem]:
    if settings.orchestrator == "eks":
        given = {
            "login": settings.login is not None,
            "controllerInstanceType": settings.controller_instance_type != DEFAULT_CONTROLLER_TYPE,
            "lostNodeSeconds": settings.lost_node_seconds != DEFAULT_LOST_NODE_SECONDS,
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


def _role(settings: Settings, region: Region | None) -> Iterator[Problem]:
    for key, arn in (
        ("existingRoleArn", settings.existing_role_arn),
        ("permissionsBoundaryArn", settings.permissions_boundary_arn),
    ):
        if arn is not None:
            yield from partition_problems(f"hyperpod:{key}", arn, region)


def _security(settings: Settings, region: Region | None) -> Iterator[Problem]:
    for number, arn in enumerate(settings.security.lifecycle_writers):
        yield from partition_problems(f"hyperpod:security.lifecycleWriters[{number}]", arn, region)
    yield from _kms_key(settings, region)
    if settings.security.session_run_as and not settings.security.session_logs:
        yield Problem(
            key="hyperpod:security.sessionRunAs",
            what="is part of the document by which sessions are recorded",
            fix="set hyperpod:security.sessionLogs too",
        )
    if settings.security.ssh_only_with_job and settings.orchestrator == "eks":
        yield Problem(
            key="hyperpod:security.sshOnlyWithJob",
            what="is for Slurm: nobody logs in to EKS nodes by ssh",
            fix="leave it out with orchestrator eks",
        )
    if (logs := settings.security.access_log_bucket) and LIFECYCLE_BUCKET.fullmatch(logs):
        yield Problem(
            key="hyperpod:security.accessLogBucket",
            what=f'"{logs}" has a stack\'s lifecycle scripts, and goes with that stack',
            fix="a bucket for logs, which outlives the stack",
        )
    if settings.existing_role_arn and settings.security.node_permissions != "narrow":
        yield Problem(
            key="hyperpod:security.nodePermissions",
            what="the stack creates no roles with existingRoleArn",
            fix="leave one of the two out",
        )


def _kms_key(settings: Settings, region: Region | None) -> Iterator[Problem]:
    key = settings.security.kms_key
    if key and key != "create" and region and key.split(":")[1:4:2] != [region.partition, region.name]:
        yield Problem(
            key="hyperpod:security.kmsKey",
            what=f"the key is in {key.split(':')[3]}",
            fix=f"a key in {region.name}, or create",
        )
    if key and settings.node_provisioning != "Continuous":
        # SageMaker Developer Guide, "Customer managed AWS KMS key encryption for SageMaker HyperPod".
        yield Problem(
            key="hyperpod:nodeProvisioning",
            what="HyperPod encrypts volumes with a customer key (security.kmsKey) only in this mode",
            fix="set it to Continuous",
        )


def _ssh_key(settings: Settings) -> Iterator[Problem]:
    if settings.ssh_public_key and settings.orchestrator == "eks":
        yield Problem(
            key="hyperpod:sshPublicKey",
            what="EKS nodes do not use it",
            fix="leave it out with orchestrator eks; nodes are reached through SSM",
        )


def _tags(settings: Settings) -> Iterator[Problem]:
    if len(settings.tags) > MAX_TAGS:
        yield Problem(key="hyperpod:tags", what=f"{len(settings.tags)} tags", fix=f"at most {MAX_TAGS}")
    for key, value in settings.tags.items():
        if not 1 <= len(key) <= 128 or len(value) > 256:
            yield Problem(
                key=f"hyperpod:tags.{key}",
                what=f"a key of {len(key)} characters and a value of {len(value)}",
                fix="keys of 1 to 128 characters, values of at most 256",
            )
        if odd := sorted({character for character in key + value if not _taggable(character)}):
            yield Problem(
                key=f"hyperpod:tags.{key}",
                what=f"{' '.join(map(repr, odd))} in a tag",
                fix="letters, digits, spaces and _.:/=+-@",
            )
        if key.lower().startswith(("aws:", "hyperpod:")):
            yield Problem(key=f"hyperpod:tags.{key}", what="a reserved prefix", fix="neither aws: nor hyperpod:")


def _taggable(character: str) -> bool:
    """SageMaker API Reference, Tag: letters, separators and numbers of any script, and a few signs."""
    return unicodedata.category(character)[0] in "LZN" or character in "_.:/=+-@"
