"""What the nodes' own checks found last, node by node."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

from hyperpod_node.health.run import RESULTS

from ..failures import Failure, bad_input
from ..target import Target
from . import every_node
from . import nodes as cluster_nodes
from .node import Node
from .sessions import Remote

Status = Literal["PASS", "FAIL", "UNKNOWN"]
_SECONDS = 120.0
# The checks run every five minutes; twice as old is too old to say anything.
_OLD_SECONDS = 600.0


class DeepCheck(StrEnum):
    """HyperPod's own checks, by the names of its API (StartClusterHealthCheck, DeepHealthChecks)."""

    STRESS = "InstanceStress"
    CONNECTIVITY = "InstanceConnectivity"
    TRAINING = "MultiNodeTrainingValidation"


@dataclass(frozen=True, kw_only=True)
class NodeHealth:
    """What one node says of itself.

    ``bad`` and ``unknown`` are details by check, ``age_seconds`` is since the checks ran, ``done`` what they did about
    it. ``trouble`` says why nothing is known.
    """

    node: str
    status: Status
    bad: dict[str, str]
    unknown: dict[str, str]
    checks: int = 0
    age_seconds: float | None = None
    done: str = ""
    trouble: str = ""


def ask(target: Target, nodes: Sequence[Node], *, now: bool) -> list[NodeHealth]:
    """The health of every worker among the nodes, in their order. ``now``: run the checks instead of reading."""
    workers = [node for node in nodes if node.role == "worker"]
    run = "sudo -n /opt/hyperpod/bin/hyperpod-health > /dev/null; " if now else ""
    found = every_node.answers(target, nodes, workers, f"{run}date +%s; cat {RESULTS}", _SECONDS)
    return [_one(node, answer) for node, answer in zip(workers, found, strict=True)]


def _one(node: Node, answer: Remote | Failure) -> NodeHealth:
    if isinstance(answer, Failure):
        trouble = answer.message
    else:
        clock, _, document = answer.output.partition("\n")
        try:
            return read(node.name, json.loads(document), float(clock))
        except (ValueError, KeyError, TypeError):
            last = [line for line in answer.output.splitlines() if line.strip()][-1:]
            trouble = f"no results yet: {last[0] if last else 'no output'}"
    return NodeHealth(node=node.name, status="UNKNOWN", bad={}, unknown={}, trouble=trouble)


def read(name: str, document: dict[str, Any], clock: float) -> NodeHealth:
    """A node's results, by its own clock. Raises KeyError and TypeError for another document."""
    age = max(0.0, clock - float(document["time"]))
    found = {
        status: {check: str(one["detail"]) for check, one in document["checks"].items() if one["status"] == status}
        for status in ("ok", "bad", "unknown")
    }
    old = age > _OLD_SECONDS
    return NodeHealth(
        node=name,
        status="FAIL" if found["bad"] else "UNKNOWN" if old else "PASS",
        bad=found["bad"],
        unknown=found["unknown"],
        checks=sum(map(len, found.values())),
        age_seconds=age,
        done=str(document.get("done", "")),
        trouble=f"the checks last ran {age / 60:.0f} minutes ago" if old else "",
    )


def ago(seconds: float | None) -> str:
    """``40 s``, ``3 min``."""
    if seconds is None:
        return "?"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def testable(target: Target, nodes: Sequence[Node], where: Sequence[str], checks: Sequence[DeepCheck]) -> list[Node]:
    """The nodes of these names and groups, by default every worker with accelerators.

    Raises Failure for what HyperPod does not check: nodes without accelerators and, with Slurm, Trainium and the third
    check (SageMaker Developer Guide, "Deep health checks" of EKS and of Slurm clusters).
    """
    groups = {group.name for group in target.config.training_groups}
    if not target.on_eks and target.config.settings.accelerator != "gpu":
        raise bad_input(
            "with Slurm HyperPod has deep health checks for GPUs alone", f"hyperpod node health {target.stack}"
        )
    if not target.on_eks and DeepCheck.TRAINING in checks:
        raise bad_input(
            f"with Slurm HyperPod has no {DeepCheck.TRAINING}", f"{DeepCheck.STRESS}, {DeepCheck.CONNECTIVITY}"
        )
    found = cluster_nodes.several(nodes, where) if where else [node for node in nodes if node.group in groups]
    if others := [node.name for node in found if node.group not in groups]:
        raise bad_input(f"{', '.join(others)}: no accelerators to check", f"groups that have some: {', '.join(groups)}")
    if not found:
        raise Failure("there is no worker with accelerators yet", f"hyperpod node list {target.stack}")
    return found


def start_deep(target: Target, nodes: Sequence[Node], wanted: Sequence[Node], checks: Sequence[DeepCheck]) -> str:
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
