"""Which worker groups take any pod, and the taints that keep the rest of such pods off accelerators.

A worker group without accelerators is for what a Kubernetes cluster itself runs (DNS, storage drivers, operators,
queues), where there is one.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..catalogue.accelerators import ACCELERATORS
from .model import Settings, Taint, WorkerGroup


def system_groups(settings: Settings) -> tuple[WorkerGroup, ...]:
    """The groups for what the cluster itself runs, none where it shares the others' nodes."""
    return tuple(
        group
        for group in settings.groups
        if settings.orchestrator == "eks" and not group.accelerated and _open(settings, group, group.taints or ())
    )


def open_groups(settings: Settings) -> tuple[WorkerGroup, ...]:
    """The groups with nodes for any pod: only there can run what tolerates no taint."""
    return tuple(group for group in settings.groups if _open(settings, group, taints_of(settings, group)))


def _open(settings: Settings, group: WorkerGroup, taints: Iterable[Taint]) -> bool:
    return settings.count_of(group) > 0 and not any(taint.repels for taint in taints)


def taints_of(settings: Settings, group: WorkerGroup) -> tuple[Taint, ...]:
    """A group's taints: as given, else what keeps accelerators for pods that ask for them, where there are other nodes.

    The taint has the name of the accelerators' resource, which every pod tolerates that asks for one
    (ExtendedResourceToleration, which EKS has on: Amazon EKS User Guide, "View Amazon EKS platform versions"). Groups
    with deep health checks have none: HyperPod does not take both (SageMaker Developer Guide, "Getting started with
    Amazon EKS support in SageMaker HyperPod").
    """
    if group.taints is not None:
        return group.taints
    if not group.accelerated or group.deep_health_checks or not system_groups(settings):
        return ()
    resource = ACCELERATORS[settings.accelerator].kubernetes_resource
    return (Taint(key=resource, value="true", effect="NoSchedule"),)
