"""The stack that all components belong to."""

from collections.abc import Mapping
from dataclasses import dataclass

from pulumi import Output

from ..catalogue.regions import Region
from .names import Names


@dataclass(frozen=True)
class Prometheus:
    """The workspace that receives metrics. ``endpoint`` ends with a slash, as in AWS's answers; ``own``: the stack
    creates it.
    """

    arn: Output[str]
    id: Output[str]
    endpoint: Output[str]
    own: bool = True

    @property
    def remote_write_url(self) -> Output[str]:
        """The address to which a collector sends samples."""
        return self.endpoint.apply(lambda url: f"{url}api/v1/remote_write")


@dataclass(frozen=True)
class Tracking:
    """The MLflow App that jobs log to. ``job_role`` is the role of Slurm's jobs for it; on EKS, pods have their own."""

    arn: Output[str]
    job_role: Output[str] | None


@dataclass(frozen=True, kw_only=True)
class Context:
    """Shared by all components of a stack: the names of its resources, its region and account, the zone of its nodes,
    its tags, the permissions boundary of its roles, and whether the engine protects it (``protect``).

    ``key`` is the ARN of the customer key that encrypts everything, if any, ``prometheus`` the workspace that receives
    metrics, if any, and ``tracking`` the app that jobs log to, if any.
    """

    names: Names
    region: Region
    account: str
    zone_id: str
    on_eks: bool
    tags: Mapping[str, str]
    boundary: str | None = None
    protect: bool = False
    key: Output[str] | None = None
    prometheus: Prometheus | None = None
    tracking: Tracking | None = None

    @property
    def partition(self) -> str:
        """The region's partition, the second part of every ARN."""
        return self.region.partition

    def arn(self, service: str, resource: str) -> str:
        """Return the ARN of a resource of this account and region; ``*`` in ``resource`` matches as in policies."""
        return f"arn:{self.partition}:{service}:{self.region.name}:{self.account}:{resource}"

    @property
    def nodes_write_to(self) -> Prometheus | None:
        """The workspace to which nodes themselves send metrics. On EKS an add-on does it."""
        return None if self.on_eks else self.prometheus
