"""What a step knows of the cluster and of its own node."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Tuple

from .errors import StepError
from .host import Host

CLUSTER_ID_TAG = "hyperpod:cluster-id"
ROLES = ("controller", "login", "worker")


@dataclass(frozen=True)
class Group:
    """One instance group of hyperpod_parameters.json: its role, and its row of the instance catalogue."""

    name: str
    role: str
    instance_type: str
    count: int = 0
    accelerator: str = ""
    accelerator_model: str = ""
    accelerators: int = 0
    neuron_cores: int = 0
    gres: str = ""
    efa: str = "no"
    efa_interfaces: int = 0
    lustre_efa_interfaces: int = 0
    rdma_read: bool = False
    network_gbps: float = 0.0
    nvme_disks: int = 0
    partition: str = ""


@dataclass(frozen=True)
class Parameters:
    """hyperpod_parameters.json, checked."""

    cluster_id: str
    cluster_name: str
    region: str
    orchestrator: str
    accelerator: str
    groups: Mapping[str, Group]
    fsx_mount: str = "/fsx"
    fsx_tag: Tuple[str, str] = (CLUSTER_ID_TAG, "")
    fsx_efa: bool = False
    home_fsx_id: Optional[str] = None
    ssh_public_key_parameter: Optional[str] = None
    imds_v1: bool = False
    cidrs: Tuple[str, ...] = ()
    lost_after_seconds: float = 10.0

    def workers(self) -> List[Group]:
        """The groups that run jobs."""
        return [group for group in self.groups.values() if group.role == "worker"]


@dataclass(frozen=True)
class Instance:
    """One instance of resource_config.json. ``address`` is the one other nodes reach it by."""

    group: str
    name: str
    address: str
    instance_id: str


@dataclass(frozen=True)
class Identity:
    """Which node this is, and which ones there are."""

    instance: Instance
    group: Group
    instances: Tuple[Instance, ...]

    @property
    def role(self) -> str:
        """controller, login or worker."""
        return self.group.role

    def in_role(self, role: str, groups: Mapping[str, Group]) -> List[Instance]:
        """The instances of a role."""
        return [i for i in self.instances if i.group in groups and groups[i.group].role == role]


@dataclass
class Node:
    """One run of the steps on one node. Steps leave what they found out for those that need them."""

    host: Host
    parameters_: Optional[Parameters] = None
    identity_: Optional[Identity] = None
    transport: str = ""
    facts: Dict[str, Any] = field(default_factory=dict)
    warnings: Dict[str, List[str]] = field(default_factory=dict)
    _step: threading.local = field(default_factory=threading.local)

    @property
    def parameters(self) -> Parameters:
        """The cluster's parameters."""
        if self.parameters_ is None:
            raise StepError("the parameters are not known")
        return self.parameters_

    @property
    def identity(self) -> Identity:
        """Which node this is."""
        if self.identity_ is None:
            raise StepError("this node's identity is not known")
        return self.identity_

    @property
    def role(self) -> str:
        """controller, login or worker."""
        return self.identity.role

    @property
    def shared(self) -> str:
        """Our own folder on the shared file system."""
        return self.parameters.fsx_mount.rstrip("/") + "/.hyperpod"

    @property
    def private(self) -> str:
        """The part of it that only root may open."""
        return self.shared + "/private"

    def timeout(self, name: str) -> float:
        """Seconds that a step may wait for something."""
        return self.host.settings.timeouts[name]

    def enter(self, step: str) -> None:
        """From here on, this thread's warnings are this step's."""
        self._step.name = step

    def warn(self, text: str) -> None:
        """Something is not as it should be; the node comes up with it, and says so in its summary."""
        self.warnings.setdefault(getattr(self._step, "name", ""), []).append(text)
