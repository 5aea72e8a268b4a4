"""The facts that a step has about the cluster and its own node."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any, Dict, List, Literal, Mapping, Optional, Tuple

from ..host import aws_cli
from ..host.errors import StepError
from ..host.host import Host

# The tag of the stack's own file system; its value is the cluster id.
CLUSTER_ID_TAG = "hyperpod:cluster-id"
# In the place of an id: the stack makes the file system for /home, whose id is not known before the nodes start.
HOME_MADE = "openzfs"
# Forms of texts: a name that other files can have in a line, a path without spaces, an address on the web, a name in
# Slurm's database, an address block.
WORD = {"form": r"[!-~]+"}
PATH = {"form": r"/[!-~]*"}
URL = {"form": r"https:/{2}[!-~]+"}
# Names that sacctmgr(1) keeps unchanged: it changes capitals to small letters.
SLURM_NAME = {"form": r"[a-z0-9][a-z0-9_-]*"}
CIDR = {"form": r"(\d{1,3}\.){3}\d{1,3}/\d{1,2}"}

# A name that useradd(8) takes, and a line of authorized_keys without options.
USER_NAME = r"[a-z_][a-z0-9_-]{0,31}"
NAME = {"form": USER_NAME}
PUBLIC_KEY = {"form": r"[a-z0-9@.-]+ [A-Za-z0-9+/]+={0,3}( [ -~]*)?"}

# A file of AWS's configuration with nothing but the role for MLflow, for programs that log to it (AWS_CONFIG_FILE).
MLFLOW_CONFIG = "mlflow-aws.conf"

# The account of people on HyperPod's image.
IMAGE_USER = "ubuntu"

NodeRole = Literal["controller", "login", "worker"]


def own_path(cluster: str) -> str:
    """Return the path of a cluster's parameters, secrets, roles for people and log groups."""
    return f"hyperpod/{cluster}"


@dataclass(frozen=True)
class Group:
    """One instance group of hyperpod_parameters.json: its role, and its row of the instance catalogue. ``taints``: the
    keys of its Kubernetes nodes' taints. ``gres``: the name of its accelerators in Slurm, with a type after a colon if
    jobs may ask for one (``gpu:h100``). ``partition``: the one that HyperPod's agent makes, which groups share.
    ``features``: the features of its nodes in Slurm for which jobs may ask (slurm/partitions.py).
    """

    name: str = field(metadata=WORD)
    role: NodeRole
    instance_type: str = field(metadata=WORD)
    partition: str
    accelerator: Literal["gpu", "trainium", ""]
    accelerator_model: str
    accelerators: int
    neuron_cores: int
    gres: str
    efa: Literal["yes", "no", "maybe"]
    efa_interfaces: int
    lustre_efa_interfaces: int
    rdma_read: bool
    network_gbps: float
    nvme_disks: int
    taints: Tuple[str, ...] = field(metadata=WORD)
    features: Tuple[str, ...] = field(metadata=WORD)

    @property
    def gres_name(self) -> str:
        """``gres`` without a type."""
        return self.gres.partition(":")[0]


@dataclass(frozen=True)
class Account:
    """An account of Slurm's, by sacctmgr(1). ``max_gpus``: accelerators that all of its jobs may have at a time.

    ``qos``: the qualities of service for its jobs, the default first; empty leaves Slurm's own.
    """

    name: str = field(metadata=SLURM_NAME)
    parent: str = field(metadata=SLURM_NAME)
    fairshare: int
    max_gpus: Optional[int]
    qos: Tuple[str, ...] = field(metadata=SLURM_NAME)
    users: Tuple[str, ...] = field(metadata=WORD)


@dataclass(frozen=True)
class Qos:
    """A quality of service of Slurm, by sacctmgr(1). ``preempts``: qualities whose jobs return to the queue for it."""

    name: str = field(metadata=SLURM_NAME)
    priority: int
    preempts: Tuple[str, ...] = field(metadata=SLURM_NAME)
    max_gpus: Optional[int]
    max_gpus_per_user: Optional[int]
    max_hours: Optional[int]


@dataclass(frozen=True)
class Default:
    """The account to which a person's jobs are charged unless they name another."""

    user: str = field(metadata=WORD)
    account: str = field(metadata=SLURM_NAME)


@dataclass(frozen=True)
class Accounting:
    """Slurm's record of jobs, how long it is kept, and Slurm's limits (accounting/). ``defaults`` has only people whose
    default is configured; for others it is the first account of which they became members. ``database``: where it is
    kept, on the controller or in a database of Amazon RDS (accounting/remote.py).
    """

    database: Literal["local", "rds"]
    retention_months: int
    accounts: Tuple[Account, ...]
    qos: Tuple[Qos, ...]
    defaults: Tuple[Default, ...]


@dataclass(frozen=True)
class Mlflow:
    """ARNs of the app that jobs log to, and of the role that they have for it (people/credentials.py)."""

    app: str = field(metadata=WORD)
    role: str = field(metadata=WORD)


@dataclass(frozen=True)
class Parameters:
    """hyperpod_parameters.json: its keys are the fields. The stack's program makes one, nodes read it back.

    ``cidrs``: the address blocks of the nodes, empty where they are not known. ``fsx_id``: an existing file system for
    /fsx, None if the stack creates one. ``fsx_efa``: whether it speaks EFA. ``home_fsx_id``: another file system that
    is mounted at /home, or HOME_MADE. ``remote_write_url``: the destination of metrics, None if nothing collects any;
    ``metrics_detail``: how many are collected. ``images_registry``: where the images of AWS's exporters are.
    ``health_policy``: the consequence for a node that its health checks find bad (health/policy.py).
    ``ssh_only_with_job``: whether people need a job on a worker to log in there (people/ssh_jobs.py). ``containers``:
    whether jobs may run in them (slurm/containers.py). ``accounting``: None where Slurm keeps no account of jobs.
    ``shared_queue``: whether the queue is on the shared file system, for another controller (slurm/shared_queue.py).
    ``setup``: who sets Slurm up, these scripts or HyperPod's image before them; the file has it only for the image.
    ``mlflow``: None, and not in the file, where the stack has no such app.
    ``fallback_groups``: further types of groups that have several, which only their names and types tell apart.
    """

    cluster_id: str = field(metadata=WORD)
    cluster_name: str = field(metadata=WORD)
    region: str = field(metadata=WORD)
    orchestrator: Literal["slurm", "eks"]
    instance_groups: Tuple[Group, ...]
    fsx_mount: str = field(metadata=PATH)
    fsx_id: Optional[str] = field(metadata=WORD)
    fsx_efa: bool
    home_fsx_id: Optional[str] = field(metadata=WORD)
    ssh_public_key_parameter: Optional[str] = field(metadata=WORD)
    imds_v1: bool
    cidrs: Tuple[str, ...] = field(metadata=CIDR)
    lost_after_seconds: float
    remote_write_url: Optional[str] = field(metadata=URL)
    images_registry: str = field(metadata=WORD)
    metrics_detail: Literal["basic", "advanced"]
    health_policy: Literal["report", "drain", "reboot", "replace"]
    ssh_only_with_job: bool
    containers: bool
    accounting: Optional[Accounting]
    shared_queue: bool
    setup: Literal["scripts", "image"] = "scripts"
    mlflow: Optional[Mlflow] = None
    fallback_groups: Tuple[Group, ...] = ()

    @property
    def groups(self) -> Dict[str, Group]:
        """The instance groups by name."""
        return {group.name: group for group in self.instance_groups}

    @property
    def shared(self) -> str:
        """Our own folder on the shared file system."""
        return self.fsx_mount.rstrip("/") + "/.hyperpod"


@dataclass(frozen=True)
class Person:
    """A person with an account on every node; ``gid`` is ``uid`` if the group is theirs alone."""

    name: str = field(metadata=NAME)
    uid: int
    gid: int
    ssh_keys: Tuple[str, ...] = field(metadata=PUBLIC_KEY)
    sudo: bool


@dataclass(frozen=True)
class People:
    """hyperpod_people.json, which a stack with people has. ``homes`` is the folder on the shared file system."""

    cluster_id: str = field(metadata=WORD)
    homes: str = field(metadata=PATH)
    people: Tuple[Person, ...]


@dataclass(frozen=True)
class ConfFile:
    """A file of the stack's with lines of slurm.conf."""

    name: str = field(metadata={"form": r"[A-Za-z0-9][A-Za-z0-9._-]*\.conf"})
    text: str = field(metadata={"form": r"[ -~\t\r\n]*"})


@dataclass(frozen=True)
class ExtraConf:
    """hyperpod_slurm_conf.json, which a stack with such files has."""

    cluster_id: str = field(metadata=WORD)
    files: Tuple[ConfFile, ...]


@dataclass(frozen=True)
class Instance:
    """One instance of resource_config.json. ``address`` is the one by which other nodes reach it."""

    group: str
    name: str
    address: str
    instance_id: str


def host_name(address: str) -> str:
    """Return the name that EC2 gives a host with this address."""
    return "ip-" + address.replace(".", "-")


@dataclass(frozen=True)
class Probe:
    """The EFA devices found on a node. ``rdma_read`` is None if it could not be determined."""

    devices: int
    rdma_read: Optional[bool]
    source: str


@dataclass(frozen=True)
class NodeRecord:
    """node.json: the stack's parameters, and the facts that a boot found about its node, for services and commands."""

    parameters: Parameters
    instance: Instance
    transport: str
    probe: Probe

    @property
    def group(self) -> Group:
        """The node's instance group."""
        return self.parameters.groups[self.instance.group]

    @property
    def shared(self) -> str:
        """Our own folder on the shared file system."""
        return self.parameters.shared


@dataclass(frozen=True)
class Identity:
    """Which node this is, and all nodes of the cluster."""

    instance: Instance
    group: Group
    instances: Tuple[Instance, ...]

    @property
    def role(self) -> str:
        """controller, login or worker."""
        return self.group.role

    def in_role(self, role: str, groups: Mapping[str, Group]) -> List[Instance]:
        """Return the instances of a role."""
        return [i for i in self.instances if i.group in groups and groups[i.group].role == role]


@dataclass
class Node:
    """One run of the steps on one node. Steps store their findings in it for the steps that need them."""

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
    def by_image(self) -> bool:
        """Whether HyperPod's image sets Slurm and file systems up (LifeCycleConfig with OnInitComplete)."""
        return self.parameters.setup == "image"

    @property
    def shared(self) -> str:
        """Our own folder on the shared file system."""
        return self.parameters.shared

    @property
    def private(self) -> str:
        """The part of the shared folder that only root may open."""
        return self.shared + "/private"

    def aws(self, *args: str) -> Any:
        """Return one call's parsed output (host/aws_cli.py)."""
        known = self.parameters
        return aws_cli.ask(self.host, known.region, self.timeout("aws"), *args, v1=known.imds_v1)

    def timeout(self, name: str) -> float:
        """Return the seconds that a step may wait for something."""
        return self.host.settings.timeouts[name]

    def enter(self, step: str) -> None:
        """Collect this thread's warnings for this step from now on."""
        self._step.name = step

    def warn(self, text: str) -> None:
        """Record a warning: the node comes up, and shows it in its summary."""
        self.warnings.setdefault(getattr(self._step, "name", ""), []).append(text)
