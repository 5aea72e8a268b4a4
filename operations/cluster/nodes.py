"""The cluster's nodes: their state in SageMaker and in Slurm or Kubernetes, and finding a node by name."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..failures import Failure, bad_input
from ..kubernetes import kubeconfig
from ..target import Target
from . import sessions
from .node import Node

if TYPE_CHECKING:
    from ..jobs.kubernetes_api import KubernetesApi

# Nodes in a page (SageMaker API Reference, ListClusterNodes, MaxResults).
_MOST = 100
# Who has cordoned a node (SageMaker Developer Guide, "Amazon SageMaker HyperPod AMI automatic patching").
_CORDONED_BY = "sagemaker.amazonaws.com/cordoned-by"


def list_nodes(target: Target, *, to_come: bool = False) -> list[Node]:
    """Every node, by group in the configuration's order. Raises Failure where there is no cluster.

    ``to_come``: with continuous provisioning those, too, that have no instance yet (SageMaker API Reference,
    ListClusterNodes, IncludeNodeLogicalIds).
    """
    _ = target.cluster  # raises a clear error if there is none
    asked: dict[str, Any] = {"ClusterName": target.cluster_name, "MaxResults": _MOST}
    if to_come and target.config.settings.node_provisioning == "Continuous":
        asked["IncludeNodeLogicalIds"] = True
    found = list(target.aws.pages("sagemaker", "list_cluster_nodes", "ClusterNodeSummaries", **asked))
    roles = {group.name: group.role for group in target.config.instance_groups}
    order = {name: place for place, name in enumerate(roles)}
    found.sort(
        key=lambda one: (
            order.get(one["InstanceGroupName"], 99),
            not one.get("InstanceId"),
            str(one.get("LaunchTime")),
            one.get("InstanceId") or one["NodeLogicalId"],
        )
    )
    numbers: dict[str, int] = {}
    nodes = []
    for one in found:
        group = one["InstanceGroupName"]
        numbers[group] = numbers.get(group, 0) + 1
        name = f"{group}-{numbers[group]}" if one.get("InstanceId") else one["NodeLogicalId"]
        nodes.append(_node(one, name, roles.get(group, "worker")))
    return nodes


def awaited(target: Target, nodes: Sequence[Node]) -> dict[str, int]:
    """How many nodes of each group have no instance yet: with continuous provisioning they come as AWS has them, and
    are not listed before, but for ``to_come``."""
    there = Counter(node.group for node in nodes if node.instance_id)
    wanted = {one["InstanceGroupName"]: int(one.get("TargetCount", 0)) for one in target.cluster["InstanceGroups"]}
    return {name: count - there[name] for name, count in wanted.items() if count > there[name]}


def _node(summary: Mapping[str, Any], name: str, role: str) -> Node:
    hostname = str(summary.get("PrivateDnsHostname", "")).split(".")[0]
    # EC2 User Guide, "IP name": ip-10-1-2-3. Names by instance id have no address in them.
    address = hostname.removeprefix("ip-").replace("-", ".") if hostname.startswith("ip-") else ""
    return Node(
        name=name,
        group=summary["InstanceGroupName"],
        role=role,
        instance_id=summary.get("InstanceId", ""),
        logical_id=summary.get("NodeLogicalId", ""),
        instance_type=summary["InstanceType"],
        status=summary["InstanceStatus"]["Status"],
        message=summary["InstanceStatus"].get("Message", ""),
        hostname=hostname,
        ip=address,
        image=summary.get("ImageVersionStatus", ""),
    )


def find(nodes: Sequence[Node], wanted: str) -> Node:
    """The node of that name, group (its first node), host name, address or instance id. Raises Failure."""
    if not wanted.strip():
        raise bad_input("NODE is empty", f"nodes here: {', '.join(node.name for node in nodes) or 'none yet'}")
    for node in nodes:
        if wanted in (node.name, node.group) or wanted in own_names(node):
            return node
    known = [node.name for node in nodes]
    near = difflib.get_close_matches(wanted, [*known, *(node.hostname for node in nodes)], n=1)
    raise bad_input(
        f'there is no node "{wanted}"',
        f"did you mean {near[0]}?" if near else f"nodes here: {', '.join(known) or 'none yet'}",
    )


def several(nodes: Sequence[Node], where: Sequence[str]) -> list[Node]:
    """The nodes of these groups and names, in their order. Raises Failure for a name that is none."""
    groups = {node.group for node in nodes}
    wanted = [find(nodes, name) for name in where if name not in groups]
    return [node for node in nodes if node.group in where or node in wanted]


def own_names(node: Node) -> tuple[str, ...]:
    """What AWS calls it. Of these a replacement gets a new instance id, and keeps with Slurm the others (SageMaker
    Developer Guide, "Manually replace or reboot a node using Slurm")."""
    return tuple(filter(None, (node.request_id, node.hostname, node.ip)))


def head(nodes: Sequence[Node]) -> Node:
    """The node people work on: the login node, else the controller, else the first worker."""
    running = [node for node in nodes if node.status == "Running"]
    for role in ("login", "controller", "worker"):
        for node in running:
            if node.role == role:
                return node
    raise Failure(
        "no node is running" + (f": {', '.join(f'{n.name} {n.status}' for n in nodes)}" if nodes else ""),
        "wait for the cluster (hyperpod node list STACK), or see `hyperpod errors STACK`",
    )


def controller(nodes: Sequence[Node]) -> Node:
    """The Slurm controller. Raises Failure where it does not run."""
    for node in nodes:
        if node.role == "controller" and node.status == "Running":
            return node
    raise Failure("the Slurm controller is not running", "hyperpod errors STACK")


def with_states(target: Target, nodes: Sequence[Node]) -> list[Node]:
    """The same nodes with the scheduler's state of each. Raises Failure where it cannot be asked."""
    states = _kubernetes_states(target) if target.on_eks else _slurm_states(target, nodes)
    result = []
    for node in nodes:
        key = node.instance_id if target.on_eks else node.hostname
        state, reason = states.get(key, ("", ""))
        result.append(replace(node, state=state, reason=reason))
    return result


# One line per node: name, state, and why it is down or drained (sinfo's manual, %N %T %E).
SINFO = "sinfo --noheader --Node --format='%N|%T|%E'"


def _slurm_states(target: Target, nodes: Sequence[Node]) -> dict[str, tuple[str, str]]:
    ran = sessions.run_remote(target, controller(nodes), SINFO, timeout=60)
    if ran.code != 0:
        raise Failure(f"sinfo on the controller ended with {ran.code}: {ran.output.strip()}")
    states = {}
    for line in ran.output.splitlines():
        name, _, rest = line.strip().partition("|")
        state, _, reason = rest.partition("|")
        if state:
            states[name] = (state, "" if reason == "none" else reason)
    return states


def _kubernetes_states(target: Target) -> dict[str, tuple[str, str]]:
    """The state of each Kubernetes node, by instance ID."""
    states = {}
    for item in kubernetes(target).nodes():
        conditions: list[dict[str, Any]] = item["status"].get("conditions", [])
        ready = next((c for c in conditions if c["type"] == "Ready"), {})
        state = "Ready" if ready.get("status") == "True" else "NotReady"
        reason = "" if ready.get("status") == "True" else str(ready.get("message", ""))
        if item["spec"].get("unschedulable"):
            state += ",SchedulingDisabled"
            if item["metadata"].get("labels", {}).get(_CORDONED_BY) == "AutoPatching":
                reason = reason or "HyperPod patches its image once it is idle, or uncordons it within a day"
        states[instance_id(item)] = (state, reason)
    return states


def instance_id(node: Mapping[str, Any]) -> str:
    """The instance that a node of Kubernetes is, by its name (hyperpod-i-0123)."""
    return str(node["metadata"]["name"]).removeprefix("hyperpod-")


def kubernetes(target: Target) -> KubernetesApi:
    """The stack's Kubernetes API. Raises Failure where it cannot be reached."""
    from ..jobs.kubernetes_api import KubernetesApi  # importing its client takes a quarter of a second

    return KubernetesApi.of(kubeconfig.render(kubeconfig.describe(target)))
