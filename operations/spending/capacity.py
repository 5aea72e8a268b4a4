"""``capacity``: where, how and for what price AWS has the nodes of a stack's worker groups."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from botocore.exceptions import BotoCoreError, ClientError

from components.catalogue.accelerators import InstanceType
from components.config import InstanceGroup
from components.estimates.quotas import ON_DEMAND, SPOT, Quota

from ..aws import Aws
from ..failures import NO_CREDENTIALS, reason
from ..target import Target
from . import plans, quotas

Purchase = Literal["on-demand", "spot", "training plan", "extension"]
# SageMaker Developer Guide, "Search training plan offerings": how many instances a plan has, and for how many days.
PLAN_SIZES = (1, 2, 4, 8, 16, 32, 64)
PLAN_DAYS = (1, 182)
_QUOTAS: Mapping[Purchase, str] = {"on-demand": ON_DEMAND, "spot": SPOT}


@dataclass(frozen=True, kw_only=True)
class Offer:
    """One way to get the nodes of a type.

    ``nodes`` is what the quota leaves or the plan has; ``hourly_usd`` is for the ``wanted`` nodes and ``upfront_usd``
    for the whole plan. They are None where nobody knows. ``starts`` is an ISO time, ``hours`` how long it lasts; both
    are empty for what has no end. ``fits`` is None where an answer is missing: ``why`` says which.
    """

    instance_type: str
    wanted: int
    purchase: Purchase
    zones: tuple[str, ...]
    nodes: int | None
    starts: str = ""
    hours: float | None = None
    hourly_usd: float | None = None
    upfront_usd: float | None = None
    fits: bool | None
    why: str = ""
    next: str = ""


def offers(target: Target, days: int, after: datetime | None = None) -> list[Offer]:
    """What AWS offers for each type of the stack's workers; a plan for ``days``, that starts ``after`` a time."""
    wanted: Counter[InstanceType] = Counter()
    for group in target.config.training_groups:
        wanted.update(dict.fromkeys(group.types, group.count))
    found: list[Offer] = []
    zone_ids, checks = _zone_ids(target), _checks(target, wanted)
    for row, number in wanted.items():
        found += _bought_by_the_hour(target, row, number, checks)
        found += _plans(target, row, number, days, after, zone_ids)
    for arn, groups in plans.users(target).items():
        found += _extensions(target, arn, groups, days)
    return found


def _extensions(target: Target, arn: str, groups: Sequence[InstanceGroup], days: int) -> Iterator[Offer]:
    """What makes a plan of the stack longer (SageMaker Developer Guide, "Search for extension offerings")."""
    kind, wanted = groups[0].type.name, sum(group.count for group in groups)
    answer, why = _searched(target, TrainingPlanArn=arn, DurationHours=24 * days)
    if why:
        yield _unasked(kind, wanted, "extension", why)
    for one in answer.get("TrainingPlanExtensionOfferings", []):
        yield Offer(
            instance_type=kind,
            wanted=wanted,
            purchase="extension",
            zones=(target.config.zone_id,),
            nodes=wanted,
            starts=one["StartDate"].isoformat() if "StartDate" in one else "",
            hours=one.get("DurationHours"),
            upfront_usd=float(one["UpfrontFee"]) if one.get("CurrencyCode") == "USD" else None,
            fits=True,
            next=f"aws sagemaker extend-training-plan --region {target.aws.region} "
            f"--training-plan-extension-offering-id {one['TrainingPlanExtensionOfferingId']}",
        )


def zones_of(aws: Aws, instance_type: str) -> tuple[list[str], str]:
    """The zone ids in which EC2 offers an instance type, or why that could not be asked.

    EC2 API Reference, DescribeInstanceTypeOfferings. It says where such instances are, not that any is free.
    """
    wanted = {"Name": "instance-type", "Values": [instance_type.removeprefix("ml.")]}
    try:
        found = aws.pages(
            "ec2",
            "describe_instance_type_offerings",
            "InstanceTypeOfferings",
            LocationType="availability-zone-id",
            Filters=[wanted],
        )
        return sorted(one["Location"] for one in found), ""
    except (BotoCoreError, ClientError) as error:
        return [], reason(error)


def _checks(target: Target, wanted: Mapping[InstanceType, int]) -> dict[str, quotas.Check]:
    """The quotas of each type and purchase, by their names."""
    asked = [
        Quota(service="sagemaker", name=name.format(type=row.name), needed=number)
        for row, number in wanted.items()
        for name in _QUOTAS.values()
    ]
    return {one.name: one for one in quotas.check(target, asked)}


def _zone_ids(target: Target) -> Mapping[str, str]:
    """The ids of the region's zones by their names, which differ between accounts."""
    try:
        listed = target.aws.client("ec2").describe_availability_zones()["AvailabilityZones"]
    except NO_CREDENTIALS:
        raise
    except (ClientError, BotoCoreError):
        return {}
    return {one["ZoneName"]: one["ZoneId"] for one in listed}


def _bought_by_the_hour(
    target: Target, row: InstanceType, wanted: int, checks: Mapping[str, quotas.Check]
) -> Iterator[Offer]:
    zones, unasked = zones_of(target.aws, row.name)
    for purchase, name in _QUOTAS.items():
        quota = checks[name.format(type=row.name)]
        nodes = None if quota.limit is None or quota.used is None else int(quota.limit - quota.used)
        elsewhere = zones and target.config.zone_id not in zones
        reasons = {
            f"EC2 does not offer it in {target.config.zone_id}": bool(elsewhere),
            f"the quota leaves {nodes}": quota.result == "FAIL",
        }
        yield Offer(
            instance_type=row.name,
            wanted=wanted,
            purchase=purchase,
            zones=tuple(zones),
            nodes=nodes,
            # No rate of HyperPod's spot instances is published.
            hourly_usd=round(rate * wanted, 2) if (rate := row.hourly_usd) and purchase == "on-demand" else None,
            fits=False if any(reasons.values()) else None if unasked or quota.result == "UNKNOWN" else True,
            why="; ".join([*(text for text, true in reasons.items() if true), *filter(None, (unasked, quota.why))]),
            next=quota.request or (_zone(zones) if elsewhere else ""),
        )


def _zone(zones: list[str] | tuple[str, ...]) -> str:
    return f"hyperpod:availabilityZoneId: {' or '.join(zones)}"


def _plans(
    target: Target, row: InstanceType, wanted: int, days: int, after: datetime | None, zone_ids: Mapping[str, str]
) -> Iterator[Offer]:
    client = target.aws.client("sagemaker")
    if row.name not in client.meta.service_model.shape_for("ReservedCapacityInstanceType").enum:
        return
    size = next((one for one in PLAN_SIZES if one >= wanted), PLAN_SIZES[-1])
    asked: dict[str, Any] = {"StartTimeAfter": after} if after else {}
    answer, why = _searched(
        target,
        InstanceType=row.name,
        InstanceCount=size,
        DurationHours=24 * days,
        TargetResources=["hyperpod-cluster"],
        **asked,
    )
    if why:
        yield _unasked(row.name, wanted, "training plan", why)
    yield from (_plan(target, row, wanted, one, zone_ids) for one in answer.get("TrainingPlanOfferings", []))


def _searched(target: Target, **asked: Any) -> tuple[Mapping[str, Any], str]:
    """What SageMaker answers to a search for plans, or why it could not be asked."""
    try:
        return target.aws.client("sagemaker").search_training_plan_offerings(**asked), ""
    except NO_CREDENTIALS:
        raise
    except (ClientError, BotoCoreError) as error:
        return {}, reason(error)


def _unasked(instance_type: str, wanted: int, purchase: Purchase, why: str) -> Offer:
    return Offer(
        instance_type=instance_type, wanted=wanted, purchase=purchase, zones=(), nodes=None, fits=None, why=why
    )


def _plan(
    target: Target, row: InstanceType, wanted: int, found: Mapping[str, Any], zone_ids: Mapping[str, str]
) -> Offer:
    """One of SearchTrainingPlanOfferings' answers. Its parts follow each other, with time between them."""
    parts = found.get("ReservedCapacityOfferings", [])
    named = dict.fromkeys(one["AvailabilityZone"] for one in parts if "AvailabilityZone" in one)
    zones = tuple(dict.fromkeys(zone_ids.get(name, name) for name in named))
    nodes = min((one["InstanceCount"] for one in parts), default=0)
    reasons = {
        f"the plan is in {', '.join(zones)}, and the stack in {target.config.zone_id}": set(zones)
        - {target.config.zone_id},
        f"a plan has at most {nodes}": nodes < wanted,
    }
    buy = (
        f"aws sagemaker create-training-plan --region {target.aws.region} --training-plan-name {target.stack}-"
        f"{row.name.split('.')[1]} --training-plan-offering-id {found['TrainingPlanOfferingId']}"
    )
    return Offer(
        instance_type=row.name,
        wanted=wanted,
        purchase="training plan",
        zones=zones,
        nodes=nodes,
        starts=min((one["StartTime"].isoformat() for one in parts if "StartTime" in one), default=""),
        hours=found.get("DurationHours", 0) + found.get("DurationMinutes", 0) / 60,
        upfront_usd=float(found["UpfrontFee"]) if found.get("CurrencyCode") == "USD" else None,
        fits=not any(reasons.values()),
        why="; ".join(text for text, true in reasons.items() if true),
        next=buy,
    )
