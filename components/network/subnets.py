"""Divides address ranges into subnets, and counts the addresses that a stack needs. No resources."""

from dataclasses import dataclass
from ipaddress import IPv4Network

from ..catalogue.accelerators import find
from ..workers.keys import ClusterKeys
from .keys import NetworkConfig

# Amazon VPC User Guide, "Subnet sizing": AWS reserves 5 addresses of every subnet.
_RESERVED_ADDRESSES = 5
# The public subnet and those in two zones are /24s at fixed places of the first block. Without a second block, its
# upper half is for the nodes.
_PUBLIC_SLOT, _TWO_ZONES_SLOTS = 0, (2, 3)
# Amazon SageMaker Developer Guide, "Prerequisites for using SageMaker HyperPod": a p5 takes 32 addresses with Slurm
# (one per EFA interface) and 81 with EKS, whose CNI holds 49 more for pods.
_POD_ADDRESSES = 49
# How many interface endpoints a network can get (components/network/endpoint_services.py), by whether it is closed.
MOST_ENDPOINTS = {False: 4, True: 18}


@dataclass(frozen=True, kw_only=True)
class SubnetPlan:
    """CIDR blocks of the subnets. ``private`` holds the nodes and the file system, ``two_zones`` the parts that need
    two zones: the EKS control plane, or with Slurm a database of Amazon RDS.
    """

    public: str
    private: str
    two_zones: tuple[str, str]


def plan_subnets(cidr: str, secondary_cidr: str | None) -> SubnetPlan:
    """Divide the blocks: the nodes get the whole second one, or the upper half of the first."""
    primary = IPv4Network(cidr)
    slots = list(primary.subnets(new_prefix=24))
    private = secondary_cidr or str(list(primary.subnets(prefixlen_diff=1))[1])
    first, second = _TWO_ZONES_SLOTS
    pair = (str(slots[first]), str(slots[second]))
    return SubnetPlan(public=str(slots[_PUBLIC_SLOT]), private=private, two_zones=pair)


def addresses_needed(settings: ClusterKeys, net: NetworkConfig, servers: int) -> int:
    """Count the addresses of nodes, file servers and interface endpoints in the private subnet."""
    login = max(settings.login.count, 0) if settings.login else 0
    total = 1 + login if settings.orchestrator == "slurm" else 0
    for group in settings.groups:
        interfaces = max(row.interfaces if (row := find(name)) else 1 for name in group.types)
        total += max(settings.count_of(group), 0) * node_addresses(interfaces, settings.orchestrator)
    return total + servers + MOST_ENDPOINTS[net.closed] + _RESERVED_ADDRESSES


def node_addresses(interfaces: int, orchestrator: str) -> int:
    """Count the addresses of one node with so many network interfaces."""
    return interfaces + (_POD_ADDRESSES if orchestrator == "eks" else 0)
