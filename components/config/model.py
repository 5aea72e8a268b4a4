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
    AT_BOOT,
    IN_PLACE,
    REFUSED,
    BucketName,
    Change,
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
_MEMBERS = Change("in place", "added and removed in place")


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

    key: Annotated[str, IN_PLACE]
    """The taint's key."""
    value: Annotated[str, IN_PLACE] = ""
    """The taint's value."""
    effect: Annotated[Literal["NoSchedule", "PreferNoSchedule", "NoExecute"], IN_PLACE]
    """What it does to pods that do not tolerate it."""

    @property
    def repels(self) -> bool:
        """Whether no pod comes that does not tolerate it."""
        return self.effect != "PreferNoSchedule"


class WorkerGroup(Model):
    """A worker instance group as configured; what is left out comes from the size and the accelerator.

    ``taints`` of None are those that ``node_placement`` finds right; an empty list is none.
    """

    name: Annotated[GroupName, IN_PLACE] = Field(max_length=GROUP_NAME_LIMIT)
    """Name of the group. Another name makes another group, and removes the one before."""
    instance_type: Annotated[str, Change("refused", "refused for a living group: add one with another name")]
    """Instance type, as ml.p5.48xlarge."""
    count: Annotated[StrictInt | None, IN_PLACE] = Field(None, ge=0, le=MAX_COUNT)
    """Number of nodes. Default: as `size` says; 3 without accelerators."""
    min_count: Annotated[StrictInt | None, IN_PLACE] = Field(None, ge=0)
    """Number of nodes with which the group may start; at most `count`. Needs `nodeProvisioning` Continuous."""
    volume_gib: Annotated[StrictInt | None, IN_PLACE] = Field(None, alias="volumeGiB", ge=1, le=MAX_VOLUME_GIB)
    """Data volume of a node at /opt/sagemaker, GiB. Default: as `size` says; 200 without accelerators."""
    threads_per_core: Annotated[StrictInt, IN_PLACE] = Field(1, ge=1, le=2)
    """Threads of a core; 2 turns hyper-threading on, where the type has it."""
    training_plan_arn: Annotated[PlanArn | None, IN_PLACE] = None
    """SageMaker training plan whose reserved capacity the group takes."""
    capacity: Annotated[Literal["on-demand", "spot"], IN_PLACE] = "on-demand"
    """How the nodes are bought. spot needs `nodeProvisioning` Continuous, and excludes a training plan."""
    deep_health_checks: Annotated[tuple[Literal["InstanceStress", "InstanceConnectivity"], ...], IN_PLACE] = ()
    """Checks that HyperPod runs on a new node before jobs may use it. Not together with taints. EKS only."""
    labels: Annotated[dict[str, str], IN_PLACE] = Field(default_factory=dict)
    """Kubernetes labels of the nodes. EKS only."""
    taints: tuple[Taint, ...] | None = None
    """Kubernetes taints of the nodes. Default: none; where a group without accelerators runs the cluster's own pods,
    the one that keeps such pods off accelerators. An empty list is none. EKS only."""

    @property
    def accelerated(self) -> bool:
        """Whether its nodes compute on accelerators; unknown instance types count as such."""
        return (row := CATALOGUE.get(self.instance_type)) is None or bool(row.accelerator)


class Login(Model):
    """The Slurm login group."""

    instance_type: Annotated[
        str, Change("refused", "refused for a living group: remove the login nodes first, with an update of its own")
    ]
    """Instance type, as ml.m5.large."""
    count: Annotated[StrictInt, IN_PLACE] = Field(1, ge=1, le=MAX_COUNT)
    """Number of login nodes."""


class Team(Model):
    """Who trains on a Kubernetes cluster: a namespace of that name, and who may use it.

    ``accelerators`` is how many devices (GPUs, Trainium chips) the team is sure of, None for an equal share.
    """

    name: Annotated[Namespace, Change("in place", "in place: a new namespace; the one before is deleted with its jobs")]
    """Name of the team, and of its namespace."""
    role_arns: Annotated[tuple[RoleArn, ...], IN_PLACE] = ()
    """IAM roles that may use the namespace."""
    accelerators: Annotated[StrictInt | None, IN_PLACE] = Field(None, ge=0)
    """Guaranteed device count. Default: an equal share."""


class Charts(Model):
    """What runs on the Kubernetes cluster besides EKS's own add-ons."""

    mpi_operator: Annotated[StrictBool, IN_PLACE] = True
    """Kubeflow's operator for MPIJob."""
    training_operator: Annotated[StrictBool, IN_PLACE] = True
    """Kubeflow's operator for PyTorchJob."""
    hyperpod_training_operator: Annotated[StrictBool, IN_PLACE] = False
    """SageMaker's operator for HyperPodPyTorchJob, with cert-manager. Not together with queues kueue."""
    health_monitoring: Annotated[StrictBool, IN_PLACE] = True
    """HyperPod's agent that finds faulty nodes."""
    deep_health_check: Annotated[StrictBool, IN_PLACE] = True
    """What deep health checks need; the health monitoring and the restart of jobs need its namespace."""
    job_auto_restart: Annotated[StrictBool, IN_PLACE] = True
    """Jobs that ask for it restart after a node was replaced."""
    neuron_scheduler: Annotated[StrictBool, IN_PLACE] = False
    """Scheduler extension that places pods on neighbouring NeuronCores. Trainium only."""
    network_policies: Annotated[StrictBool, IN_PLACE] = True
    """Pods of one team cannot reach those of another."""
    queues: Annotated[Literal["kueue", "task-governance", "none"], IN_PLACE] = "kueue"
    """What shares the accelerators between the teams: Kueue, SageMaker's task governance, or nothing."""


class Fsx(Model):
    """FSx for Lustre: capacity in GiB, throughput in MB/s per TiB, automatic backups kept in days, EFA to the nodes.

    The values are those of PERSISTENT_2 on SSD in the Amazon FSx for Lustre User Guide.
    """

    storage_gib: Annotated[StrictInt | None, Change("in part", "grows in place, once in 6 hours; less is refused")] = (
        Field(None, alias="storageGiB")
    )
    """Capacity, GiB: 1200 or a multiple of 2400. With `efa` a multiple of 38400, 19200, 9600 or 4800, for a throughput
    of 125, 250, 500 or 1000. Default: as `size` says."""
    throughput: Annotated[Literal[125, 250, 500, 1000], Change("in part", "in place; refused with `efa`")] = 250
    """Throughput, MB/s per TiB."""
    compression: Annotated[Literal["LZ4", "NONE"], IN_PLACE] = "LZ4"
    """Compression of what is written."""
    efa: Annotated[StrictBool, REFUSED] = False
    """EFA between workers and file system, where the instance type has it."""
    linked_bucket: Annotated[BucketName | None, IN_PLACE] = None
    """S3 bucket that appears under /fsx/data; new and changed files are written back to it."""
    export_deletes: Annotated[StrictBool, IN_PLACE] = False
    """Also delete an object in that bucket when its file is deleted."""
    backup_days: Annotated[StrictInt, IN_PLACE] = Field(0, ge=0, le=90)
    """Days for which automatic backups are kept; 0 makes none. 0 with `linkedBucket`."""
    retain_on_delete: Annotated[StrictBool, IN_PLACE] = False
    """Keep the file system when the stack is destroyed. Needs `network.vpcId`."""
    home_file_system_id: Annotated[FileSystemId | None, AT_BOOT] = None
    """Existing FSx file system, Lustre or OpenZFS, that the nodes mount at /home. It must be in `network.vpcId`, and
    its security groups must admit the nodes on TCP 988 and 1018-1023 for Lustre, or 2049 for OpenZFS. Slurm only."""


class NetworkConfig(Model):
    """Address ranges of a VPC to make, or the ids of one that exists."""

    cidr: Annotated[str, REFUSED] = "10.0.0.0/16"
    """Address block of the VPC that the stack makes."""
    secondary_cidr: Annotated[str | None, _NONE_IF_EMPTY, REFUSED] = "10.1.0.0/16"
    """Second address block of it, for the nodes. Empty gives them half of the first."""
    vpc_id: Annotated[VpcId | None, REFUSED] = None
    """Existing VPC. The blocks are then left out, and subnet and security groups given."""
    private_subnet_id: Annotated[SubnetId | None, REFUSED] = None
    """Its subnet for the nodes and the file system."""
    security_group_ids: Annotated[tuple[SecurityGroupId, ...], REFUSED] = ()
    """Security groups of the nodes in it."""
    eks_subnet_ids: Annotated[tuple[SubnetId, ...], IN_PLACE] = ()
    """Two subnets of it, in different zones, for the EKS control plane. EKS only."""
    closed: Annotated[StrictBool, IN_PLACE] = False
    """Make every VPC endpoint that nodes need, and no NAT gateway. On EKS needs `imageRegistry`."""
    image_registry: Annotated[ImageRegistry | None, IN_PLACE] = None
    """Private registry that holds k8s-device-plugin, mpi-operator, training-operator and kueue in the charts'
    versions. EKS only."""


class Security(Model):
    """Who may do what, where AWS's examples allow more than a cluster needs."""

    lifecycle_writers: Annotated[
        tuple[WriterArn, ...], Change("in part", "in place; refused without the identity that deploys")
    ] = ()
    """ARNs of IAM roles or users, with wildcards, that may write the lifecycle bucket, whose scripts run as root on
    the nodes. Everybody who deploys or destroys the stack needs to be among them. Default: the identity that deploys
    it first."""
    node_permissions: Annotated[Literal["narrow", "published"], IN_PLACE] = "narrow"
    """narrow limits the nodes' roles to this stack's VPC, logs and bucket; published grants what the SageMaker
    Developer Guide prints."""
    worker_secrets: Annotated[StrictBool, IN_PLACE] = False
    """Let workers read secrets named hyperpod/CLUSTER/...."""


class Settings(Model):
    """The keys of the ``hyperpod`` namespace, typed. ``Config`` adds what is derived from them.

    What a key of a plain type is for is said in Pulumi.yaml.
    """

    cluster_name: Annotated[ClusterName, REFUSED] = "hyperpod"
    orchestrator: Annotated[Literal["slurm", "eks"], REFUSED] = "slurm"
    accelerator: Annotated[
        Literal["gpu", "trainium"], Change("in part", "in place with worker groups of other names; otherwise refused")
    ] = "gpu"
    size: Annotated[
        Literal["small", "medium", "large"], Change("in part", "in place; refused where the file system would shrink")
    ] = "small"
    availability_zone_id: Annotated[str | None, _NONE_IF_EMPTY, REFUSED] = None
    workers: Annotated[tuple[WorkerGroup, ...], _MEMBERS] = ()
    controller_instance_type: Annotated[str, REFUSED] = DEFAULT_CONTROLLER_TYPE
    login: Annotated[Login | None, _NONE_IF_EMPTY, _MEMBERS] = None
    kubernetes_version: Annotated[str, Change("in part", "one minor version up in place; otherwise refused")] = (
        DEFAULT_VERSION
    )
    kubernetes_api_cidrs: Annotated[tuple[str, ...], IN_PLACE] = ()
    administrator_role_arns: Annotated[tuple[RoleArn, ...], IN_PLACE] = ()
    authentication_mode: Annotated[
        Literal["API", "API_AND_CONFIG_MAP"], Change("in part", "to API in place; back refused")
    ] = DEFAULT_AUTHENTICATION_MODE
    charts: Charts = Charts()
    teams: Annotated[tuple[Team, ...], _MEMBERS] = ()
    fsx: Fsx = Fsx()
    network: NetworkConfig = NetworkConfig()
    existing_role_arn: Annotated[RoleArn | None, _NONE_IF_EMPTY, IN_PLACE] = None
    security: Security = Security()
    ssh_public_key: Annotated[SshPublicKey | None, _NONE_IF_EMPTY, AT_BOOT] = None
    observability: Annotated[StrictBool, IN_PLACE] = False
    validation: Annotated[StrictBool, IN_PLACE] = True
    benchmarks: Annotated[StrictBool, IN_PLACE] = False
    imds_v1: Annotated[StrictBool, AT_BOOT] = Field(False, alias="imdsV1")
    # From four probes of half a second to SlurmdTimeout of our Slurm configuration (lifecycle, slurm_conf.py).
    lost_node_seconds: Annotated[StrictInt, AT_BOOT] = Field(DEFAULT_LOST_NODE_SECONDS, ge=2, le=60)
    node_recovery: Annotated[Literal["Automatic", "None"], IN_PLACE] = "Automatic"
    node_provisioning: Annotated[Literal["Continuous"] | None, _NONE_IF_EMPTY, IN_PLACE] = None
    tags: Annotated[dict[str, str], IN_PLACE] = Field(default_factory=dict)
    protect: Annotated[StrictBool, IN_PLACE] = False

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
