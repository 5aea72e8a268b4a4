"""``status``: what is there of a stack, is it healthy, what it costs, what happened last, and what to do next."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from components.estimates.cost import estimate

from .. import records
from ..cluster import nodes as cluster_nodes
from ..cluster.node import Node
from ..failures import Exit
from ..spending import plans
from ..target import Target
from .errors import DEPLOYMENTS

ABSENT = "absent"
# SageMaker API Reference, DescribeCluster: ClusterStatus. The others are on their way.
_UP, _BROKEN = "InService", ("Failed", "RollingBack")
# SageMaker API Reference, ClusterInstanceStatusDetails: Status.
_RUNNING, _BAD = "Running", ("Failure",)


@dataclass(frozen=True, kw_only=True)
class Group:
    """An instance group: how many nodes the configuration asks for, and how many there are by SageMaker's status."""

    name: str
    instance_type: str
    wanted: int
    nodes: dict[str, int]


@dataclass(frozen=True, kw_only=True)
class Status:
    """A stack at a glance. ``cluster`` is SageMaker's status, or absent; ``last`` the last command on this machine.

    ``hourly_usd`` is what the configuration costs per hour: 0 where nothing is deployed, None where a price is unknown.
    ``cost`` says it in words. ``warnings`` are what will take nodes away.
    """

    stack: str
    region: str
    cluster: str
    message: str
    health: str
    groups: list[Group] = field(default_factory=list)
    hourly_usd: float | None = 0.0
    cost: str = ""
    last: dict[str, Any] | None = None
    next_step: str = ""
    warnings: list[str] = field(default_factory=list)

    @property
    def code(self) -> Exit:
        """The verb's exit code: 1 where something is broken."""
        return Exit.FAILED if self.health == "broken" else Exit.GOOD


def status(target: Target) -> Status:
    """Ask SageMaker for the cluster and its nodes."""
    last = next(iter(reversed(records.read(target, DEPLOYMENTS))), None)
    cluster = target.found_cluster
    if cluster is None:
        return Status(
            stack=target.stack,
            region=target.config.region.name,
            cluster=ABSENT,
            message="",
            health=ABSENT,
            last=last,
            next_step=_of_none(target, last),
        )
    found = cluster_nodes.list_nodes(target)
    groups, price = _groups(target, found), estimate(target.config)
    health = _health(cluster["ClusterStatus"], groups)
    return Status(
        stack=target.stack,
        region=target.config.region.name,
        cluster=cluster["ClusterStatus"],
        message=cluster.get("FailureMessage", ""),
        health=health,
        groups=groups,
        hourly_usd=None if price.hourly_usd is None else round(price.hourly_usd, 4),
        cost=price.words,
        last=last,
        next_step=_next(target, health, found),
        warnings=list(plans.endings(target)),
    )


def _groups(target: Target, found: Sequence[Node]) -> list[Group]:
    return [
        Group(
            name=group.name,
            instance_type=" and ".join(types) if len(group.types) > 1 and types else group.type_names,
            wanted=group.wanted(sum(nodes.values())),
            nodes=nodes,
        )
        for group in target.config.instance_groups
        for own in [[node for node in found if node.group == group.name]]
        for nodes, types in [(dict(Counter(node.status for node in own)), sorted({node.instance_type for node in own}))]
    ]


def _health(cluster: str, groups: Sequence[Group]) -> str:
    """healthy, changing or broken."""
    if cluster in _BROKEN or any(group.nodes.get(bad) for group in groups for bad in _BAD):
        return "broken"
    up = cluster == _UP and all(group.nodes == {_RUNNING: group.wanted} for group in groups if group.wanted)
    return "healthy" if up else "changing"


def _of_none(target: Target, last: dict[str, Any] | None) -> str:
    if last and last["command"] == "up" and not last["succeeded"]:
        return f"hyperpod errors {target.stack}, then deploy again; what exists of it costs money"
    return f"hyperpod deploy {target.stack} --rehearse, then hyperpod deploy {target.stack}"


def _next(target: Target, health: str, found: Sequence[Node]) -> str:
    if health == "broken":
        bad = next((node.name for node in found if node.status in _BAD), "")
        return f"hyperpod errors {target.stack}" + (f", or hyperpod node replace {target.stack} {bad}" if bad else "")
    if health == "changing":
        return f"hyperpod watch {target.stack}"
    return f"hyperpod validate {target.stack}, or hyperpod node connect {target.stack}"
