"""The stack that all components belong to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pulumi import Output

from ..catalogue.regions import Region
from .names import Names


@dataclass(frozen=True)
class Prometheus:
    """The workspace that metrics go to. ``endpoint`` ends with a slash, as AWS has it; ``own``: the stack makes it."""

    arn: Output[str]
    id: Output[str]
    endpoint: Output[str]
    own: bool = True

    @property
    def remote_write_url(self) -> Output[str]:
        """Where a collector sends samples."""
        return self.endpoint.apply(lambda url: f"{url}api/v1/remote_write")


@dataclass(frozen=True, kw_only=True)
class Context:
    """What all components of a stack share: the names of its resources, its region and account, the zone of its nodes,
    its tags, the permissions boundary of its roles, and whether the engine protects it (``protect``).

    ``key`` is the ARN of the customer key, where everything is encrypted with one, and ``prometheus`` the workspace
    that metrics go to, where there is one.
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

    @property
    def partition(self) -> str:
        """The region's partition, the second part of every ARN."""
        return self.region.partition

    def arn(self, service: str, resource: str) -> str:
        """The ARN of a resource of this account and region; ``*`` in ``resource`` matches as in policies."""
        return f"arn:{self.partition}:{service}:{self.region.name}:{self.account}:{resource}"

    @property
    def nodes_write_to(self) -> Prometheus | None:
        """The workspace that nodes themselves send metrics to. On EKS an add-on does, and no node."""
        return None if self.on_eks else self.prometheus
