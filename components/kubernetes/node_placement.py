"""Where what a Kubernetes cluster itself runs has its nodes: pods that can be told prefer the groups without
accelerators (``config.taints`` keeps the rest off). Nothing here makes a resource.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..config import InstanceGroup

GROUP_LABEL = "sagemaker.amazonaws.com/instance-group-name"
# Kubernetes, API reference, PreferredSchedulingTerm: 1 to 100; more than what else the add-ons prefer by themselves.
_WEIGHT = 100


def system_group_names(groups: Iterable[InstanceGroup]) -> list[str]:
    """``system_groups`` of groups that are resolved: their names."""
    return [
        group.name
        for group in groups
        if not group.type.accelerator and group.count and not any(taint.repels for taint in group.taints)
    ]


def preferred_nodes(groups: Iterable[InstanceGroup]) -> dict[str, Any] | None:
    """A pod's node affinity: rather on nodes of the system groups; None where there are none."""
    names = system_group_names(groups)
    if not names:
        return None
    there = {"matchExpressions": [{"key": GROUP_LABEL, "operator": "In", "values": names}]}
    return {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": _WEIGHT, "preference": there}]}
