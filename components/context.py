"""The stack that all components belong to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pulumi import Output

from .catalogue.regions import Region
from .config import Config, Settings
from .names import CLUSTER_ID_TAG, Names


@dataclass(frozen=True, kw_only=True)
class Context:
    """A stack's checked configuration, the names of its resources, its account, and the ARN of the customer key, where
    everything is encrypted with one."""

    config: Config
    names: Names
    account: str
    key: Output[str] | None = None

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
    def on_eks(self) -> bool:
        """Whether Kubernetes orchestrates, and not Slurm."""
        return self.settings.orchestrator == "eks"
