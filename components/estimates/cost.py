"""Estimates a stack's cost per hour before anything is created: list prices, without traffic and other usage."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from ..catalogue.accelerators import lookup
from ..catalogue.kubernetes_versions import KUBERNETES_VERSIONS, extended_support_notice, today
from ..catalogue.prices import PRICED_REGIONS, PRICES, price
from ..config import Config, InstanceGroup
from .amounts import Cost, Part, dearest, known, total

Rates = Mapping[str, float]
_NO_RATES: Rates = MappingProxyType({})
_PRICED = " and ".join(PRICED_REGIONS)
# Substitutes for an unpublished price, by InstanceType.price_basis, and for a region's own.
_BASES = {"ec2": "EC2's on-demand rate", "capacity-block": "the rate of EC2's capacity blocks"}
_TABLES = f"the prices of {_PRICED}"
_ON_DEMAND = "the on-demand rate"
# Of every type whose rate is in both lists: AWS Price List, AmazonSageMaker of 2026-09-16 and AmazonEC2 of 2026-07-20.
_ABOVE_EC2 = "HyperPod's published rates are 15 to 25 % above EC2's"
_ASK = "`hyperpod cost STACK --live` asks AWS"


def estimate(config: Config, rates: Rates = _NO_RATES) -> Cost:
    """Return the stack's cost by part (prices.csv and instance_types.csv, which name each figure's source).

    ``rates`` are hourly USD in the stack's region, by instance type or by item of prices.csv. They replace the tables'
    figures, which are the prices of two regions and only an estimate for every other.
    """
    held = quantities(config)
    groups = {_group_part(group): group for group in config.instance_groups}
    listed = tuple(part for part, of in held.items() if not of.keys() <= rates.keys())
    place = config.region.name if listed and config.region.name not in PRICED_REGIONS else ""
    parts, choices = {}, []
    for name, of in held.items():
        found = [_part(item, number, rates, place) for item, number in of.items()]
        parts[name] = _price_group(found, groups[name]) if name in groups else total(name, found)
        if name in groups and len(found) > 1:
            choices.append(_in_order(found, groups[name]))
    idle = estimate(config.idle, rates) if config.follows_demand else None
    if idle:
        # A group that follows demand is not there under the same name.
        least = {name: part.least for name, part in idle.parts.items()}
        parts = {name: replace(part, least=min(part.least, least.get(name, 0.0))) for name, part in parts.items()}
    where = "" if len(listed) == len(held) else f" for {', '.join(listed)}"
    notes = [f"list prices of {_PRICED}{where}"] if listed else []
    by_use = [f"{what} ({' and '.join(_in_words(item) for item in of)})" for what, of in usage(config).items()]
    notes += choices
    notes += [f"on top, by use, in {_PRICED}: {', '.join([*by_use, 'other data transfer'])}", *_notes(config)]
    warnings = [*_warnings(groups, parts)]
    if place:
        warnings.append(f"the prices are those of {_PRICED}, not of {place}: {_ASK}")
    return Cost(
        parts=parts,
        accelerated=tuple(name for name, group in groups.items() if group.type.accelerator),
        notes=tuple(notes),
        listed=listed,
        warnings=tuple(warnings),
        place=place,
        idle=idle.words if idle else "",
        ranges=any(len(group.types) > 1 for group in groups.values()),
    )


def _part(item: str, number: float, rates: Rates, place: str) -> Part:
    """Price a quantity of an instance type or of an item billed by the hour; ``place`` is a region without a table."""
    if item in rates or not number:
        return known(item, number * rates.get(item, 0.0))
    if item in PRICES:
        hourly, basis = price(item).hourly_usd, ""
        assert hourly is not None, f"{item} is billed by usage"
    else:
        row = lookup(item)
        hourly, basis = row.hourly_usd, _BASES.get(row.price_basis or "", "")
    if hourly is None:
        return Part(what=item, least=0.0, most=None, guess=None)
    if basis or place:
        return Part(what=item, least=0.0, most=None, guess=number * hourly, basis=basis or _TABLES)
    return known(item, number * hourly)


def _price_group(by_type: Sequence[Part], group: InstanceGroup) -> Part:
    """Price a group by how its instances are bought, from the cheapest of its types to the dearest.

    Amazon EC2 User Guide, "Spot Instances": spare capacity for less than the On-Demand price. SageMaker Developer
    Guide, "Reserve Flexible Training Plans for ML workloads": a plan is paid in advance, at its own price.
    """
    part = replace(dearest(by_type), what=f"{group.count} x {group.type_names}")
    if group.worker and group.worker.training_plan_arn:
        return Part(what=f"the training plan of {group.name}", least=0.0, most=None, guess=part.guess, basis=_ON_DEMAND)
    if group.worker and group.worker.capacity == "spot":
        return replace(part, least=0.0)
    return part


def _in_order(by_type: Sequence[Part], group: InstanceGroup) -> str:
    """Say what is tried first, what then, and what each costs. Karpenter chooses by price (SageMaker Developer Guide,
    "Continuous provisioning for enhanced cluster operations on Amazon EKS", Flexible instance groups).
    """
    then = ", or " if group.follows_demand else ", then "
    told = then.join(f"{one.what} for {one.figure()}" for one in by_type)
    return f"{group.name}: {told}; USD an hour for {group.count} nodes"


def _warnings(groups: Mapping[str, InstanceGroup], parts: Mapping[str, Part]) -> Iterator[str]:
    """Name the instance types without a HyperPod price; a region without prices has one warning for all."""
    for name, group in groups.items():
        part = parts[name]
        if group.worker and group.worker.training_plan_arn:
            yield f"{group.name}: the price of its training plan is unknown; it is paid in advance, used or not"
        for row in group.types if part.most is None else ():
            what = part.what if len(group.types) == 1 else f"{group.count} x {row.name}"
            if row.price_basis == "hyperpod":
                continue
            if row.hourly_usd is None:
                yield f"the price of {what} is unknown, and is in no sum: {_ASK}"
                continue
            stands = f"{_BASES[row.price_basis or '']} in us-east-1, ${row.hourly_usd:,.2f} for each, is an estimate"
            above = f". {_ABOVE_EC2}" if row.price_basis == "ec2" else ""
            yield f"HyperPod's price of {what} is unknown: {stands} ({row.price_source.split(';')[0]}){above}"


def quantities(config: Config) -> dict[str, dict[str, float]]:
    """Return the stack's permanent use, by part: how much of each instance type and item of prices.csv. A group has as
    much of any of its types.
    """
    settings = config.settings
    held: dict[str, dict[str, float]] = {
        _group_part(one): {row.name: one.count for row in one.types} for one in config.instance_groups
    }
    volumes = sum(group.count * group.volume_gib for group in config.instance_groups)
    held["node volumes"] = {"sagemaker_volume": volumes}
    if not settings.fsx.file_system_id:
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
        held["VPC endpoints"] = {"interface_endpoint_hour": len(config.settings.interface_services)}
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
    """Return the parts billed by use, and the items of prices.csv at which they are billed."""
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
    if settings.observability.mlflow:
        found["MLflow's files"] = ("s3_storage",)
    if settings.alerts.wanted:
        found["each metric with an alarm"] = ("cloudwatch_alarm",)
        found["CloudWatch's dashboard"] = ("cloudwatch_dashboard",)
    return found


def _in_words(item: str) -> str:
    one = price(item)
    per = {"10M samples": "for 10 million samples", "billion samples": "for a billion samples"}.get(one.unit)
    return f"${one.usd:.{2 if round(one.usd, 2) == one.usd else 3}f} {per or f'a {one.unit}'}"


def _group_part(group: InstanceGroup) -> str:
    return f"{group.name} ({group.count} x {group.type_names})"


def _extended(config: Config) -> bool:
    return KUBERNETES_VERSIONS[config.settings.kubernetes_version].extended_support(today())


def _notes(config: Config) -> Iterator[str]:
    settings = config.settings
    for group in config.instance_groups:
        if group.worker and group.worker.capacity == "spot":
            yield f"{group.name}: at most the on-demand rate, which is shown; spot costs what AWS says then"
        if group.follows_demand:
            yield f"{group.name}: nothing while no pod wants its nodes, and with all {group.count} what is shown"
    if settings.orchestrator == "eks" and (notice := extended_support_notice(settings.kubernetes_version)):
        yield notice
