"""The keys of the stack's configuration, typed, with their defaults.

``Pulumi.yaml`` documents the top-level keys. Rules that relate several keys are in ``checks.py``.
"""

from typing import Annotated, Literal

from pydantic import Field, StrictBool, StrictInt

from ..alerts.keys import Alerts
from ..kubernetes.keys import KubernetesKeys
from ..network.endpoint_services import interface_services
from ..network.keys import NetworkConfig
from ..network.subnets import addresses_needed
from ..observability.keys import Observability
from ..people.keys import APPLIED, User
from ..schema.fields import AT_BOOT, IN_PLACE, NONE_IF_EMPTY, REFUSED, BoundaryArn, Change, RoleArn, SshPublicKey
from ..security.keys import Security
from ..slurm.keys import Slurm
from ..storage.checks import file_servers
from ..storage.keys import Fsx
from ..workers.keys import DEFAULT_LOST_NODE_SECONDS, SIZES


class Settings(KubernetesKeys):
    """The keys of the ``hyperpod`` namespace, typed; Pulumi.yaml documents them. ``Config`` adds values derived from
    them.
    """

    slurm: Slurm = Slurm()
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
    def fsx_gib(self) -> int:
        """Capacity of the file system in GiB."""
        return self.fsx.storage_gib or SIZES[self.size].fsx_gib

    @property
    def addresses(self) -> int:
        """The number of addresses that the private subnet needs."""
        return addresses_needed(self, self.network, file_servers(self.fsx, self.fsx_gib))

    @property
    def interface_services(self) -> tuple[str, ...]:
        """The AWS services with an interface endpoint in the VPC."""
        metrics = self.observability.with_prometheus
        return interface_services(self.network, on_eks=self.orchestrator == "eks", metrics=metrics)
