"""What a stack costs by the hour, before anything is created. List prices; traffic and other usage is apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .config import Config
from .network import interface_services
from .prices import HOURS_PER_MONTH, price

# Kubernetes versions that EKS bills as extended support (Amazon EKS User Guide, release calendar: standard support of
# 1.31 ended 2025-11-26, of 1.32 on 2026-03-23, of 1.33 on 2026-07-29).
_EXTENDED = ("1.31", "1.32", "1.33")


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


def estimate(config: Config) -> Cost:
    """The stack's cost by part (prices.csv and instance_types.csv, which name each figure's source)."""
    settings = config.settings
    parts: dict[str, float] = {}
    notes: list[str] = ["list prices of us-east-1 and us-west-2; data transfer and other usage is billed on top"]
    accelerators = 0.0
    for group in config.instance_groups:
        hourly = group.count * (group.type.hourly_usd or 0.0)
        parts[f"{group.name} ({group.count} x {group.type.name})"] = hourly
        if group.type.accelerator:
            accelerators += hourly
        if group.type.price_basis != "hyperpod":
            notes.append(f"{group.type.name}: {group.type.price_basis} rate, no HyperPod rate is published")
        if group.worker and (group.worker.capacity == "spot" or group.worker.training_plan_arn):
            notes.append(f"{group.name}: shown at the on-demand rate; spot and training plans cost what AWS says then")
    volumes = sum(group.count * group.volume_gib for group in config.instance_groups)
    parts["node volumes"] = volumes * price("sagemaker_volume").usd / HOURS_PER_MONTH
    parts["FSx for Lustre"] = config.fsx_gib * price(f"fsx_lustre_{settings.fsx.throughput}").usd / HOURS_PER_MONTH
    if not settings.network.vpc_id:
        parts |= _network(config)
    if settings.orchestrator == "eks":
        extended = settings.kubernetes_version in _EXTENDED
        parts["EKS control plane"] = price("eks_extended_hour" if extended else "eks_hour").usd
        if extended:
            notes.append(f"Kubernetes {settings.kubernetes_version} is under extended support, at six times the price")
    if settings.observability:
        notes.append("managed Prometheus and Grafana are billed by sample and by user")
    return Cost(parts=parts, accelerator_hourly_usd=accelerators, notes=tuple(notes))


def _network(config: Config) -> dict[str, float]:
    settings = config.settings
    services = interface_services(
        closed=settings.network.closed, eks=settings.orchestrator == "eks", metrics=settings.observability
    )
    parts = {"VPC endpoints": len(services) * price("interface_endpoint_hour").usd}
    if not settings.network.closed:
        parts["NAT gateway"] = price("nat_gateway_hour").usd + price("public_ipv4_hour").usd
    return parts
