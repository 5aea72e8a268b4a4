"""What a stack costs by the hour, before anything is created. List prices; traffic and other usage is apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from types import MappingProxyType

from .config import Config
from .endpoints import interface_services
from .kubernetes_versions import KUBERNETES_VERSIONS
from .prices import HOURS_PER_MONTH, price

Rates = Mapping[str, float]
_NO_RATES: Rates = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class Cost:
    """US dollars per hour: every part, and the part that is accelerators. ``notes`` say what the figures leave out."""

    parts: Mapping[str, float]
    accelerator_hourly_usd: float
    notes: tuple[str, ...]

    @property
    def hourly_usd(self) -> float:
        """The whole stack."""
        return sum(self.parts.values())

    @property
    def monthly_usd(self) -> float:
        """The whole stack for 730 hours."""
        return self.hourly_usd * HOURS_PER_MONTH


def estimate(config: Config, rates: Rates = _NO_RATES) -> Cost:
    """The stack's cost by part (prices.csv and instance_types.csv, which name each figure's source).

    ``rates`` are hourly USD that take the place of the tables', by instance type or by item of prices.csv.
    """
    settings = config.settings
    parts: dict[str, float] = {}
    notes: list[str] = []
    if not rates:
        notes.append("list prices of us-east-1 and us-west-2; data transfer and other usage is billed on top")
    accelerators = 0.0
    for group in config.instance_groups:
        hourly = group.count * rates.get(group.type.name, group.type.hourly_usd or 0.0)
        parts[f"{group.name} ({group.count} x {group.type.name})"] = hourly
        if group.type.accelerator:
            accelerators += hourly
        if group.type.name not in rates and group.type.price_basis != "hyperpod":
            notes.append(f"{group.type.name}: {group.type.price_basis} rate, no HyperPod rate is published")
        if group.worker and (group.worker.capacity == "spot" or group.worker.training_plan_arn):
            notes.append(f"{group.name}: shown at the on-demand rate; spot and training plans cost what AWS says then")
    volumes = sum(group.count * group.volume_gib for group in config.instance_groups)
    parts["node volumes"] = volumes * _hourly("sagemaker_volume", rates)
    parts["FSx for Lustre"] = config.fsx_gib * _hourly(f"fsx_lustre_{settings.fsx.throughput}", rates)
    if not settings.network.vpc_id:
        parts |= _network(config, rates)
    if settings.orchestrator == "eks":
        extended = KUBERNETES_VERSIONS[settings.kubernetes_version].extended_support(date.today())
        parts["EKS control plane"] = _hourly("eks_extended_hour" if extended else "eks_hour", rates)
        if extended:
            notes.append(f"Kubernetes {settings.kubernetes_version} is under extended support, at six times the price")
    if settings.observability:
        notes.append("managed Prometheus and Grafana are billed by sample and by user")
    return Cost(parts=parts, accelerator_hourly_usd=accelerators, notes=tuple(notes))


def _network(config: Config, rates: Rates) -> dict[str, float]:
    endpoints = len(interface_services(config)) * _hourly("interface_endpoint_hour", rates)
    if config.settings.network.closed:
        return {"VPC endpoints": endpoints}
    return {
        "VPC endpoints": endpoints,
        "NAT gateway": _hourly("nat_gateway_hour", rates) + _hourly("public_ipv4_hour", rates),
    }


def _hourly(item: str, rates: Rates) -> float:
    """USD an hour for one unit of an item that is held all the time."""
    hourly = rates.get(item, price(item).hourly_usd)
    assert hourly is not None, f"{item} is billed by usage"
    return hourly
