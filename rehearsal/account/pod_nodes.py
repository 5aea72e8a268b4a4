"""The nodes that the embedded account's HyperPod cluster offers to pods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stack.state import HYPERPOD_CLUSTER

from .books import Books

_REPELLING = ("NoSchedule", "NoExecute")


def open_nodes(account: Books) -> int:
    """Number of nodes that now accept pods without tolerations (Kubernetes, "Taints and Tolerations")."""
    clusters = account.find(HYPERPOD_CLUSTER, by=account.now)
    groups = [group for cluster in clusters for group in cluster.inputs["instanceGroups"]]
    return sum(int(group["instanceCount"]) for group in groups if not _repels(group))


def _repels(group: Mapping[str, Any]) -> bool:
    taints = (group.get("kubernetesConfig") or {}).get("taints") or []
    return any(taint["effect"] in _REPELLING for taint in taints)
