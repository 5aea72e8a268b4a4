"""The keys of the stack's configuration, typed, with their defaults.

``Pulumi.yaml`` documents the top-level keys. Rules that relate several keys are in ``checks.py``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, StrictBool, StrictInt

from ..catalogue.accelerators import ACCELERATORS, find
from ..catalogue.kubernetes_versions import DEFAULT_VERSION
from .accounting import Slurm
from .fields import (
    AT_BOOT,
    IN_PLACE,
    NONE_IF_EMPTY,
    REFUSED,
    BoundaryArn,
    BucketName,
    Change,
    ClusterName,
    FileSystemId,
    GroupName,
    ImageRelease,
    KmsKey,
    Model,
    Namespace,
    PlanArn,
    RoleArn,
    SshPublicKey,
    WriterArn,
)
from .network import NetworkConfig
from .observability import Alerts, Observability
from .people import APPLIED, User

# SageMaker API Reference: CreateCluster (InstanceCount, VolumeSizeInGB), InstanceGroupName.
MAX_COUNT = 6758
MAX_VOLUME_GIB = 16384
GROUP_NAME_LIMIT = 63


_MEMBERS = Change("in place", "added and removed in place")


@dataclass(frozen=True, kw_only=True)
class Size:
    """A preset: number of workers, FSx capacity in GiB, data volume of a worker in GiB.

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
# User ids of teams: above those of the images' own users, below 65536, where a pod's user namespace ends (Kubernetes,
# "User Namespaces").
FIRST_UID, UIDS = 10_000, 50_000
DEFAULT_LOST_NODE_SECONDS = 10
# Default number of nodes in a group without accelerators. HyperPod does not replace such nodes by itself, and a small
# one takes 14 pods (SageMaker Developer Guide, "Getting started with Amazon EKS support in SageMaker HyperPod").
SYSTEM_NODES = 3
# Data volume of nodes that do not train: that of the controller in the CloudFormation templates in
# github.com/sunilpp/hyperpod-quickstart.
HEAD_VOLUME_GIB = 200


PodSecurity = Literal["baseline", "restricted"]
_REPLACES_ROOTS = Change("in place", "in place: all nodes of the group at once, with new root volumes; pods end")
_OF_A_NEW_GROUP = Change("refused", "refused for an existing group: add one with another name")


class Taint(Model):
    """A Kubernetes taint of a worker group."""

    key: Annotated[str, IN_PLACE]
    """The taint's key."""
    value: Annotated[str, IN_PLACE] = ""
    """The taint's value."""
    effect: Annotated[Literal["NoSchedule", "PreferNoSchedule", "NoExecute"], IN_PLACE]
    """Effect on pods that do not tolerate the taint."""

    @property
    def repels(self) -> bool:
        """Whether it keeps pods away that do not tolerate it."""
        return self.effect != "PreferNoSchedule"


class WorkerGroup(Model):
    """A worker instance group as configured. Missing values come from the size and the accelerator.

    If ``taints`` is None, ``node_placement`` chooses them; an empty list means no taints.
    """

    name: Annotated[GroupName, IN_PLACE] = Field(max_length=GROUP_NAME_LIMIT)
    """Name of the group. Renaming deletes the group and creates another."""
    instance_type: Annotated[str, _OF_A_NEW_GROUP]
    """Instance type, for example ml.p5.48xlarge."""
    count: Annotated[StrictInt | None, IN_PLACE] = Field(None, ge=0, le=MAX_COUNT)
    """Number of nodes. Default: from `size`; 3 without accelerators."""
    min_count: Annotated[StrictInt | None, IN_PLACE] = Field(None, ge=0)
    """Number of nodes with which the group may start; at most `count`, which makes it all or nothing. Needs
    `nodeProvisioning` Continuous."""
    volume_gib: Annotated[StrictInt | None, IN_PLACE] = Field(None, alias="volumeGiB", ge=1, le=MAX_VOLUME_GIB)
    """Data volume of a node at /opt/sagemaker, in GiB. Default: from `size`; 200 without accelerators."""
    threads_per_core: Annotated[StrictInt, _OF_A_NEW_GROUP] = Field(1, ge=1, le=2)
    """Threads per core; 2 turns hyper-threading on if the type supports it."""
    training_plan_arn: Annotated[PlanArn | None, IN_PLACE] = None
    """SageMaker training plan whose reserved capacity the group uses."""
    capacity: Annotated[Literal["on-demand", "spot"], _OF_A_NEW_GROUP] = "on-demand"
    """Purchase option of the nodes. spot needs `nodeProvisioning` Continuous, excludes a training plan, and is
    documented for EKS alone."""
    deep_health_checks: Annotated[tuple[Literal["InstanceStress", "InstanceConnectivity"], ...], IN_PLACE] = ()
    """Checks that HyperPod runs on a new node before jobs may use it, for an hour or two (docs/health.md). Cannot be
    combined with taints. On Slurm for GPUs alone."""
    image_release: Annotated[ImageRelease | None, _REPLACES_ROOTS] = None
    """Release of HyperPod's image, as 2.1.0. Default: the newest when the group is made, and what `hyperpod
    update-software` brings. EKS only."""
    labels: Annotated[dict[str, str], IN_PLACE] = Field(default_factory=dict)
    """Kubernetes labels of the nodes. EKS only."""
    taints: tuple[Taint, ...] | None = None
    """Kubernetes taints of the nodes. Default: none; if the cluster has a group without accelerators, the groups with
    accelerators get a taint that keeps the cluster's own pods off them. An empty list means no taints. EKS only."""

    @property
    def accelerated(self) -> bool:
        """Whether its nodes have accelerators; a name that no type can have counts as one that has."""
        return (row := find(self.instance_type)) is None or bool(row.accelerator)


class Login(Model):
    """The Slurm login group."""

    instance_type: Annotated[
        str, Change("refused", "refused while login nodes exist: remove them first, in an update of their own")
    ]
    """Instance type, for example ml.m5.large."""
    count: Annotated[StrictInt, IN_PLACE] = Field(1, ge=1, le=MAX_COUNT)
    """Number of login nodes."""


class Team(Model):
    """A team that trains on a Kubernetes cluster: its namespace, and who may use it."""

    name: Annotated[Namespace, Change("in place", "in place: a new namespace; the old one is deleted with its jobs")]
    """Name of the team and of its namespace; with task governance the namespace is hyperpod-ns-NAME."""
    role_arns: Annotated[tuple[RoleArn, ...], IN_PLACE] = ()
    """IAM roles that may use the namespace."""
    accelerators: Annotated[StrictInt | None, IN_PLACE] = Field(None, ge=0)
    """Guaranteed number of devices (GPUs or Trainium chips). Default: an equal share."""
    fair_share_weight: Annotated[StrictInt | None, IN_PLACE] = Field(None, ge=0, le=100)
    """Weight by which the team borrows devices that other teams leave idle, 0 to 100. Default: 50. Task governance
    only."""
    volumes_gib: Annotated[StrictInt, IN_PLACE] = Field(2000, alias="volumesGiB", ge=0)
    """Total capacity of the volumes of class gp3 that the team may create, GiB."""
    file_systems_gib: Annotated[StrictInt | None, IN_PLACE] = Field(None, alias="fileSystemsGiB", ge=0)
    """Total capacity of the file systems of class fsx-lustre that the team may create, GiB. Default: the capacity of
    the stack's own file system."""

    @property
    def uid(self) -> int:
        """The id of the user and group that the team's jobs run as. It depends on the team's name alone."""
        return FIRST_UID + int.from_bytes(hashlib.sha256(self.name.encode()).digest()[:8]) % UIDS


class Charts(Model):
    """What runs on the Kubernetes cluster in addition to EKS's own add-ons."""

    mpi_operator: Annotated[StrictBool, IN_PLACE] = True
    """Kubeflow's operator for MPIJob."""
    training_operator: Annotated[StrictBool, IN_PLACE] = True
    """Kubeflow's operator for PyTorchJob."""
    hyperpod_training_operator: Annotated[StrictBool, IN_PLACE] = False
    """SageMaker's operator for HyperPodPyTorchJob, with cert-manager."""
    health_monitoring: Annotated[StrictBool, IN_PLACE] = True
    """HyperPod's agent that detects faulty nodes."""
    deep_health_check: Annotated[StrictBool, IN_PLACE] = True
    """Permissions for deep health checks, in a namespace that health monitoring and job restart also need."""
    job_auto_restart: Annotated[StrictBool, IN_PLACE] = True
    """Restart jobs that request it after a node is replaced, in namespaces whose names begin with hyperpod: with task
    governance, or of teams named so."""
    neuron_scheduler: Annotated[StrictBool, IN_PLACE] = False
    """Scheduler extension that places pods on neighbouring NeuronCores. Trainium only."""
    network_policies: Annotated[StrictBool, IN_PLACE] = True
    """Network policies that isolate each team's pods from the other teams'."""
    strict_network_policies: Annotated[StrictBool, IN_PLACE] = False
    """Give a new pod no connections until its network policies are enforced. Pods in other namespaces then have no
    connections at all unless they have a policy of their own. Needs `networkPolicies`."""
    queues: Annotated[
        Literal["kueue", "task-governance", "none"],
        Change("in part", "in place; from kueue to task-governance or back by way of none"),
    ] = "kueue"
    """What shares the accelerators between the teams: Kueue, SageMaker's task governance, or nothing."""


class Fsx(Model):
    """The FSx for Lustre file system: PERSISTENT_2 on SSD, with the values of the Amazon FSx for Lustre User Guide."""

    storage_gib: Annotated[StrictInt | None, Change("in part", "grows in place, every 6 hours; less is refused")] = (
        Field(None, alias="storageGiB")
    )
    """Capacity in GiB: 1200 or a multiple of 2400. With `efa` a multiple of 38400, 19200, 9600 or 4800, for a
    throughput of 125, 250, 500 or 1000. Default: from `size`."""
    throughput: Annotated[Literal[125, 250, 500, 1000], Change("in part", "in place; refused with `efa`")] = 250
    """Throughput in MB/s per TiB."""
    compression: Annotated[Literal["LZ4", "NONE"], IN_PLACE] = "LZ4"
    """Compression of new data."""
    efa: Annotated[StrictBool, REFUSED] = False
    """Use EFA between the file system and workers whose instance type supports it."""
    linked_bucket: Annotated[BucketName | None, IN_PLACE] = None
    """S3 bucket that appears under /fsx/data; new and changed files are exported to it."""
    export_deletes: Annotated[StrictBool, IN_PLACE] = False
    """Also delete an object in that bucket when its file is deleted."""
    backup_days: Annotated[StrictInt, IN_PLACE] = Field(0, ge=0, le=90)
    """Retention of automatic backups in days; 0 turns them off. Must be 0 with `linkedBucket`."""
    retain_on_delete: Annotated[StrictBool, IN_PLACE] = False
    """Keep the file system when the stack is destroyed. Needs `network.vpcId`."""
    file_system_id: Annotated[FileSystemId | None, REFUSED] = None
    """Existing FSx for Lustre file system for /fsx, such as one that a stack has kept. The stack does not change or
    delete it, and takes its size from it. It must be PERSISTENT_1 or PERSISTENT_2 with Lustre 2.12 or 2.15, in
    `network.vpcId` and the stack's zone, and `efa` must say whether it has EFA."""
    home_file_system_id: Annotated[FileSystemId | None, AT_BOOT] = None
    """Existing FSx file system, Lustre or OpenZFS, that the nodes mount at /home. It must be in `network.vpcId`, and
    its security groups must admit the nodes on TCP 988 and 1018-1023 for Lustre, or 2049 for OpenZFS. Slurm only."""
    home_storage_gib: Annotated[
        StrictInt | None, Change("in part", "grows in place, by a tenth at least and every 6 hours; less is refused")
    ] = Field(None, alias="homeStorageGiB", ge=64, le=524288)
    """Capacity in GiB of an FSx for OpenZFS file system that the stack makes and the nodes mount at /home, 64 to
    524288. Default: none. `backupDays`, `retainOnDelete` and the stack's key hold for it too. Slurm only."""
    home_throughput: Annotated[Literal[64, 128, 256, 512, 1024, 2048, 3072, 4096], IN_PLACE] = 64
    """Throughput of that file system in MB/s. While a change is made it does not answer for minutes."""

    @property
    def own_home(self) -> bool:
        """Whether /home is a file system of its own."""
        return bool(self.home_file_system_id or self.home_storage_gib)


class Security(Model):
    """Permissions, where AWS's examples allow more than a cluster needs, and encryption."""

    lifecycle_writers: Annotated[
        tuple[WriterArn, ...], Change("in part", "in place; refused without the identity that deploys")
    ] = ()
    """ARNs of the IAM roles or users that may write to the lifecycle bucket, whose scripts run as root on the nodes;
    wildcards are allowed. Everybody who deploys or destroys the stack must be among them. Default: the identity of the
    first deployment."""
    node_permissions: Annotated[Literal["narrow", "published"], IN_PLACE] = "narrow"
    """narrow limits the nodes' roles to this stack's VPC, logs and bucket; published grants what the examples in the
    SageMaker Developer Guide grant."""
    pod_security: Annotated[PodSecurity, IN_PLACE] = "baseline"
    """Pod Security Standard of Kubernetes that the teams' namespaces enforce: baseline refuses access to the node,
    restricted also refuses root and capabilities. The project's own jobs pass both. EKS only."""
    worker_secrets: Annotated[StrictBool, IN_PLACE] = False
    """Let workers read secrets whose names begin with hyperpod/CLUSTER/."""
    access_log_bucket: Annotated[BucketName | None, NONE_IF_EMPTY, IN_PLACE] = None
    """Existing S3 bucket of this account and region for the access logs of the lifecycle bucket. Its policy must let
    logging.s3.amazonaws.com write, and a bucket for logs is encrypted with S3's own keys. Default: no access logs."""
    session_logs: Annotated[StrictBool, IN_PLACE] = False
    """Record the sessions that `hyperpod connect` opens on nodes, in the log group /hyperpod/CLUSTER/sessions."""
    session_run_as: Annotated[StrictBool, IN_PLACE] = False
    """Start the sessions of `hyperpod connect` as the account that the tag SSMSessionRunAs of the caller's IAM user or
    role names. Callers without the tag cannot open a session. Needs `sessionLogs`."""
    ssh_only_with_job: Annotated[StrictBool, AT_BOOT] = False
    """Let people log in to a worker by ssh only while a job of theirs runs there (pam_slurm_adopt). root, ubuntu and
    people with sudo may always. docs/slurm-teams.md says what the nodes need for it. Slurm only."""
    kms_key: Annotated[KmsKey | None, REFUSED] = None
    """KMS key that encrypts everything that the stack stores: the ARN of a symmetric key of this account and region, or
    create for a key of the stack's own. Needs `nodeProvisioning` Continuous. Default: keys of AWS's."""


class Settings(Model):
    """The keys of the ``hyperpod`` namespace, typed; Pulumi.yaml documents them. ``Config`` adds what they imply."""

    cluster_name: Annotated[ClusterName, REFUSED] = "hyperpod"
    orchestrator: Annotated[Literal["slurm", "eks"], REFUSED] = "slurm"
    accelerator: Annotated[
        Literal["gpu", "trainium"], Change("in part", "in place if the worker groups get new names; otherwise refused")
    ] = "gpu"
    size: Annotated[
        Literal["small", "medium", "large"], Change("in part", "in place; refused if the file system would shrink")
    ] = "small"
    availability_zone_id: Annotated[str | None, NONE_IF_EMPTY, REFUSED] = None
    workers: Annotated[tuple[WorkerGroup, ...], _MEMBERS] = ()
    controller_instance_type: Annotated[str, REFUSED] = DEFAULT_CONTROLLER_TYPE
    login: Annotated[Login | None, NONE_IF_EMPTY, _MEMBERS] = None
    kubernetes_version: Annotated[str, Change("in part", "in place, one minor version up; otherwise refused")] = (
        DEFAULT_VERSION
    )
    kubernetes_api_cidrs: Annotated[tuple[str, ...], IN_PLACE] = ()
    administrator_role_arns: Annotated[tuple[RoleArn, ...], IN_PLACE] = ()
    authentication_mode: Annotated[
        Literal["API", "API_AND_CONFIG_MAP"], Change("in part", "in place to API; refused back")
    ] = DEFAULT_AUTHENTICATION_MODE
    slurm: Slurm = Slurm()
    charts: Charts = Charts()
    teams: Annotated[tuple[Team, ...], _MEMBERS] = ()
    fsx: Fsx = Fsx()
    network: NetworkConfig = NetworkConfig()
    existing_role_arn: Annotated[RoleArn | None, NONE_IF_EMPTY, REFUSED] = None
    permissions_boundary_arn: Annotated[BoundaryArn | None, NONE_IF_EMPTY, IN_PLACE] = None
    security: Security = Security()
    ssh_public_key: Annotated[SshPublicKey | None, NONE_IF_EMPTY, AT_BOOT] = None
    users: Annotated[tuple[User, ...], APPLIED] = ()
    users_file: Annotated[str | None, NONE_IF_EMPTY, APPLIED] = None
    observability: Observability = Observability()
    alerts: Alerts = Alerts()
    validation: Annotated[StrictBool, IN_PLACE] = True
    benchmarks: Annotated[StrictBool, IN_PLACE] = False
    imds_v1: Annotated[StrictBool, AT_BOOT] = Field(False, alias="imdsV1")
    # Between four probes of half a second and the SlurmdTimeout in lifecycle/hyperpod_node/slurm_conf.py.
    lost_node_seconds: Annotated[StrictInt, AT_BOOT] = Field(DEFAULT_LOST_NODE_SECONDS, ge=2, le=60)
    health_policy: Annotated[Literal["report", "drain", "reboot", "replace"], AT_BOOT] = "drain"
    health_checks: Annotated[str | None, NONE_IF_EMPTY, AT_BOOT] = None
    node_recovery: Annotated[Literal["Automatic", "None"], IN_PLACE] = "Automatic"
    # None leaves the mode of the cluster as it is: one from before Continuous was the default may have another.
    node_provisioning: Annotated[
        Literal["Continuous"] | None,
        NONE_IF_EMPTY,
        Change("in place", "in place to Continuous, which cannot be reverted"),
    ] = "Continuous"
    tags: Annotated[dict[str, str], IN_PLACE] = Field(default_factory=dict)
    protect: Annotated[StrictBool, IN_PLACE] = False

    @property
    def groups(self) -> tuple[WorkerGroup, ...]:
        """The configured worker groups, or one of the accelerator's default type."""
        default = WorkerGroup(name="workers", instanceType=ACCELERATORS[self.accelerator].default_worker_type)
        return self.workers or (default,)

    @property
    def namespaces(self) -> tuple[Team, ...]:
        """The configured teams, or one that everybody with the kubeconfig shares."""
        return self.teams or (Team(name=DEFAULT_TEAM),)

    @property
    def fsx_gib(self) -> int:
        """Capacity of the file system in GiB."""
        return self.fsx.storage_gib or SIZES[self.size].fsx_gib

    def count_of(self, group: WorkerGroup) -> int:
        """Number of nodes in a worker group: as configured, or the default."""
        if group.count is not None:
            return group.count
        return SIZES[self.size].workers if group.accelerated else SYSTEM_NODES

    def volume_of(self, group: WorkerGroup) -> int:
        """Data volume of a worker group's nodes in GiB: as configured, or the default."""
        if group.volume_gib is not None:
            return group.volume_gib
        return SIZES[self.size].volume_gib if group.accelerated else HEAD_VOLUME_GIB

    def namespace_of(self, team: str) -> str:
        """A team's namespace. SageMaker's task governance prescribes the name (CreateComputeQuota)."""
        return f"hyperpod-ns-{team}" if self.charts.queues == "task-governance" else team
