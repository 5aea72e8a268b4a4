"""The keys of EKS: its teams and its charts."""

import hashlib
from typing import Annotated, Literal

from pydantic import Field, StrictBool, StrictInt

from ..catalogue.kubernetes_versions import DEFAULT_VERSION
from ..schema.fields import IN_PLACE, BucketName, BucketPrefix, Change, Model, Namespace, RoleArn
from ..workers.keys import MEMBERS, ClusterKeys

DEFAULT_AUTHENTICATION_MODE: Literal["API"] = "API"
DEFAULT_TEAM = "training"
# User ids of teams: above those of the images' own users, below 65536, where a pod's user namespace ends (Kubernetes,
# "User Namespaces").
FIRST_UID, UIDS = 10_000, 50_000


_MOUNTED = Change("in place", "in place; a running pod keeps what it has mounted")


class TeamBucket(Model):
    """An S3 bucket, or a folder of it, that a team's pods mount."""

    name: Annotated[BucketName, MEMBERS]
    """Name of an existing bucket, which must admit the stack's account."""
    prefix: Annotated[BucketPrefix, _MOUNTED] = ""
    """Folder to mount, such as `tokens/`: the team sees nothing else of the bucket. Default: the whole bucket."""
    read_only: Annotated[StrictBool, _MOUNTED] = False
    """Only read: jobs can neither write nor delete."""


class Team(Model):
    """A team that trains on a Kubernetes cluster: its namespace and members."""

    name: Annotated[Namespace, Change("in place", "in place: a new namespace; the old one is deleted with its jobs")]
    """Name of the team and of its namespace; with task governance the namespace is hyperpod-ns-NAME."""
    role_arns: Annotated[tuple[RoleArn, ...], IN_PLACE] = ()
    """IAM roles that may use the namespace."""
    accelerators: Annotated[StrictInt | None, IN_PLACE] = Field(None, ge=0)
    """Guaranteed number of devices (GPUs or Trainium chips). Default: an equal share."""
    fair_share_weight: Annotated[StrictInt | None, IN_PLACE] = Field(None, ge=0, le=100)
    """The team's weight in borrowing devices that other teams leave idle, 0 to 100. Default: 50. Task governance
    only."""
    volumes_gib: Annotated[StrictInt, IN_PLACE] = Field(2000, alias="volumesGiB", ge=0)
    """Total capacity of the volumes of class gp3 that the team may create, GiB."""
    file_systems_gib: Annotated[StrictInt | None, IN_PLACE] = Field(None, alias="fileSystemsGiB", ge=0)
    """Total capacity of the file systems of class fsx-lustre that the team may create, GiB. Default: the capacity of
    the stack's own file system."""

    buckets: Annotated[tuple[TeamBucket, ...], MEMBERS] = ()
    """S3 buckets that the team's pods mount with Mountpoint for Amazon S3, each by the claim s3-NAME."""

    @property
    def uid(self) -> int:
        """The id of the user and group of the team's jobs, derived from the team's name only."""
        return FIRST_UID + int.from_bytes(hashlib.sha256(self.name.encode()).digest()[:8]) % UIDS


class Charts(Model):
    """Programs on the Kubernetes cluster in addition to EKS's own add-ons."""

    mpi_operator: Annotated[StrictBool, IN_PLACE] = True
    """Kubeflow's operator for MPIJob."""
    training_operator: Annotated[StrictBool, IN_PLACE] = True
    """Kubeflow's operator for PyTorchJob."""
    hyperpod_training_operator: Annotated[StrictBool, IN_PLACE] = False
    """SageMaker's operator for HyperPodPyTorchJob, with cert-manager."""
    spaces: Annotated[StrictBool, IN_PLACE] = False
    """SageMaker Spaces: JupyterLab and Code Editor in the teams' namespaces, by SageMaker's add-on, with cert-manager.
    docs/kubernetes-cluster.md says what they reach, and how they end when they are idle."""
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
    """Scheduler that shares the accelerators between the teams: Kueue, SageMaker's task governance, or none."""
    topology: Annotated[StrictBool, IN_PLACE] = False
    """Place each job on nodes that are near each other in EC2's network. Kueue then gives no job to nodes without the
    labels of its layers: check them first with `hyperpod node list STACK --topology`. With `queues` kueue only."""
    checkpoint_memory_percent: Annotated[
        StrictInt | None, Change("in part", "in place; refused to leave it out again: 0 turns it off")
    ] = None
    """Percentage of each node's memory for checkpoints, 20 to 80, by HyperPod's managed tiered checkpointing; jobs get
    the rest. 0: off."""

    @property
    def cert_manager(self) -> bool:
        """Whether cert-manager is there, which two of SageMaker's add-ons need."""
        return self.hyperpod_training_operator or self.spaces


class KubernetesKeys(ClusterKeys):
    """The keys that only EKS has, with those of the cluster."""

    kubernetes_version: Annotated[str, Change("in part", "in place, one minor version up; otherwise refused")] = (
        DEFAULT_VERSION
    )
    kubernetes_api_cidrs: Annotated[tuple[str, ...], IN_PLACE] = ()
    administrator_role_arns: Annotated[tuple[RoleArn, ...], IN_PLACE] = ()
    authentication_mode: Annotated[
        Literal["API", "API_AND_CONFIG_MAP"], Change("in part", "in place to API; refused back")
    ] = DEFAULT_AUTHENTICATION_MODE
    charts: Charts = Charts()
    teams: Annotated[tuple[Team, ...], MEMBERS] = ()

    @property
    def namespaces(self) -> tuple[Team, ...]:
        """The configured teams, or one namespace shared by everybody with the kubeconfig."""
        return self.teams or (Team(name=DEFAULT_TEAM),)

    def namespace_of(self, team: str) -> str:
        """Return a team's namespace. SageMaker's task governance prescribes the name (CreateComputeQuota)."""
        return f"hyperpod-ns-{team}" if self.charts.queues == "task-governance" else team
