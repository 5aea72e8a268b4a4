"""What a stack costs per hour, before anything is created: list prices, without traffic and other usage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ..catalogue.accelerators import lookup
from ..catalogue.kubernetes_versions import KUBERNETES_VERSIONS, extended_support_notice, today
from ..catalogue.prices import HOURS_PER_MONTH, PRICED_REGIONS, PRICES, price
from ..config import Config, InstanceGroup
from .endpoints import interface_services

Rates = Mapping[str, float]
_NO_RATES: Rates = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class Cost:
    """US dollars per hour: every part, and the accelerators' share. ``notes`` say what the figures leave out.

    ``listed`` are the parts that use, wholly or in part, the tables' prices; ``warning`` says that these are another
    region's, empty where they are not.
    """

    parts: Mapping[str, float]
    accelerator_hourly_usd: float
    notes: tuple[str, ...]
    listed: tuple[str, ...]
    warning: str = ""

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

    ``rates`` are hourly USD that replace the tables', by instance type or by item of prices.csv.
    """
    held = quantities(config)
    parts = {part: sum(number * _hourly(item, rates) for item, number in of.items()) for part, of in held.items()}
    listed = tuple(part for part, of in held.items() if not of.keys() <= rates.keys())
    accelerators = sum(parts[_group_part(group)] for group in config.instance_groups if group.type.accelerator)
    where = "" if len(listed) == len(held) else f" for {', '.join(listed)}"
    priced = " and ".join(PRICED_REGIONS)
    notes = [f"list prices of {priced}{where}"] if listed else []
    by_use = [f"{what} ({' and '.join(_in_words(item) for item in of)})" for what, of in usage(config).items()]
    notes += [f"on top, by use, in {priced}: {', '.join([*by_use, 'other data transfer'])}", *_notes(config, rates)]
    region = config.region.name
    elsewhere = listed and region not in PRICED_REGIONS
    warning = f"the prices are those of {priced}, not of {region}: `hyperpod cost --live` asks AWS"
    return Cost(
        parts=parts,
        accelerator_hourly_usd=accelerators,
        notes=tuple(notes),
        listed=listed,
        warning=warning if elsewhere else "",
    )


def quantities(config: Config) -> dict[str, dict[str, float]]:
    """What the stack uses permanently, by part: how much of each instance type and item of prices.csv."""
    settings = config.settings
    held: dict[str, dict[str, float]] = {_group_part(one): {one.type.name: one.count} for one in config.instance_groups}
    volumes = sum(group.count * group.volume_gib for group in config.instance_groups)
    held["node volumes"] = {"sagemaker_volume": volumes}
    held["FSx for Lustre"] = {f"fsx_lustre_{settings.fsx.throughput}": config.fsx_gib}
    if settings.fsx.home_storage_gib:
        held["FSx for OpenZFS"] = {
            "fsx_openzfs": settings.fsx.home_storage_gib,
            "fsx_openzfs_throughput": settings.fsx.home_throughput,
        }
    if (database := settings.slurm.accounting) and settings.slurm.on_rds:
        kind = database.instance_class.removeprefix("db.").replace(".", "_")
        held["accounting database"] = {f"rds_{kind}": 1, "rds_gp3": database.storage_gib, "secret": 1}
    if not settings.network.vpc_id:
        held["VPC endpoints"] = {"interface_endpoint_hour": len(interface_services(config))}
        if not settings.network.closed:
            held["NAT gateway"] = {"nat_gateway_hour": 1, "public_ipv4_hour": 1}
    if settings.orchestrator == "eks":
        held["EKS control plane"] = {"eks_extended_hour" if _extended(config) else "eks_hour": 1}
    if settings.observability.scraper != "none":
        held["metrics collector"] = {"amp_collector_hour": 1}
    if settings.observability.grafana == "create":
        # Each workspace has an administrator.
        held["managed Grafana"] = {"amg_editor": 1}
    created = settings.security.kms_key == "create"
    if created or (settings.orchestrator == "eks" and not settings.security.kms_key):
        held["KMS key"] = {"kms_key": 1}
    return held


def usage(config: Config) -> dict[str, tuple[str, ...]]:
    """What the stack pays for as much as it uses, and the items of prices.csv that each is billed at."""
    settings = config.settings
    found: dict[str, tuple[str, ...]] = {}
    if not settings.network.vpc_id:
        if not settings.network.closed:
            found["traffic through the NAT gateway"] = ("nat_gateway_gb",)
        found["traffic through VPC endpoints"] = ("interface_endpoint_gb",)
    found["CloudWatch Logs"] = ("cloudwatch_logs_ingest", "cloudwatch_logs_storage")
    if settings.fsx.backup_days:
        found["backups of file systems"] = ("fsx_backup",)
    if settings.orchestrator == "eks":
        found["volumes that pods claim"] = ("ebs_gp3",)
    if settings.observability.with_prometheus:
        found["managed Prometheus"] = ("amp_ingest", "amp_query", "amp_storage")
    if settings.observability.scraper != "none":
        found["its collector"] = ("amp_collector_samples",)
    if settings.observability.grafana == "create":
        found["more editors of Grafana"] = ("amg_editor",)
        found["its viewers"] = ("amg_viewer",)
    if settings.alerts.wanted:
        found["each metric with an alarm"] = ("cloudwatch_alarm",)
        found["CloudWatch's dashboard"] = ("cloudwatch_dashboard",)
    return found


def _in_words(item: str) -> str:
    one = price(item)
    per = {"10M samples": "for 10 million samples", "billion samples": "for a billion samples"}.get(one.unit)
    return f"${one.usd:.{2 if round(one.usd, 2) == one.usd else 3}f} {per or f'a {one.unit}'}"


def _group_part(group: InstanceGroup) -> str:
    return f"{group.name} ({group.count} x {group.type.name})"


def _extended(config: Config) -> bool:
    return KUBERNETES_VERSIONS[config.settings.kubernetes_version].extended_support(today())


def _notes(config: Config, rates: Rates) -> Iterator[str]:
    settings = config.settings
    for group in config.instance_groups:
        known = group.type.name in rates
        if not known and group.type.hourly_usd is None:
            yield f"{group.type.name}: no price is known, and it counts as nothing; `hyperpod cost --live` asks AWS"
        elif not known and group.type.price_basis != "hyperpod":
            yield f"{group.type.name}: {group.type.price_basis} rate, no HyperPod rate is published"
        if group.worker and group.worker.training_plan_arn:
            # SageMaker Developer Guide, "Reserve Flexible Training Plans for ML workloads".
            yield f"{group.name}: shown at the on-demand rate; its training plan is paid in advance, used or not"
        elif group.worker and group.worker.capacity == "spot":
            yield f"{group.name}: shown at the on-demand rate; spot costs what AWS says then"
    if settings.orchestrator == "eks" and (notice := extended_support_notice(settings.kubernetes_version)):
        yield notice


def _hourly(item: str, rates: Rates) -> float:
    """USD per hour for one unit of an instance type or of an item that is billed by the hour."""
    if item in rates:
        return rates[item]
    hourly = price(item).hourly_usd if item in PRICES else lookup(item).hourly_usd or 0.0
    assert hourly is not None, f"{item} is billed by usage"
    return hourly
