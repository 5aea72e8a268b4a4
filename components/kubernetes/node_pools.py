"""Tells Karpenter which groups' nodes follow demand: a node class and a node pool for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_kubernetes as kubernetes
from pulumi import ComponentResource, ResourceOptions

from ..workers.instance_groups import InstanceGroup
from ..workers.keys import Autoscaling
from .node_placement import GROUP_LABEL, HEALTH_LABEL
from .pod_resources import device_resource

# SageMaker Developer Guide, "Create a NodeClass" and "Create a NodePool".
CLASS_GROUP, CLASS_KIND = "karpenter.sagemaker.amazonaws.com", "HyperpodNodeClass"
POOL_GROUP = "karpenter.sh"
_TYPE_LABEL = "node.kubernetes.io/instance-type"
# HyperPod's on healthy nodes, which jobs select. Karpenter adds no node for a label that its pool does not promise.
_HEALTHY = {HEALTH_LABEL: "Schedulable"}


@dataclass(frozen=True, kw_only=True)
class NodePoolsArgs:
    """Inputs of the pools. ``cluster`` is the HyperPod cluster: it brings the definitions of these objects."""

    autoscaling: Autoscaling
    groups: Sequence[InstanceGroup]
    cluster: pulumi.Resource


class NodePools(ComponentResource):
    """Owns the objects by which Karpenter scales a group. One pool for each group gives each its own limit.

    Karpenter itself runs at AWS. Deliberately absent: a minimum of nodes, which it does not have.
    """

    ready: list[pulumi.Resource]

    def __init__(self, name: str, args: NodePoolsArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("hyperpod:index:NodePools", name, None, opts)
        self.ready = []
        for group in args.groups:
            metadata = kubernetes.meta.v1.ObjectMetaArgs(name=group.name.lower())
            node_class = kubernetes.apiextensions.CustomResource(
                f"{name}-{group.name}-class",
                api_version=f"{CLASS_GROUP}/v1",
                kind=CLASS_KIND,
                metadata=metadata,
                spec={"instanceGroups": [group.name]},
                opts=ResourceOptions(parent=self, depends_on=[args.cluster]),
            )
            # A pool whose class is gone removes no nodes any more, so the class is deleted after it.
            pool = kubernetes.apiextensions.CustomResource(
                f"{name}-{group.name}",
                api_version=f"{POOL_GROUP}/v1",
                kind="NodePool",
                metadata=metadata,
                spec=pool_spec(group, args.autoscaling),
                opts=ResourceOptions(parent=self, depends_on=[node_class]),
            )
            self.ready.append(pool)
        self.register_outputs({})


def pool_spec(group: InstanceGroup, autoscaling: Autoscaling) -> dict[str, Any]:
    """Return a group's pool: the nodes as they will be, so that Karpenter adds none that a pod could not use."""
    labels = {**(group.worker.labels if group.worker else {}), GROUP_LABEL: group.name, **_HEALTHY}
    spec: dict[str, Any] = {
        "nodeClassRef": {"group": CLASS_GROUP, "kind": CLASS_KIND, "name": group.name.lower()},
        "requirements": [{"key": _TYPE_LABEL, "operator": "In", "values": [row.name for row in group.types]}],
        # A node would leave under its job; `hyperpod node update-software` renews nodes.
        "expireAfter": "Never",
    }
    if group.taints:
        spec["taints"] = [taint.model_dump(exclude_defaults=True) for taint in group.taints]
    return {
        "template": {"metadata": {"labels": labels}, "spec": spec},
        "limits": _limits(group),
        "disruption": {
            "consolidationPolicy": autoscaling.consolidation,
            "consolidateAfter": autoscaling.consolidate_after,
            "budgets": [
                {"nodes": autoscaling.disruption_budget},
                # A changed label would otherwise take nodes from running jobs.
                {"nodes": "0", "reasons": ["Drifted"]},
            ],
        },
    }


def _limits(group: InstanceGroup) -> Mapping[str, str]:
    """Return the most of everything.

    Karpenter's definition of a pool names ``nodes`` since 1.8, and nobody says which release HyperPod runs: devices and
    CPUs bound it too. A node with one thread per core shows half of its type's vCPUs, so these alone would allow more.
    """
    limits = {"nodes": str(group.count), "cpu": str(group.count * max(row.vcpus for row in group.types))}
    if group.type.accelerator:
        limits[device_resource(group)] = str(group.count * group.type.accelerators)
    return limits
