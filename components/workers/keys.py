"""The keys of instance groups, and the sizes that fill in missing values."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, StrictBool, StrictInt

from ..catalogue.accelerators import ACCELERATORS, find
from ..schema.fields import (
    IN_PLACE,
    NONE_IF_EMPTY,
    REFUSED,
    AmiId,
    Change,
    ClusterName,
    GroupName,
    IdleTime,
    ImageRelease,
    Model,
    NodeShare,
    PlanArn,
)

# SageMaker API Reference: CreateCluster (InstanceCount, VolumeSizeInGB), InstanceGroupName.
MAX_COUNT = 6758
MAX_VOLUME_GIB = 16384
# SageMaker API Reference, ClusterInstanceRequirements, InstanceTypes.
MAX_TYPES = 20
GROUP_NAME_LIMIT = 63


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
DEFAULT_LOST_NODE_SECONDS = 10
DEFAULT_CONTROLLER_TYPE = "ml.m5.2xlarge"
# Default number of nodes in a group without accelerators. HyperPod does not replace such nodes by itself, and a small
# one takes 14 pods (SageMaker Developer Guide, "Getting started with Amazon EKS support in SageMaker HyperPod").
SYSTEM_NODES = 3
# Data volume of nodes that do not train: that of the controller in the CloudFormation templates in
# github.com/sunilpp/hyperpod-quickstart.
HEAD_VOLUME_GIB = 200
_REPLACES_ROOTS = Change("in place", "in place: all nodes of the group at once, with new root volumes; pods end")
# "Updating SageMaker HyperPod cluster configuration", the same guide, InstanceType.
_TYPES = Change(
    "in part",
    "further types are added in place; refused to remove one, or to add the first one to an existing group",
)
MEMBERS = Change("in place", "added and removed in place")
OF_A_NEW_GROUP = Change("refused", "refused for an existing group: add one with another name")


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
    instance_type: Annotated[str, OF_A_NEW_GROUP]
    """Instance type, for example ml.p5.48xlarge."""
    fallback_types: Annotated[tuple[str, ...], _TYPES] = ()
    """Further instance types, in the order in which HyperPod tries them for each node that it cannot get as
    `instanceType`. Like that one they have the same number of the same kind of accelerators, architecture and
    network transport. Needs `nodeProvisioning` Continuous, and excludes `trainingPlanArn`, spot and task
    governance. EKS only."""
    count: Annotated[StrictInt | None, IN_PLACE] = Field(None, ge=0, le=MAX_COUNT)
    """Number of nodes; with `scaling` demand the most. Default: from `size`; 3 without accelerators."""
    scaling: Annotated[Literal["fixed", "demand"], OF_A_NEW_GROUP] = "fixed"
    """fixed: the group has `count` nodes. demand: HyperPod's Karpenter adds nodes for pods that wait, up to `count`,
    and removes idle ones, down to none. demand needs `autoscaling`, and excludes `trainingPlanArn`, `minCount` and
    `deepHealthChecks`. EKS only."""
    min_count: Annotated[StrictInt | None, IN_PLACE] = Field(None, ge=0)
    """Number of nodes with which the group may start; at most `count`, which makes it all or nothing. Needs
    `nodeProvisioning` Continuous."""
    volume_gib: Annotated[StrictInt | None, IN_PLACE] = Field(None, alias="volumeGiB", ge=1, le=MAX_VOLUME_GIB)
    """Data volume of a node at /opt/sagemaker, in GiB. Default: from `size`; 200 without accelerators."""
    threads_per_core: Annotated[StrictInt, OF_A_NEW_GROUP] = Field(1, ge=1, le=2)
    """Threads per core; 2 turns hyper-threading on if the type supports it."""
    training_plan_arn: Annotated[PlanArn | None, IN_PLACE] = None
    """SageMaker training plan whose reserved capacity the group uses."""
    capacity: Annotated[Literal["on-demand", "spot"], OF_A_NEW_GROUP] = "on-demand"
    """Purchase option of the nodes. spot needs `nodeProvisioning` Continuous, excludes a training plan, and is
    documented only for EKS."""
    deep_health_checks: Annotated[tuple[Literal["InstanceStress", "InstanceConnectivity"], ...], IN_PLACE] = ()
    """Checks that HyperPod runs on a new node before jobs may use it, for an hour or two (docs/health.md). Cannot be
    combined with taints. On Slurm only for GPUs."""
    image_release: Annotated[ImageRelease | None, _REPLACES_ROOTS] = None
    """Release of HyperPod's image, as 2.1.0. Default: the newest when the group is made, and what `hyperpod node
    update-software` brings. EKS only."""
    image_id: Annotated[AmiId | None, OF_A_NEW_GROUP] = None
    """Your own image, made from one of HyperPod's public images (docs/images.md), in place of the newest of those.
    Needs `nodeProvisioning` Continuous, and excludes `imageRelease` and `autoPatch`."""
    auto_patch: Annotated[Literal["WhenIdle", "WhenAllIdle"] | None, IN_PLACE] = None
    """Have HyperPod apply security patches of the image, 21 days after each comes out, to every node that becomes idle
    (WhenIdle), or to all once all are idle (WhenAllIdle). For up to a day no new pod starts on these nodes. Default: no
    patch without `hyperpod node update-software`. EKS only."""
    labels: Annotated[dict[str, str], IN_PLACE] = Field(default_factory=dict)
    """Kubernetes labels of the nodes. EKS only."""
    taints: tuple[Taint, ...] | None = None
    """Kubernetes taints of the nodes. Default: none; if the cluster has a group without accelerators, the groups with
    accelerators get a taint that keeps the cluster's own pods off them. An empty list means no taints. EKS only."""

    @property
    def types(self) -> tuple[str, ...]:
        """Its instance types, in order of preference."""
        return (self.instance_type, *self.fallback_types)

    def keyed_types(self, key: str) -> list[tuple[str, str]]:
        """Return each type with the key that names it, where ``key`` is the group's."""
        more = ((f"{key}.fallbackTypes[{number}]", name) for number, name in enumerate(self.fallback_types))
        return [(f"{key}.instanceType", self.instance_type), *more]

    @property
    def accelerated(self) -> bool:
        """Whether its nodes have accelerators; a name that no type can have counts as accelerated."""
        return (row := find(self.instance_type)) is None or bool(row.accelerator)


class Autoscaling(Model):
    """HyperPod's managed Karpenter, for the groups whose nodes follow demand."""

    enabled: Annotated[StrictBool, IN_PLACE]
    """true turns Karpenter on. false turns it off in a stack that had it."""
    consolidation: Annotated[Literal["WhenEmpty", "WhenEmptyOrUnderutilized"], IN_PLACE] = "WhenEmpty"
    """Nodes that Karpenter may remove: those without a job, or also those whose pods fit elsewhere, which interrupts
    jobs, except those of `hyperpod job run`."""
    consolidate_after: Annotated[IdleTime, IN_PLACE] = "10m"
    """How long such a node stays, for example 10m or 1h30m, or Never."""
    disruption_budget: Annotated[NodeShare, IN_PLACE] = "10%"
    """How many of a group's nodes Karpenter may remove at the same time: a number or a share."""


class Login(Model):
    """The Slurm login group."""

    instance_type: Annotated[
        str, Change("refused", "refused while login nodes exist: remove them first, in an update of their own")
    ]
    """Instance type, for example ml.m5.large."""
    count: Annotated[StrictInt, IN_PLACE] = Field(1, ge=1, le=MAX_COUNT)
    """Number of login nodes."""


class ClusterKeys(Model):
    """The keys that describe the cluster and its nodes, on which most rules of other features depend."""

    cluster_name: Annotated[ClusterName, REFUSED] = "hyperpod"
    orchestrator: Annotated[Literal["slurm", "eks"], REFUSED] = "slurm"
    accelerator: Annotated[
        Literal["gpu", "trainium"], Change("in part", "in place if the worker groups get new names; otherwise refused")
    ] = "gpu"
    size: Annotated[
        Literal["small", "medium", "large"], Change("in part", "in place; refused if the file system would shrink")
    ] = "small"
    availability_zone_id: Annotated[str | None, NONE_IF_EMPTY, REFUSED] = None
    workers: Annotated[tuple[WorkerGroup, ...], MEMBERS] = ()
    autoscaling: Annotated[
        Autoscaling | None, NONE_IF_EMPTY, Change("in part", "in place; refused to leave it out again: `enabled` false")
    ] = None
    controller_instance_type: Annotated[str, REFUSED] = DEFAULT_CONTROLLER_TYPE
    login: Annotated[Login | None, NONE_IF_EMPTY, MEMBERS] = None

    @property
    def groups(self) -> tuple[WorkerGroup, ...]:
        """Return the configured worker groups, or one of the accelerator's default type."""
        default = WorkerGroup(name="workers", instanceType=ACCELERATORS[self.accelerator].default_worker_type)
        return self.workers or (default,)

    def count_of(self, group: WorkerGroup) -> int:
        """Return the number of nodes in a worker group: as configured, or the default."""
        if group.count is not None:
            return group.count
        return SIZES[self.size].workers if group.accelerated else SYSTEM_NODES

    def least_of(self, group: WorkerGroup) -> int:
        """Return the number of nodes that a worker group always has."""
        return self.count_of(group) if group.scaling == "fixed" else 0

    def volume_of(self, group: WorkerGroup) -> int:
        """Return the data volume of a worker group's nodes in GiB: as configured, or the default."""
        if group.volume_gib is not None:
            return group.volume_gib
        return SIZES[self.size].volume_gib if group.accelerated else HEAD_VOLUME_GIB
