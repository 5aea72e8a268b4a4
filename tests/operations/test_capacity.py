"""``capacity``: every way to get a stack's nodes, with what speaks against each and the command that takes it."""

import json
from datetime import UTC, datetime
from typing import Any

from components.catalogue.accelerators import lookup
from operations.failures import Exit
from operations.spending import capacity
from tests.operations.aws import StubbedAws, ended, ended_json, run_json, stack

H100 = "ml.p5.48xlarge"
ZONES = [{"ZoneName": "us-west-2b", "ZoneId": "usw2-az2"}, {"ZoneName": "us-west-2c", "ZoneId": "usw2-az3"}]


def plan(zone: str, nodes: int = 2, **more: Any) -> dict[str, Any]:
    """One of SearchTrainingPlanOfferings' answers: a week from 10 January 2027."""
    part = {
        "InstanceType": H100,
        "InstanceCount": nodes,
        "AvailabilityZone": zone,
        "StartTime": datetime(2027, 1, 10, 11, 30, tzinfo=UTC),
    }
    return {
        "TrainingPlanOfferingId": f"tpo-{zone}",
        "TargetResources": ["hyperpod-cluster"],
        "DurationHours": 168,
        "UpfrontFee": "10500.50",
        "CurrencyCode": "USD",
        "ReservedCapacityOfferings": [part],
    } | more


def account(aws: StubbedAws, *, name: str = H100, on_demand: float = 2, spot: float = 0, here: bool = True) -> None:
    """An account with these quotas, in which EC2 offers the type in usw2-az2, or only in usw2-az3."""
    aws.answer("ec2", "describe_availability_zones", {"AvailabilityZones": ZONES})
    limits = {f"{name} for cluster usage": on_demand, f"{name} for cluster spot instance usage": spot}
    listed = [{"QuotaCode": "L-1", "QuotaName": name, "Value": value} for name, value in limits.items()]
    aws.answer("service-quotas", "list_service_quotas", {"Quotas": listed})
    aws.answer("sagemaker", "list_clusters", {"ClusterSummaries": []})
    zone = "usw2-az2" if here else "usw2-az3"
    aws.answer("ec2", "describe_instance_type_offerings", {"InstanceTypeOfferings": [{"Location": zone}]})


def test_nodes_come_on_demand_or_by_a_plan_of_the_stacks_zone(aws: StubbedAws) -> None:
    account(aws)
    asked = {"InstanceType": H100, "InstanceCount": 2, "DurationHours": 336, "TargetResources": ["hyperpod-cluster"]}
    answer = {"TrainingPlanOfferings": [plan("us-west-2b"), plan("us-west-2c")]}
    after = {"StartTimeAfter": datetime(2027, 1, 9)}
    aws.answer("sagemaker", "search_training_plan_offerings", answer, **asked, **after)
    code, found = run_json("capacity", "slurm-gpu", "--days", "14", "--after", "2027-01-09")
    on_demand, spot, here, elsewhere = found
    assert code == Exit.GOOD
    assert (on_demand["purchase"], on_demand["fits"], on_demand["nodes"]) == ("on-demand", True, 2)
    rate = lookup(H100).hourly_usd
    assert rate
    assert on_demand["hourly_usd"] == round(2 * rate, 2)
    assert (spot["fits"], spot["nodes"], spot["hourly_usd"], spot["why"]) == (False, 0, None, "the quota leaves 0")
    assert spot["next"].startswith("aws service-quotas request-service-quota-increase --region us-west-2")
    assert (here["fits"], here["zones"], here["upfront_usd"], here["hours"]) == (True, ["usw2-az2"], 10500.5, 168)
    assert here["next"].endswith("--training-plan-name slurm-gpu-p5 --training-plan-offering-id tpo-us-west-2b")
    assert (elsewhere["fits"], elsewhere["why"]) == (False, "the plan is in usw2-az3, and the stack in usw2-az2")
    aws.assert_all_asked()


def test_a_table_names_what_speaks_against_each_offer(aws: StubbedAws) -> None:
    account(aws, on_demand=0, here=False)
    aws.answer("sagemaker", "search_training_plan_offerings", {"TrainingPlanOfferings": [plan("us-west-2c")]})
    out, _ = ended(Exit.FAILED, "capacity", "slurm-gpu")
    assert "EC2 does not offer it in usw2-az2; the quota leaves 0" in out
    assert "$10,500 in advance" in out
    assert "aws sagemaker create-training-plan --region us-west-2" in out


def test_what_cannot_be_asked_is_neither_fit_nor_unfit(aws: StubbedAws) -> None:
    account(aws, on_demand=0)
    aws.refuse("sagemaker", "search_training_plan_offerings", "AccessDeniedException")
    found = ended_json(Exit.CANNOT_KNOW, "capacity", "slurm-gpu")
    assert (found[-1]["fits"], found[-1]["why"]) == (None, "permission denied: SearchTrainingPlanOfferings")


def test_more_nodes_than_any_plan_has_are_asked_for_in_the_largest(aws: StubbedAws) -> None:
    account(aws, on_demand=100)
    answer = {"TrainingPlanOfferings": [plan("us-west-2b", 64)]}
    aws.answer("sagemaker", "search_training_plan_offerings", answer, InstanceCount=64)
    workers = f'hyperpod:workers=[{{"name":"workers","instanceType":"{H100}","count":100}}]'
    *_, found = capacity.offers(stack(aws, "slurm-gpu", workers), days=7)
    assert (found.fits, found.why) == (False, "a plan has at most 64")


def test_each_type_of_a_group_is_asked_for_all_its_nodes(aws: StubbedAws) -> None:
    account(aws, on_demand=100)
    aws.answer("service-quotas", "list_aws_default_service_quotas", {"Quotas": []})
    aws.answer("sagemaker", "search_training_plan_offerings", {"TrainingPlanOfferings": []})
    several = [{"name": "workers", "instanceType": H100, "fallbackTypes": ["ml.p4d.24xlarge"], "count": 3}]
    found = capacity.offers(stack(aws, "eks-gpu", f"hyperpod:workers={json.dumps(several)}"), days=7)
    assert [(one.instance_type, one.wanted) for one in found if one.purchase == "on-demand"] == [
        (H100, 3),
        ("ml.p4d.24xlarge", 3),
    ]


def test_types_without_plans_are_not_searched_for(aws: StubbedAws) -> None:
    account(aws, name=stack(aws, "dev").config.training_groups[0].type.name)
    code, found = run_json("capacity", "dev")
    assert (code, {one["purchase"] for one in found}) == (Exit.GOOD, {"on-demand", "spot"})
    aws.assert_all_asked()


def test_a_plan_of_the_stack_is_offered_what_extends_it(aws: StubbedAws) -> None:
    """Developer Guide, "Search for extension offerings"."""
    account(aws)
    aws.answer("sagemaker", "search_training_plan_offerings", {"TrainingPlanOfferings": []}, InstanceType=H100)
    longer = {
        "TrainingPlanExtensionOfferingId": "tpeo-1",
        "StartDate": datetime(2026, 12, 8, tzinfo=UTC),
        "DurationHours": 48,
        "UpfrontFee": "3000.00",
        "CurrencyCode": "USD",
    }
    arn = "arn:aws:sagemaker:us-west-2:123456789012:training-plan/p5-week"
    answer = {"TrainingPlanOfferings": [], "TrainingPlanExtensionOfferings": [longer]}
    aws.answer("sagemaker", "search_training_plan_offerings", answer, TrainingPlanArn=arn, DurationHours=48)
    workers = f'hyperpod:workers=[{{"name":"workers","instanceType":"{H100}","count":2,"trainingPlanArn":"{arn}"}}]'
    *_, found = capacity.offers(stack(aws, "slurm-gpu", workers), days=2)
    assert (found.purchase, found.fits, found.hours, found.upfront_usd) == ("extension", True, 48, 3000)
    assert found.next.endswith("extend-training-plan --region us-west-2 --training-plan-extension-offering-id tpeo-1")
    aws.assert_all_asked()
