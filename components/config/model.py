"""The keys of the stack's configuration, typed, and what follows from them.

``Pulumi.yaml`` documents the keys for people and for the engine.
What one value says about another (a GPU type with Trainium, a zone of another region) is in ``checks.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from ..catalogue.accelerators import ACCELERATORS, CATALOGUE
from ..catalogue.kubernetes_versions import DEFAULT_VERSION


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, strict=False)


def _empty_is_none(value: object) -> object:
    """Pulumi requires a default for an optional key; the empty one means "not given"."""
    return None if value in ("", {}) else value


OptionalText: TypeAlias = Annotated[str | None, BeforeValidator(_empty_is_none)]


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


class Taint(_Model):
    """A Kubernetes taint of a worker group."""

    key: str
    value: str = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]

    @property
    def repels(self) -> bool:
        """Whether no pod comes that does not tolerate it."""
        return self.effect != "PreferNoSchedule"


class WorkerGroup(_Model):
    """A worker instance group as configured; what is left out comes from the size and the accelerator.

    ``taints`` of None are those that ``node_placement`` finds right; an empty list is none.
    """

    name: str
    instance_type: str
    count: int | None = None
    min_count: int | None = None
    volume_gib: int | None = Field(None, alias="volumeGiB")
    threads_per_core: int = 1
    training_plan_arn: str | None = None
    capacity: Literal["on-demand", "spot"] = "on-demand"
    deep_health_checks: tuple[Literal["InstanceStress", "InstanceConnectivity"], ...] = ()
    labels: dict[str, str] = Field(default_factory=dict)
    taints: tuple[Taint, ...] | None = None

    @property
    def accelerated(self) -> bool:
        """Whether its nodes compute on accelerators; unknown instance types count as such."""
        return (row := CATALOGUE.get(self.instance_type)) is None or bool(row.accelerator)


class Login(_Model):
    """The Slurm login group."""

    instance_type: str
    count: int = 1


class Team(_Model):
    """Who trains on a Kubernetes cluster: a namespace of that name, and who may use it.

    ``accelerators`` is how many devices (GPUs, Trainium chips) the team is sure of, None for an equal share.
    """

    name: str
    role_arns: tuple[str, ...] = ()
    accelerators: int | None = None


class Charts(_Model):
    """What runs on the Kubernetes cluster besides EKS's own add-ons."""

    mpi_operator: bool = True
    training_operator: bool = True
    hyperpod_training_operator: bool = False
    health_monitoring: bool = True
    deep_health_check: bool = True
    job_auto_restart: bool = True
    neuron_scheduler: bool = False
    network_policies: bool = True
    queues: Literal["kueue", "task-governance", "none"] = "kueue"


class Fsx(_Model):
    """FSx for Lustre: capacity in GiB, throughput in MB/s per TiB, automatic backups kept in days, EFA to the nodes."""

    storage_gib: int | None = Field(None, alias="storageGiB")
    throughput: int = 250
    compression: Literal["LZ4", "NONE"] = "LZ4"
    efa: bool = False
    linked_bucket: str | None = None
    export_deletes: bool = False
    backup_days: int = 0
    retain_on_delete: bool = False
    home_file_system_id: str | None = None


class NetworkConfig(_Model):
    """Address ranges of a VPC to make, or the ids of one that exists."""

    cidr: str = "10.0.0.0/16"
    secondary_cidr: OptionalText = "10.1.0.0/16"
    vpc_id: str | None = None
    private_subnet_id: str | None = None
    security_group_ids: tuple[str, ...] = ()
    eks_subnet_ids: tuple[str, ...] = ()
    closed: bool = False
    image_registry: str | None = None


class Settings(_Model):
    """The keys of the ``hyperpod`` namespace, typed. ``Config`` adds what is derived from them."""

    cluster_name: str = "hyperpod"
    orchestrator: Literal["slurm", "eks"] = "slurm"
    accelerator: Literal["gpu", "trainium"] = "gpu"
    size: Literal["small", "medium", "large"] = "small"
    availability_zone_id: OptionalText = None
    workers: tuple[WorkerGroup, ...] = ()
    controller_instance_type: str = DEFAULT_CONTROLLER_TYPE
    login: Annotated[Login | None, BeforeValidator(_empty_is_none)] = None
    kubernetes_version: str = DEFAULT_VERSION
    kubernetes_api_cidrs: tuple[str, ...] = ()
    administrator_role_arns: tuple[str, ...] = ()
    authentication_mode: Literal["API", "API_AND_CONFIG_MAP"] = DEFAULT_AUTHENTICATION_MODE
    charts: Charts = Charts()
    teams: tuple[Team, ...] = ()
    fsx: Fsx = Fsx()
    network: NetworkConfig = NetworkConfig()
    existing_role_arn: OptionalText = None
    ssh_public_key: OptionalText = None
    observability: bool = False
    validation: bool = True
    benchmarks: bool = False
    imds_v1: bool = Field(False, alias="imdsV1")
    lost_node_seconds: int = DEFAULT_LOST_NODE_SECONDS
    node_recovery: Literal["Automatic", "None"] = "Automatic"
    node_provisioning: Annotated[Literal["Continuous"] | None, BeforeValidator(_empty_is_none)] = None
    tags: dict[str, str] = Field(default_factory=dict)
    protect: bool = False

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
