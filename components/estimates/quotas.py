"""Determines the service quotas that a stack needs, so that you can request them before a deployment fails."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from ..config import Config

# SageMaker's names of the quotas of one instance type.
ON_DEMAND = "{type} for cluster usage"
SPOT = "{type} for cluster spot instance usage"
RESERVED = "Number of {type} instances in reserved capacity across training plans per Region"


def counted(*, spot: bool, plan: bool) -> tuple[str, ...]:
    """Return the quotas that an instance counts against. One of a training plan counts twice: HyperPod's own quota has
    to allow it as well (SageMaker Developer Guide, "View SageMaker training plans quotas").
    """
    return (SPOT,) if spot else (ON_DEMAND, RESERVED) if plan else (ON_DEMAND,)


@dataclass(frozen=True, kw_only=True)
class Quota:
    """One quota, and the amount that the stack needs. ``code`` is empty if no public source has it."""

    service: str
    name: str
    needed: float
    unit: str = "count"
    code: str = ""

    @property
    def of_type(self) -> bool:
        """Whether it belongs to one instance type: Service Quotas then knows it by its name."""
        return "ml." in self.name

    def as_json(self) -> dict[str, Any]:
        """Return the documented form."""
        return asdict(self)


def needed(config: Config) -> list[Quota]:
    """Return every quota that the stack needs, by the names and codes of the Service Quotas console."""
    settings = config.settings
    quotas = [*_instances(config), *_storage(config), _interfaces(config)]
    if not settings.network.vpc_id:
        quotas += _network(config)
    if settings.orchestrator == "eks":
        quotas.append(Quota(service="eks", name="Clusters", code="L-1194D53C", needed=1))
    if settings.slurm.on_rds:
        quotas.append(Quota(service="rds", name="DB instances", code="L-7B6409FD", needed=1))
    if settings.observability.prometheus == "create":
        quotas.append(Quota(service="aps", name="Workspaces per region per account", code="L-8873DB23", needed=1))
    if settings.observability.grafana == "create":
        quotas.append(Quota(service="grafana", name="Number of workspaces", code="L-2C2D5119", needed=1))
    return quotas


def _instances(config: Config) -> Iterator[Quota]:
    """Count instances: SageMaker has a quota for each type and purchase option, and three for all of HyperPod."""
    total = spot = 0
    wanted: Counter[str] = Counter()
    for group in config.instance_groups:
        total += group.count
        on_spot = bool(group.worker and group.worker.capacity == "spot")
        spot += group.count if on_spot else 0
        for name in counted(spot=on_spot, plan=bool(group.worker and group.worker.training_plan_arn)):
            # Any of its types may have to provide all nodes of a group.
            wanted.update({name.format(type=row.name): group.count for row in group.types})
    rows = [row for group in config.instance_groups for row in group.types]
    codes = {ON_DEMAND.format(type=row.name): row.quota_code for row in rows}
    for name, count in sorted((+wanted).items()):
        yield Quota(service="sagemaker", name=name, code=codes.get(name, ""), needed=count, unit="instances")
    hyperpod = "SageMaker HyperPod cluster"
    yield Quota(
        service="sagemaker",
        name=f"Total number of instances allowed across {hyperpod}s",
        code="L-3308CCC7",
        needed=total,
        unit="instances",
    )
    yield Quota(
        service="sagemaker",
        name=f"Maximum number instances allowed per {hyperpod}",
        code="L-2CE978FC",
        needed=total,
        unit="instances",
    )
    if spot:
        yield Quota(
            service="sagemaker",
            name=f"Total number of Spot instances allowed across {hyperpod}s",
            code="L-97A2C724",
            needed=spot,
            unit="instances",
        )
    yield Quota(
        service="sagemaker",
        name=f"Maximum size of EBS volume in GB for a {hyperpod} instance",
        code="L-E13DF72A",
        needed=max((group.volume_gib for group in config.instance_groups if group.count), default=0),
        unit="GiB",
    )


def _storage(config: Config) -> Iterator[Quota]:
    if not config.settings.fsx.file_system_id:
        yield Quota(
            service="fsx",
            name="Lustre Persistent_2 storage capacity",
            code="L-8F1B9C74",
            needed=config.fsx_gib,
            unit="GiB",
        )
        yield Quota(service="fsx", name="Lustre Persistent_2 file systems", code="L-FD6F2F22", needed=1)
    if gib := config.settings.fsx.home_storage_gib:
        speed = config.settings.fsx.home_throughput
        yield Quota(service="fsx", name="OpenZFS file systems", code="L-59D0763F", needed=1)
        yield Quota(service="fsx", name="OpenZFS SSD storage capacity", code="L-88479C21", needed=gib, unit="GiB")
        yield Quota(service="fsx", name="OpenZFS throughput capacity", code="L-4EDE4065", needed=speed, unit="MB/s")


def _network(config: Config) -> Iterator[Quota]:
    """Return the quotas of a new VPC."""
    yield Quota(service="vpc", name="VPCs per Region", code="L-F678F1CE", needed=1)
    endpoints = len(config.settings.interface_services)
    yield Quota(service="vpc", name="Interface VPC endpoints per VPC", code="L-29B6F2EB", needed=endpoints)
    yield Quota(service="vpc", name="Gateway VPC endpoints per Region", code="L-1B52E74A", needed=1)
    if not config.settings.network.closed:
        yield Quota(service="vpc", name="Internet gateways per Region", code="L-A4707A72", needed=1)
        yield Quota(service="vpc", name="NAT gateways per Availability Zone", code="L-FE5A380F", needed=1)
        yield Quota(service="ec2", name="EC2-VPC Elastic IPs", code="L-0263D0A3", needed=1)


def _interfaces(config: Config) -> Quota:
    needed = interfaces_needed(config)
    return Quota(service="vpc", name="Network interfaces per Region", code="L-DF5E4CA3", needed=needed)


def interfaces_needed(config: Config) -> int:
    """Count interfaces: one for each node and each further EFA card, about ten for FSx, NAT gateway, endpoints."""
    return 10 + sum(group.count * group.interfaces for group in config.instance_groups)
