"""Places the Kubernetes cluster's own pods: those with a configurable affinity prefer groups without accelerators.

``config.taints`` keeps the others off accelerators. Nothing here creates a resource.
"""

from collections.abc import Iterable
from typing import Any

from ..workers.instance_groups import InstanceGroup

GROUP_LABEL = "sagemaker.amazonaws.com/instance-group-name"
# A node's health as HyperPod sees it (SageMaker Developer Guide, "Resilience-related Kubernetes labels by SageMaker
# HyperPod").
HEALTH_LABEL = "sagemaker.amazonaws.com/node-health-status"
# EC2's network from the top, as HyperPod labels its nodes (SageMaker Developer Guide, "Using topology-aware scheduling
# in Amazon SageMaker HyperPod task governance").
NETWORK_LAYERS = tuple(f"topology.k8s.aws/network-node-layer-{layer}" for layer in (1, 2, 3))
# Kubernetes, API reference, PreferredSchedulingTerm: 1 to 100; more than the add-ons' own preferences.
_WEIGHT = 100


def system_group_names(groups: Iterable[InstanceGroup]) -> list[str]:
    """Return the names of ``system_groups``, for resolved groups."""
    return [
        group.name
        for group in groups
        if not group.type.accelerator and group.least and not any(taint.repels for taint in group.taints)
    ]


def preferred_nodes(groups: Iterable[InstanceGroup]) -> dict[str, Any] | None:
    """Return a pod's node affinity: prefers nodes of the system groups; None without such groups."""
    names = system_group_names(groups)
    if not names:
        return None
    there = {"matchExpressions": [{"key": GROUP_LABEL, "operator": "In", "values": names}]}
    return {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": _WEIGHT, "preference": there}]}
