"""The keys of the stack's configuration, typed, with their defaults.

``Pulumi.yaml`` documents the top-level keys. Rules that relate several keys are in ``checks.py``.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StrictBool, StrictInt

from ..alerts.keys import Alerts
from ..catalogue.accelerators import ACCELERATORS
from ..catalogue.kubernetes_versions import DEFAULT_VERSION
from ..kubernetes.keys import DEFAULT_AUTHENTICATION_MODE, DEFAULT_TEAM, Charts, Team
from ..network.keys import NetworkConfig
from ..observability.keys import Observability
from ..people.keys import APPLIED, User
from ..schema.fields import (
    AT_BOOT,
    IN_PLACE,
    NONE_IF_EMPTY,
    REFUSED,
    BoundaryArn,
    Change,
    ClusterName,
    Model,
    RoleArn,
    SshPublicKey,
)
from ..security.keys import Security
from ..slurm.keys import DEFAULT_LOST_NODE_SECONDS, Slurm
from ..storage.keys import Fsx
from ..workers.keys import (
    DEFAULT_CONTROLLER_TYPE,
    HEAD_VOLUME_GIB,
    SIZES,
    SYSTEM_NODES,
    Login,
    WorkerGroup,
)

_MEMBERS = Change("in place", "added and removed in place")


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
    # Between four probes of half a second and the SlurmdTimeout in lifecycle/hyperpod_node/slurm/conf.py.
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
