"""Finds the published limits that a stack meets as one worker group grows, and at how many nodes."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from ipaddress import IPv4Network
from pathlib import Path
from types import MappingProxyType

from hyperpod_node.metrics import exporters

from ..catalogue import rows
from ..config import Config
from ..network.subnets import node_addresses, plan_subnets
from ..nodes.lifecycle_bucket import lifecycle_files, scripts
from .quotas import interfaces_needed

# Amazon VPC User Guide, "Network Address Usage for your VPC": units of an interface endpoint or a NAT gateway.
_MANAGED_UNITS = 6
# Counted in node_exporter's output, without its collector softnet: for each core, and all others.
_SERIES_PER_CORE, _SERIES_OF_HOST = 10, 450
# Counters of one EFA interface and of a Lustre client, as the nodes' own writer gives them (docs/metrics.md).
_SERIES_PER_EFA, _SERIES_OF_LUSTRE = 35, 44


@dataclass(frozen=True, kw_only=True)
class Limit:
    """A row of limits.csv: at most ``limit`` ``unit`` of ``what``, and the setting to ``change`` for more."""

    name: str
    what: str
    limit: float
    unit: str
    change: str
    source: str
    checked: date


@dataclass(frozen=True, kw_only=True)
class Reach:
    """How far a limit reaches: to ``nodes`` of the group. ``used``: units that the requested size would take."""

    limit: Limit
    nodes: int
    used: float

    @property
    def exceeded(self) -> bool:
        """Whether the requested size is over the limit."""
        return self.used > self.limit.limit


LIMITS: Mapping[str, Limit] = rows.table(Path(rows.__file__).with_name("limits.csv"), Limit, "name")


def grown(config: Config, group: str, count: int) -> Config:
    """Return the configuration with another number of nodes in a group, unchecked: it may be too large for AWS."""
    settings = config.settings
    changed = [
        one.model_copy(update={"count": count, "min_count": None}) if one.name == group else one
        for one in settings.groups
    ]
    return Config(settings.model_copy(update={"workers": tuple(changed)}), config.region)


def reaches(config: Config, group: str, count: int) -> list[Reach]:
    """Return every limit that grows with a group, the first one that it meets at the head.

    All uses are linear in the number of nodes, so two sizes determine the rest.
    """
    none, one, wanted = (grown(config, group, nodes) for nodes in (0, 1, count))
    found = []
    for limit in _limits(config):
        use = _USES[limit.name]
        others = use(none, group)
        each = use(one, group) - others
        if each > 0:
            nodes = max(math.floor((limit.limit - others) / each), 0)
            found.append(Reach(limit=limit, nodes=nodes, used=use(wanted, group)))
    return sorted(found, key=lambda reach: reach.nodes)


def _limits(config: Config) -> Iterator[Limit]:
    """Return the limits that concern a stack. Its own configuration limits its addresses."""
    settings = config.settings
    skipped = {"slurm-nodes" if settings.orchestrator == "eks" else "kubernetes-nodes"}
    if settings.network.vpc_id:
        skipped.add("address-usage")
    else:
        network = settings.network
        yield _room(IPv4Network(plan_subnets(network.cidr, network.secondary_cidr).private).num_addresses)
    if not (settings.observability.with_prometheus and settings.orchestrator == "slurm"):
        skipped.add("prometheus-series")
    if not (settings.observability.prometheus == "create" and settings.alerts.wanted):
        skipped.add("active-alerts")
    yield from (limit for name, limit in LIMITS.items() if name not in skipped)


def _room(room: int) -> Limit:
    largest = 2**16
    return Limit(
        name="addresses",
        what="addresses of the nodes' subnet",
        limit=room,
        unit="addresses",
        change=f"network.secondaryCidr: a block of {largest:,} addresses (/16), AWS's largest"
        if room < largest
        else "a second stack: AWS has no larger block than /16",
        source='Amazon VPC User Guide, "VPC CIDR blocks"',
        checked=date(2026, 11, 25),
    )


def _nodes(config: Config, _: str = "") -> float:
    return sum(group.count for group in config.instance_groups)


def _of_group(config: Config, name: str) -> float:
    return next(group.count for group in config.worker_groups if group.name == name)


def _address_usage(config: Config, _: str) -> float:
    """Count a unit for each address, and for each interface after a node's first."""
    endpoints = len(config.settings.interface_services) + (0 if config.settings.network.closed else 1)
    return endpoints * _MANAGED_UNITS + sum(
        group.count * (node_addresses(group.interfaces, config.settings.orchestrator) + group.interfaces - 1)
        for group in config.instance_groups
    )


def _boot_requests(config: Config, _: str) -> float:
    """Count the requests of a boot: HyperPod downloads every lifecycle file to every node."""
    return _nodes(config) * len(lifecycle_files(scripts()))


def _series(config: Config, _: str) -> float:
    detail = config.settings.observability.detail
    fields = len(exporters.metrics_list(detail).splitlines())
    return sum(
        group.count
        * (
            _SERIES_OF_HOST
            + _SERIES_OF_LUSTRE
            + _SERIES_PER_CORE * group.type.vcpus
            + _SERIES_PER_EFA * group.type.efa_interfaces
            + (fields * group.type.accelerators if group.type.accelerator == "gpu" else 0)
        )
        for group in config.instance_groups
    )


_USES: Mapping[str, Callable[[Config, str], float]] = MappingProxyType(
    {
        "addresses": lambda config, _: config.settings.addresses,
        "address-usage": _address_usage,
        "group-instances": _of_group,
        "network-interfaces": lambda config, _: interfaces_needed(config),
        "kubernetes-nodes": _nodes,
        "slurm-nodes": _nodes,
        "boot-requests": _boot_requests,
        "prometheus-series": _series,
        "active-alerts": _nodes,
    }
)
