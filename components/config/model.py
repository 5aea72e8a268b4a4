"""The keys of the stack's configuration, typed, and what follows from them.

``Pulumi.yaml`` documents the keys for people and for the engine.
What one value says about another (a GPU type with Trainium, a zone of another region) is in ``checks.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, StrictBool, StrictInt

from ..catalogue.accelerators import ACCELERATORS, CATALOGUE
from ..catalogue.kubernetes_versions import DEFAULT_VERSION
from .fields import (
    BucketName,
    ClusterName,
    FileSystemId,
    GroupName,
    ImageRegistry,
    Model,
    Namespace,
    PlanArn,
    RoleArn,
    SecurityGroupId,
    SshPublicKey,
    SubnetId,
    VpcId,
    WriterArn,
)

# SageMaker API Reference: CreateCluster (InstanceCount, VolumeSizeInGB), InstanceGroupName.
MAX_COUNT = 6758
MAX_VOLUME_GIB = 16384
GROUP_NAME_LIMIT = 63


def _empty_is_none(value: object) -> object:
    """Pulumi requires a default for an optional key; the empty one means "not given"."""
    return None if value in ("", {}) else value


_NONE_IF_EMPTY = BeforeValidator(_empty_is_none)


@dataclass(frozen=True, kw_only=True)
class Size:
    """A preset: worker count, FSx capacity in GiB, data volume of a worker in GiB.

    The figures are those of the CloudFormation templates in github.com/sunilpp/hyperpod-quickstart.
    """

    workers: int
    fsx_gib: int
    volume_gib: int


SIZES: Mapping[str, Size] = {
    "small": Size(workers=2, fsx_gib=1200, volume_gib=500),
    "medium": Size(workers=8, fsx_gib=4800, volume_gib=500),
    "large": Size(workers=32, fsx_gib=14400, volume_gib=1000),
}


DEFAULT_CONTROLLER_TYPE = "ml.m5.2xlarge"
DEFAULT_AUTHENTICATION_MODE: Literal["API"] = "API"
DEFAULT_TEAM = "training"
DEFAULT_LOST_NODE_SECONDS = 10
# Nodes of a group without accelerators where no number is given: HyperPod does not replace those by itself, and a small
# one takes 14 pods (SageMaker Developer Guide, "Getting started with Amazon EKS support in SageMaker HyperPod").
SYSTEM_NODES = 3
# Data volume of nodes that do not train. The CloudFormation templates in github.com/sunilpp/hyperpod-quickstart give
# their controller as much.
HEAD_VOLUME_GIB = 200


class Taint(Model):
    """A Kubernetes taint of a worker group."""

    key: str
    value: str = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]

    @property
    def repels(self) -> bool:
        """Whether no pod comes that does not tolerate it."""
        return self.effect != "PreferNoSchedule"


class WorkerGroup(Model):
    """A worker instance group as configured; what is left out comes from the size and the accelerator.

    ``taints`` of None are those that ``node_placement`` finds right; an empty list is none.
    """

    name: GroupName = Field(max_length=GROUP_NAME_LIMIT)
    instance_type: str
    count: StrictInt | None = Field(None, ge=0, le=MAX_COUNT)
    min_count: StrictInt | None = Field(None, ge=0)
    volume_gib: StrictInt | None = Field(None, alias="volumeGiB", ge=1, le=MAX_VOLUME_GIB)
    threads_per_core: StrictInt = Field(1, ge=1, le=2)
    training_plan_arn: PlanArn | None = None
    capacity: Literal["on-demand", "spot"] = "on-demand"
    deep_health_checks: tuple[Literal["InstanceStress", "InstanceConnectivity"], ...] = ()
    labels: dict[str, str] = Field(default_factory=dict)
    taints: tuple[Taint, ...] | None = None

    @property
    def accelerated(self) -> bool:
        """Whether its nodes compute on accelerators; unknown instance types count as such."""
        return (row := CATALOGUE.get(self.instance_type)) is None or bool(row.accelerator)


class Login(Model):
    """The Slurm login group."""

    instance_type: str
    count: StrictInt = Field(1, ge=1, le=MAX_COUNT)


class Team(Model):
    """Who trains on a Kubernetes cluster: a namespace of that name, and who may use it.

    ``accelerators`` is how many devices (GPUs, Trainium chips) the team is sure of, None for an equal share.
    """

    name: Namespace
    role_arns: tuple[RoleArn, ...] = ()
    accelerators: StrictInt | None = Field(None, ge=0)


class Charts(Model):
    """What runs on the Kubernetes cluster besides EKS's own add-ons."""

    mpi_operator: StrictBool = True
    training_operator: StrictBool = True
    hyperpod_training_operator: StrictBool = False
    health_monitoring: StrictBool = True
    deep_health_check: StrictBool = True
    job_auto_restart: StrictBool = True
    neuron_scheduler: StrictBool = False
    network_policies: StrictBool = True
    queues: Literal["kueue", "task-governance", "none"] = "kueue"


class Fsx(Model):
    """FSx for Lustre: capacity in GiB, throughput in MB/s per TiB, automatic backups kept in days, EFA to the nodes.

    The values are those of PERSISTENT_2 on SSD in the Amazon FSx for Lustre User Guide.
    """

    storage_gib: StrictInt | None = Field(None, alias="storageGiB")
    throughput: Literal[125, 250, 500, 1000] = 250
    compression: Literal["LZ4", "NONE"] = "LZ4"
    efa: StrictBool = False
    linked_bucket: BucketName | None = None
    export_deletes: StrictBool = False
    backup_days: StrictInt = Field(0, ge=0, le=90)
    retain_on_delete: StrictBool = False
    home_file_system_id: FileSystemId | None = None


class NetworkConfig(Model):
    """Address ranges of a VPC to make, or the ids of one that exists."""

    cidr: str = "10.0.0.0/16"
    secondary_cidr: Annotated[str | None, _NONE_IF_EMPTY] = "10.1.0.0/16"
    vpc_id: VpcId | None = None
    private_subnet_id: SubnetId | None = None
    security_group_ids: tuple[SecurityGroupId, ...] = ()
    eks_subnet_ids: tuple[SubnetId, ...] = ()
    closed: StrictBool = False
    image_registry: ImageRegistry | None = None


class Security(Model):
    """Who may do what, where AWS's examples allow more than a cluster needs.

    ``lifecycle_writers`` may write the lifecycle bucket; none: the identity that deploys first. ``node_permissions``:
    narrow is this stack's own VPC, logs and bucket; published is what the SageMaker Developer Guide prints.
    ``worker_secrets`` lets workers read secrets named hyperpod/CLUSTER/....
    """

    lifecycle_writers: tuple[WriterArn, ...] = ()
    node_permissions: Literal["narrow", "published"] = "narrow"
    worker_secrets: StrictBool = False


class Settings(Model):
    """The keys of the ``hyperpod`` namespace, typed. ``Config`` adds what is derived from them."""

    cluster_name: ClusterName = "hyperpod"
    orchestrator: Literal["slurm", "eks"] = "slurm"
    accelerator: Literal["gpu", "trainium"] = "gpu"
    size: Literal["small", "medium", "large"] = "small"
    availability_zone_id: Annotated[str | None, _NONE_IF_EMPTY] = None
    workers: tuple[WorkerGroup, ...] = ()
    controller_instance_type: str = DEFAULT_CONTROLLER_TYPE
    login: Annotated[Login | None, _NONE_IF_EMPTY] = None
    kubernetes_version: str = DEFAULT_VERSION
    kubernetes_api_cidrs: tuple[str, ...] = ()
    administrator_role_arns: tuple[RoleArn, ...] = ()
    authentication_mode: Literal["API", "API_AND_CONFIG_MAP"] = DEFAULT_AUTHENTICATION_MODE
    charts: Charts = Charts()
    teams: tuple[Team, ...] = ()
    fsx: Fsx = Fsx()
    network: NetworkConfig = NetworkConfig()
    existing_role_arn: Annotated[RoleArn | None, _NONE_IF_EMPTY] = None
    security: Security = Security()
    ssh_public_key: Annotated[SshPublicKey | None, _NONE_IF_EMPTY] = None
    observability: StrictBool = False
    validation: StrictBool = True
    benchmarks: StrictBool = False
    imds_v1: StrictBool = Field(False, alias="imdsV1")
    # From four probes of half a second to SlurmdTimeout of our Slurm configuration (lifecycle, slurm_conf.py).
    lost_node_seconds: StrictInt = Field(DEFAULT_LOST_NODE_SECONDS, ge=2, le=60)
    node_recovery: Literal["Automatic", "None"] = "Automatic"
    node_provisioning: Annotated[Literal["Continuous"] | None, _NONE_IF_EMPTY] = None
    tags: dict[str, str] = Field(default_factory=dict)
    protect: StrictBool = False

    @property
    def groups(self) -> tuple[WorkerGroup, ...]:
        """The worker groups as given, or the one of the accelerator's default type where none is."""
        default = WorkerGroup(name="workers", instanceType=ACCELERATORS[self.accelerator].default_worker_type)
        return self.workers or (default,)

    @property
    def namespaces(self) -> tuple[Team, ...]:
        """The teams of a Kubernetes cluster; where none is given, one that everybody with the kubeconfig shares."""
        return self.teams or (Team(name=DEFAULT_TEAM),)

    @property
    def fsx_gib(self) -> int:
        """Capacity of the file system, GiB."""
        return self.fsx.storage_gib or SIZES[self.size].fsx_gib

    def count_of(self, group: WorkerGroup) -> int:
        """Nodes of a worker group: as given, or the size's where they train."""
        if group.count is not None:
            return group.count
        return SIZES[self.size].workers if group.accelerated else SYSTEM_NODES

    def volume_of(self, group: WorkerGroup) -> int:
        """The data volume of a worker group's nodes, GiB: as given, or the size's where they train."""
        if group.volume_gib is not None:
            return group.volume_gib
        return SIZES[self.size].volume_gib if group.accelerated else HEAD_VOLUME_GIB

    def namespace_of(self, team: str) -> str:
        """A team's namespace. SageMaker's task governance has a name of its own for it (CreateComputeQuota)."""
        return f"hyperpod-ns-{team}" if self.charts.queues == "task-governance" else team
