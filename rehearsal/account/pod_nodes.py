"""The nodes that the embedded account's HyperPod cluster offers to pods."""

from collections.abc import Mapping
from typing import Any

from operations.engine.state import HYPERPOD_CLUSTER

from .books import Books
from .provisioning import missing

_REPELLING = ("NoSchedule", "NoExecute")


def open_nodes(account: Books) -> int:
    """Number of nodes that now accept pods without tolerations (Kubernetes, "Taints and Tolerations")."""
    return sum(
        int(group["instanceCount"]) - missing(cluster).get(group["instanceGroupName"], 0)
        for cluster in account.find(HYPERPOD_CLUSTER, by=account.now)
        for group in cluster.inputs["instanceGroups"]
        if not _repels(group)
    )


def _repels(group: Mapping[str, Any]) -> bool:
    taints = (group.get("kubernetesConfig") or {}).get("taints") or []
    return any(taint["effect"] in _REPELLING for taint in taints)
