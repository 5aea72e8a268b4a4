"""Removes the named nodes from the cluster, and lowers the counts in the configuration.

UpdateCluster, which `scale` and Pulumi use, takes a count alone and terminates nodes at random; BatchDeleteClusterNodes
takes the nodes (SageMaker Developer Guide, "Scale down a SageMaker HyperPod cluster").
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..failures import Failure, bad_input
from ..target import Target
from . import nodes as cluster_nodes
from . import scale
from .changes import failures, request_ids
from .draining import named
from .node import Node
from .scale import Scaling

# slurmctld's reason for a node that this verb has taken out.
REASON = "hyperpod node remove"
# The same page: at most 99 instances in a request. NodeIds takes more by the API's model, and Support decides about it.
# With a NodeLogicalId among them it takes 50 of both (SageMaker API Reference, BatchDeleteClusterNodes).
_MOST_NODES, _MOST_MIXED = 99, 50
_AGAIN_SECONDS, _GONE_SECONDS = 15.0, 1800.0


@dataclass
class Removed:
    """What SageMaker answered. ``refused``: its code and message by the node's name."""

    accepted: list[Node] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)


def chosen(target: Target, nodes: Sequence[Node], names: Sequence[str], *, yes: bool) -> list[Node]:
    """The workers of these names, each once. Raises Failure for what is no worker, for more than 99, and for a group
    whose count in the configuration is not yet the cluster's. With ``yes`` only instance ids are taken."""
    alone = [node for node in nodes if node.group not in names]
    wanted = list({node.request_id: node for node in (cluster_nodes.find(alone, name) for name in names)}.values())
    if heads := [f"{node.name} is the {node.role}" for node in wanted if node.role != "worker"]:
        raise bad_input(f"only workers can be removed: {', '.join(heads)}", "name nodes of a worker group")
    most = _MOST_NODES if all(node.instance_id for node in wanted) else _MOST_MIXED
    if len(wanted) > most:
        raise bad_input(f"{len(wanted)} nodes at once", f"1 to {most}; hyperpod scale takes any number")
    if yes and (ambiguous := [node for node in wanted if node.request_id not in names]):
        ids = " ".join(node.request_id for node in ambiguous)
        raise bad_input(f"{named(ambiguous)} may name other instances after a replacement", f"with --yes, give {ids}")
    for group in target.config.worker_groups:
        if group.follows_demand and group.name in {node.group for node in wanted}:
            raise bad_input(
                f"Karpenter adds and removes the nodes of {group.name}",
                "it removes idle ones by itself (hyperpod:autoscaling); kubectl delete nodeclaim NAME removes one",
            )
    counts = {group.name: group.count for group in target.config.worker_groups}
    for group in target.cluster["InstanceGroups"]:
        name, there = group["InstanceGroupName"], int(group["TargetCount"])
        if name in {node.group for node in wanted} and counts[name] != there:
            raise bad_input(
                f"{name} has {counts[name]} nodes in the configuration, but the cluster's target is {there}",
                f"hyperpod deploy {target.stack}, then remove nodes",
            )
    return wanted


def shrunk(target: Target, wanted: Sequence[Node]) -> list[Scaling]:
    """The new size of each group, each of the stack as it is with the sizes before it. Raises as `scale` does."""
    found: list[Scaling] = []
    for name, number in Counter(node.group for node in wanted).items():
        before = found[-1].target if found else target
        count = next(one.count for one in before.config.worker_groups if one.name == name)
        found.append(scale.scaled(before, name, count - number))
    return found


def delete(target: Target, wanted: Sequence[Node]) -> Removed:
    """Ask SageMaker to terminate them. Raises ClientError where it refuses all."""
    ids = {node.request_id: node for node in wanted}
    answer = target.aws.client("sagemaker").batch_delete_cluster_nodes(
        ClusterName=target.cluster_name, **request_ids(wanted)
    )
    refused = {ids[one].name: f"{failed['Code']}: {failed['Message']}" for one, failed in failures(answer)}
    return Removed([node for node in wanted if node.name not in refused], refused)


def wait(target: Target, gone: Sequence[Node], say: Callable[[str], None]) -> None:
    """Until SageMaker lists none of them. Raises Failure after half an hour."""
    ids, end = {node.request_id for node in gone}, time.monotonic() + _GONE_SECONDS

    def there() -> list[Node]:
        # A node that had no instance may get one before it goes.
        return [
            one for one in cluster_nodes.list_nodes(target, to_come=True) if ids & {one.instance_id, one.logical_id}
        ]

    while left := there():
        if time.monotonic() >= end:
            raise Failure(
                f"{named(left)} did not go within {_GONE_SECONDS / 60:.0f} minutes", "hyperpod node list STACK"
            )
        say(f"{len(gone) - len(left)} of {len(gone)} nodes are gone; waiting for {named(left)} ...")
        time.sleep(_AGAIN_SECONDS)


def not_lowered(target: Target, sizes: Sequence[Scaling]) -> list[str]:
    """Groups that SageMaker would fill up again. No page says outright that the target count falls with the nodes, and
    with continuous provisioning a target above the nodes that there are brings new ones."""
    found = target.aws.client("sagemaker").describe_cluster(ClusterName=target.cluster_name)
    wanted = {one["InstanceGroupName"]: int(one["TargetCount"]) for one in found["InstanceGroups"]}
    return [f"{one.group} ({wanted[one.group]})" for one in sizes if wanted[one.group] > one.after]
