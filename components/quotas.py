"""The service quotas that a stack needs, so that they can be asked for before a deployment fails on one."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from .config import Config
from .endpoints import interface_services


@dataclass(frozen=True, kw_only=True)
class Quota:
    """One quota and how much of it the stack takes. ``code`` is empty where AWS gives each type its own code."""

    service: str
    name: str
    needed: float
    unit: str = "count"
    code: str = ""

    def as_json(self) -> dict[str, Any]:
        """The documented form."""
        return asdict(self)


def needed(config: Config) -> list[Quota]:
    """Every quota the stack takes from. Codes are from the Service Quotas console and the quickstart's inventory."""
    settings = config.settings
    instances: Counter[str] = Counter()
    volume_gib = 0
    for group in config.instance_groups:
        instances[group.type.name] += group.count
        volume_gib = max(volume_gib, group.volume_gib)
    total = sum(instances.values())
    quotas = [
        Quota(service="sagemaker", name=f"{name} for cluster usage", needed=count, unit="instances")
        for name, count in sorted(instances.items())
    ]
    quotas += [
        Quota(
            service="sagemaker",
            name="Total number of instances allowed across SageMaker HyperPod clusters",
            needed=total,
            unit="instances",
        ),
        Quota(
            service="sagemaker",
            name="Maximum number of instances allowed per SageMaker HyperPod cluster",
            needed=total,
            unit="instances",
        ),
        Quota(
            service="sagemaker",
            name="Maximum size of EBS volume in GB for a SageMaker HyperPod cluster instance",
            needed=volume_gib,
            unit="GiB",
        ),
        Quota(service="fsx", name="Lustre Persistent_2 storage capacity", needed=config.fsx_gib, unit="GiB"),
        Quota(service="fsx", name="Lustre Persistent_2 file systems", needed=1),
        Quota(service="ec2", name="Network interfaces per Region", code="L-DF5E4CA3", needed=_interfaces(config)),
    ]
    if not settings.network.vpc_id:
        quotas.append(Quota(service="vpc", name="VPCs per Region", code="L-F678F1CE", needed=1))
        endpoints = len(interface_services(config))
        quotas.append(Quota(service="vpc", name="Interface VPC endpoints per VPC", code="L-29B6F2EB", needed=endpoints))
        if not settings.network.closed:
            quotas.append(Quota(service="vpc", name="Internet gateways per Region", code="L-A4707A72", needed=1))
            quotas.append(Quota(service="vpc", name="NAT gateways per Availability Zone", code="L-FE5A380F", needed=1))
            quotas.append(Quota(service="ec2", name="EC2-VPC Elastic IPs", code="L-0263D0A3", needed=1))
    if settings.orchestrator == "eks":
        quotas.append(Quota(service="eks", name="Clusters", code="L-1194D53C", needed=1))
    if settings.observability:
        quotas.append(Quota(service="aps", name="Workspaces per region per account", needed=1))
        quotas.append(Quota(service="grafana", name="Workspaces", needed=1))
    return quotas


def _interfaces(config: Config) -> int:
    """One for each node's own traffic, one for each further EFA card, and about ten for FSx, NAT and endpoints."""
    return 10 + sum(group.count * max(1, group.type.efa_interfaces) for group in config.instance_groups)
