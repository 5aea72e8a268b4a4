"""Whether the training plans that worker groups name are for these nodes, and when they end.

AWS sells a plan for one zone, type and use.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from components.config import InstanceGroup

from ..failures import NO_CREDENTIALS, is_missing, reason
from ..target import Target
from .quotas import Check

_FOR = "hyperpod-cluster"
# SageMaker Developer Guide, "Using training plans in Amazon SageMaker HyperPod clusters".
_USABLE = ("Scheduled", "Active")
# SageMaker Developer Guide, "Reserve Flexible Training Plans for ML workloads": HyperPod ends a plan's instances so
# long before the plan.
_ENDS_BEFORE = timedelta(hours=1)
_WARNED = timedelta(days=7)


def users(target: Target) -> dict[str, list[InstanceGroup]]:
    """The worker groups of each plan that the stack names, by its ARN."""
    found: dict[str, list[InstanceGroup]] = {}
    for group in target.config.worker_groups:
        if group.worker and (arn := group.worker.training_plan_arn):
            found.setdefault(arn, []).append(group)
    return found


def endings(target: Target, now: datetime | None = None) -> Iterator[str]:
    """Say of each plan of the stack that ends within a week what goes with it. Asks AWS nothing for a stack without
    plans."""
    for arn, groups in users(target).items():
        name = arn.rsplit("/", 1)[1]
        try:
            plan = target.aws.client("sagemaker").describe_training_plan(TrainingPlanName=name)
        except NO_CREDENTIALS:
            raise
        except (ClientError, BotoCoreError) as error:
            yield f"when the training plan {name} ends is unknown: {reason(error)}"
            continue
        left = plan["EndTime"] - _ENDS_BEFORE - (now or datetime.now(UTC)) if "EndTime" in plan else _WARNED
        if timedelta(0) < left < _WARNED:
            ends = f"{plan['EndTime'] - _ENDS_BEFORE:%Y-%m-%d %H:%M} UTC"
            yield (
                f"HyperPod ends the nodes of {', '.join(group.name for group in groups)} at {ends}, in "
                f"{_in_words(left)}: an hour later the training plan {name} ends. `hyperpod capacity {target.stack}` "
                "shows what extends it"
            )


def _in_words(left: timedelta) -> str:
    return f"{left.days} days" if left.days > 1 else f"{left // timedelta(hours=1)} hours"


def check(target: Target, arn: str, groups: Sequence[InstanceGroup]) -> Check:
    """What of a plan does not fit the groups that name it. What cannot be asked is UNKNOWN, and says why."""
    name = arn.rsplit("/", 1)[1]
    limit, why, unknown = None, "", False
    try:
        plan = target.aws.client("sagemaker").describe_training_plan(TrainingPlanName=name)
        limit = float(min((one["TotalInstanceCount"] for one in _coming(plan)), default=0))
        why = "; ".join(_misfits(target, plan, groups))
    except NO_CREDENTIALS:
        raise
    except (ClientError, BotoCoreError) as error:
        missing = isinstance(error, ClientError) and is_missing(error)
        unknown, why = not missing, "there is no plan of that name" if missing else reason(error)
    return Check(
        service="sagemaker",
        name=f"training plan {name} (hyperpod:workers, trainingPlanArn)",
        code="",
        unit="instances",
        needed=sum(group.count for group in groups),
        used=None if unknown else 0.0,
        limit=limit,
        result="UNKNOWN" if unknown else "FAIL" if why else "PASS",
        why=why,
    )


def _coming(plan: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The plan's parts that are not over: there may be time between them."""
    return [one for one in plan.get("ReservedCapacitySummaries", []) if one["Status"] not in ("Expired", "Failed")]


def _misfits(target: Target, plan: Mapping[str, Any], groups: Sequence[InstanceGroup]) -> Iterator[str]:
    """SageMaker API Reference, DescribeTrainingPlan."""
    if plan["Status"] not in _USABLE:
        yield f"it is {plan['Status']}"
    uses = plan.get("TargetResources", [])
    if uses and _FOR not in uses:
        yield f"it is for {', '.join(uses)}, and not for {_FOR}"
    parts, zone = _coming(plan), target.config.zone_id
    types = {one["InstanceType"] for one in parts}
    if parts and (others := sorted({group.type.name for group in groups} - types)):
        yield f"it has {', '.join(sorted(types))}, and not {', '.join(others)}"
    zones = {one["AvailabilityZoneId"] for one in parts if "AvailabilityZoneId" in one}
    if zones and zone not in zones:
        yield f"it is in {', '.join(sorted(zones))}, and the stack in {zone} (hyperpod:availabilityZoneId)"
    wanted = sum(group.count for group in groups)
    if parts and wanted > (has := min(one["TotalInstanceCount"] for one in parts)):
        yield f"it has {has} instances, and the groups {wanted}"
