"""HyperPod's own deep health checks: which nodes take them, and their start."""

from collections.abc import Sequence
from datetime import date
from enum import StrEnum
from typing import Any

from ..failures import Failure, bad_input
from ..target import Target
from . import nodes as cluster_nodes
from .node import Node


class DeepCheck(StrEnum):
    """HyperPod's own checks, by the names of its API (StartClusterHealthCheck, DeepHealthChecks)."""

    STRESS = "InstanceStress"
    CONNECTIVITY = "InstanceConnectivity"
    TRAINING = "MultiNodeTrainingValidation"


def testable(target: Target, nodes: Sequence[Node], where: Sequence[str], checks: Sequence[DeepCheck]) -> list[Node]:
    """The nodes of these names and groups, by default every worker with accelerators.

    Raises Failure for what HyperPod does not check: nodes without accelerators and, with Slurm, Trainium and the third
    check (SageMaker Developer Guide, "Deep health checks" of EKS and of Slurm clusters).
    """
    groups = {group.name for group in target.config.training_groups}
    if not target.on_eks and target.config.settings.accelerator != "gpu":
        raise bad_input(
            "on Slurm, HyperPod has deep health checks only for GPUs", f"hyperpod node health {target.stack}"
        )
    if not target.on_eks and DeepCheck.TRAINING in checks:
        raise bad_input(
            f"on Slurm, HyperPod has no {DeepCheck.TRAINING}", f"{DeepCheck.STRESS}, {DeepCheck.CONNECTIVITY}"
        )
    found = cluster_nodes.several(nodes, where) if where else [node for node in nodes if node.group in groups]
    if others := [node.name for node in found if node.group not in groups]:
        raise bad_input(f"{', '.join(others)}: no accelerators to check", f"groups that have some: {', '.join(groups)}")
    if not found:
        raise Failure("there is no worker with accelerators yet", f"hyperpod node list {target.stack}")
    return found


def in_turn(nodes: Sequence[Node], most: int | None, day: date) -> list[Node]:
    """At most so many of the nodes, others on each day, so that all have their turn."""
    if most is None or most >= len(nodes):
        return list(nodes)
    first = day.toordinal() * most % len(nodes)
    return [nodes[(first + number) % len(nodes)] for number in range(most)]


def start(target: Target, nodes: Sequence[Node], wanted: Sequence[Node], checks: Sequence[DeepCheck]) -> str:
    """Ask HyperPod to check them: whole groups by name, else their instances. Returns the cluster's ARN."""
    request: list[dict[str, Any]] = []
    for group in dict.fromkeys(node.group for node in wanted):
        ids = [node.instance_id for node in wanted if node.group == group]
        whole = len(ids) == sum(node.group == group for node in nodes)
        asked = {"InstanceGroupName": group, "DeepHealthChecks": [str(check) for check in checks]}
        request.append(asked if whole else {**asked, "InstanceIds": ids})
    client = target.aws.client("sagemaker")
    return str(
        client.start_cluster_health_check(ClusterName=target.cluster_name, DeepHealthCheckConfigurations=request)[
            "ClusterArn"
        ]
    )
