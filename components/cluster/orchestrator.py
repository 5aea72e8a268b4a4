"""The interface that HyperPod and the program use of an orchestrator: Slurm (slurm.py) or EKS (kubernetes/eks.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pulumi
import pulumi_aws_native as aws_native
from pulumi import ComponentResource, Input, Output

from ..storage.file_systems import Storage
from ..workers.instance_groups import InstanceGroup


@dataclass(frozen=True, kw_only=True)
class GroupConfig:
    """An orchestrator's additions to an instance group."""

    slurm_config: aws_native.sagemaker.ClusterSlurmConfigArgs | None = None
    kubernetes_config: aws_native.sagemaker.ClusterKubernetesConfigArgs | None = None


class Cluster(ComponentResource):
    """The part of the HyperPod cluster that an orchestrator sees."""

    arn: Output[str]


class Orchestrator(Protocol):
    """``orchestrator`` is the cluster's own input. The cluster waits for ``ready``. ``outputs`` are the stack's.

    ``volume_role`` is the role that attaches volumes to nodes, None where none does.
    """

    orchestrator: aws_native.sagemaker.ClusterOrchestratorArgs
    ready: list[pulumi.Resource]
    outputs: Mapping[str, Input[Any]]
    volume_role: Input[str] | None

    def group_config(self, group: InstanceGroup) -> GroupConfig:
        """Return this orchestrator's additions to an instance group."""
        ...

    def prepare_training(self, cluster: Cluster, storage: Storage, groups: Sequence[Input[str]]) -> None:
        """Create what jobs need besides the cluster, possibly after its nodes. ``groups`` are the file system's
        security groups.
        """
        ...
