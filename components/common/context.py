"""The stack that all components belong to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
from pulumi import Output

from ..catalogue.regions import Region
from ..config import Config, Settings
from .names import CLUSTER_ID_TAG, Names, for_stack


@dataclass(frozen=True)
class Prometheus:
    """The workspace that metrics go to. ``endpoint`` ends with a slash, as AWS has it."""

    arn: Output[str]
    id: Output[str]
    endpoint: Output[str]

    @property
    def remote_write_url(self) -> Output[str]:
        """Where a collector sends samples."""
        return self.endpoint.apply(lambda url: f"{url}api/v1/remote_write")


@dataclass(frozen=True, kw_only=True)
class Context:
    """A stack's checked configuration, the names of its resources, its account, the ARN of the customer key, where
    everything is encrypted with one, and the workspace that metrics go to, where there is one."""

    config: Config
    names: Names
    account: str
    key: Output[str] | None = None
    prometheus: Prometheus | None = None

    @classmethod
    def of(cls, config: Config, account: str) -> Context:
        """The context of the running program's stack, in the account with this ID."""
        names = for_stack(
            cluster=config.settings.cluster_name,
            region=config.region.name,
            account=account,
            project=pulumi.get_project(),
            stack=pulumi.get_stack(),
        )
        return cls(config=config, names=names, account=account)

    @property
    def settings(self) -> Settings:
        """The keys of the ``hyperpod`` namespace."""
        return self.config.settings

    @property
    def region(self) -> Region:
        """Where the stack is."""
        return self.config.region

    @property
    def tags(self) -> Mapping[str, str]:
        """The tags that every resource gets."""
        return {
            **self.settings.tags,
            "hyperpod:cluster": self.names.cluster,
            CLUSTER_ID_TAG: self.names.cluster_id,
        }

    @property
    def partition(self) -> str:
        """The region's partition, the second part of every ARN."""
        return self.config.region.partition

    def arn(self, service: str, resource: str) -> str:
        """The ARN of a resource of this account and region; ``*`` in ``resource`` matches as in policies."""
        return f"arn:{self.partition}:{service}:{self.region.name}:{self.account}:{resource}"

    @property
    def nodes_write_to(self) -> Prometheus | None:
        """The workspace that nodes themselves send metrics to. On EKS an add-on does, and no node."""
        return None if self.on_eks else self.prometheus

    @property
    def on_eks(self) -> bool:
        """Whether Kubernetes orchestrates, and not Slurm."""
        return self.settings.orchestrator == "eks"
