"""Checks that the nodes of an EKS stack have room for the stack's own pods."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..catalogue import rows
from ..catalogue.accelerators import CATALOGUE, InstanceType, find, in_common
from ..schema.problems import Problem
from ..workers.taints import open_groups
from .keys import KubernetesKeys

_SYSTEM_TYPE = "ml.m5.xlarge"


@dataclass(frozen=True)
class ClusterPods:
    """Pods of an add-on or a chart: ``pods`` for the ``cluster``, on each ``node``, or on each ``accelerated`` node.

    ``needs`` is the switch of hyperpod:charts, empty for what every stack has. ``cpu_m`` and ``memory_mib`` are one
    pod's requests, summed over its containers. Pods of SageMaker's add-ons are absent: nobody publishes their requests.
    """

    name: str
    place: Literal["cluster", "node", "accelerated"]
    pods: int
    cpu_m: int
    memory_mib: int
    source: str
    needs: str = ""


CLUSTER_PODS = rows.read(Path(rows.__file__).with_name("cluster_pods.csv"), ClusterPods)


def room_problems(settings: KubernetesKeys) -> Iterator[Problem]:
    """Report too few pod slots, CPUs or too little memory on the nodes that accept any pod.

    The part of a node that kubelet reserves is not counted: a refused stack would never fit.
    """
    charts, groups = settings.charts, open_groups(settings)
    known = [[row for name in group.types if (row := find(name)) and row.memory_gib] for group in groups]
    if not groups or any(len(rows) < len(group.types) for rows, group in zip(known, groups, strict=True)):
        return  # no node at all, or one that the catalogue does not know
    types = [in_common(rows) for rows in known]
    on = {"": True, "kueue": charts.queues == "kueue"}
    here = [one for one in CLUSTER_PODS if on.get(one.needs) or getattr(charts, one.needs, False)]
    wanted = _sum(one for one in here if one.place == "cluster")
    free = [0, 0, 0]
    for group, row in zip(groups, types, strict=True):
        left = _left(row, here)
        free = [had + settings.count_of(group) * more for had, more in zip(free, left, strict=True)]
    for what, has, needs in zip(("pods", "millicores", "MiB"), free, wanted, strict=True):
        if has < needs:
            nodes = " and ".join(f"{settings.count_of(group)} x {' or '.join(group.types)}" for group in groups)
            yield Problem(
                key=f"hyperpod:workers[{settings.groups.index(groups[0])}].instanceType",
                what=f"beside its own pods, {nodes} can take {max(has, 0)} {what} of the cluster's, and DNS, storage "
                f"drivers, operators and queues need {needs}",
                fix=_fix(types[0], here, wanted),
            )
            return


def _fix(first: InstanceType, here: list[ClusterPods], wanted: list[int]) -> str:
    alone = _nodes(first, here, wanted)
    more = f"{alone} x {first.name}" if alone else "a larger type"
    return (
        f"{more}, or a group without accelerators of {_nodes(CATALOGUE[_SYSTEM_TYPE], here, wanted)} x {_SYSTEM_TYPE}"
    )


def _nodes(kind: InstanceType, here: list[ClusterPods], wanted: list[int]) -> int:
    """Return the smallest number of nodes of a type on which everything fits, 0 if no number suffices."""
    left = _left(kind, here)
    return max(-(-needs // has) for needs, has in zip(wanted, left, strict=True)) if min(left) > 0 else 0


def _left(kind: InstanceType, here: list[ClusterPods]) -> list[int]:
    """Return what a node has besides its own pods: slots, millicores, MiB."""
    places = ("node", "accelerated") if kind.accelerator else ("node",)
    own = _sum(one for one in here if one.place in places)
    return [has - takes for has, takes in zip((kind.pods, kind.vcpus * 1000, kind.memory_gib * 1024), own, strict=True)]


def _sum(pods: Iterable[ClusterPods]) -> list[int]:
    found = list(pods)
    return [
        sum(one.pods for one in found),
        sum(one.pods * one.cpu_m for one in found),
        sum(one.pods * one.memory_mib for one in found),
    ]
