"""Decides which worker groups accept any pod, and which taints keep such pods off nodes with accelerators.

A worker group without accelerators runs the Kubernetes cluster's own pods: DNS, storage drivers, operators, queues.
"""

from collections.abc import Iterable

from ..catalogue.accelerators import ACCELERATORS
from .keys import ClusterKeys, Taint, WorkerGroup


def system_groups(settings: ClusterKeys) -> tuple[WorkerGroup, ...]:
    """Return the groups for the cluster's own pods; none if these share the other groups' nodes."""
    return tuple(
        group
        for group in settings.groups
        if settings.orchestrator == "eks" and not group.accelerated and _open(settings, group, group.taints or ())
    )


def open_groups(settings: ClusterKeys) -> tuple[WorkerGroup, ...]:
    """Return the groups whose nodes accept any pod: pods without tolerations can run only there."""
    return tuple(group for group in settings.groups if _open(settings, group, taints_of(settings, group)))


def _open(settings: ClusterKeys, group: WorkerGroup, taints: Iterable[Taint]) -> bool:
    return settings.least_of(group) > 0 and not any(taint.repels for taint in taints)


def taints_of(settings: ClusterKeys, group: WorkerGroup) -> tuple[Taint, ...]:
    """Return a group's taints: the configured ones, or one that reserves accelerators if other pods have other nodes.

    The taint has the name of the accelerator's resource, and pods that request the resource tolerate it (admission
    plugin ExtendedResourceToleration, enabled on EKS: Amazon EKS User Guide, "View Amazon EKS platform versions").
    Groups with deep health checks have no taint: HyperPod does not accept both (SageMaker Developer Guide, "Getting
    started with Amazon EKS support in SageMaker HyperPod").
    """
    if group.taints is not None:
        return group.taints
    if not group.accelerated or group.deep_health_checks or not system_groups(settings):
        return ()
    resource = ACCELERATORS[settings.accelerator].kubernetes_resource
    return (Taint(key=resource, value="true", effect="NoSchedule"),)
