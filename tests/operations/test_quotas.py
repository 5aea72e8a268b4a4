"""``quotas``: what to ask AWS for, on a fresh account and on one that is in use."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError, NoCredentialsError

from components.catalogue.accelerators import CATALOGUE
from components.common.names import CLUSTER_ID_TAG
from components.estimates.quotas import Quota, needed
from operations.aws import Aws
from operations.failures import Exit
from operations.spending import quotas
from operations.target import Target
from tests.operations.aws import RefusingAws, StubbedAws, ended, ended_json, run, run_json, stack
from tests.support import READY_STACKS, config

On = Callable[[Aws], None]
# What AWS gives a new account: no instance of any type, and its published defaults elsewhere.
FRESH = {
    "L-3308CCC7": 30.0, "L-2CE978FC": 20.0, "L-E13DF72A": 1024.0, "L-8F1B9C74": 100800.0, "L-FD6F2F22": 100.0,
    "L-F678F1CE": 5.0, "L-29B6F2EB": 50.0, "L-1B52E74A": 20.0, "L-A4707A72": 5.0, "L-FE5A380F": 5.0,
    "L-0263D0A3": 5.0, "L-DF5E4CA3": 5000.0, "L-1194D53C": 100.0, "L-8873DB23": 25.0, "L-2C2D5119": 5.0,
}  # fmt: skip


def limit(values: dict[str, float], quota: Quota) -> float:
    """Of a type's quota by its name, of others by their code."""
    return values.get(quota.name if quota.of_type else quota.code, 0.0)


def with_limits(aws: StubbedAws, target: Target, values: dict[str, float], pages: int = 1) -> None:
    """Service Quotas lists these for the services in play; instance types have 0 where nothing is said."""
    services: dict[str, list[dict[str, Any]]] = {}
    for number, quota in enumerate(needed(target.config)):
        code = quota.code or f"L-{number:08X}"
        listed = services.setdefault(quota.service, [])
        listed.append({"QuotaCode": code, "QuotaName": quota.name, "Value": limit(values, quota)})
    seen = list(dict.fromkeys(quota.service for quota in needed(target.config)))
    for service in seen:
        rows = services[service]
        size = -(-len(rows) // pages)
        for page in range(pages):
            more = {"NextToken": f"p{page + 1}"} if page < pages - 1 else {}
            part = {"Quotas": rows[page * size : (page + 1) * size], **more}
            aws.answer("service-quotas", "list_service_quotas", part, ServiceCode=service)


def plenty(target: Target) -> dict[str, float]:
    """What AWS gives a new account, and as many instances as the stack needs."""
    return FRESH | {quota.name: quota.needed for quota in needed(target.config) if quota.of_type}


def unused(aws: StubbedAws) -> None:
    """Nothing else is in the account (every stack's questions, in order)."""
    aws.answer("eks", "list_clusters", {"clusters": []})
    aws.answer("amp", "list_workspaces", {"workspaces": []})
    aws.answer("grafana", "list_workspaces", {"workspaces": []})
    aws.answer("sagemaker", "list_clusters", {"ClusterSummaries": []})
    aws.answer("fsx", "describe_file_systems", {"FileSystems": []})
    ec2 = (
        ("describe_vpcs", "Vpcs"),
        ("describe_subnets", "Subnets"),
        ("describe_network_interfaces", "NetworkInterfaces"),
        ("describe_vpcs", "Vpcs"),
        ("describe_vpc_endpoints", "VpcEndpoints"),
        ("describe_internet_gateways", "InternetGateways"),
        ("describe_nat_gateways", "NatGateways"),
        ("describe_addresses", "Addresses"),
    )
    for operation, key in ec2:
        aws.answer("ec2", operation, {key: []})


@pytest.mark.parametrize("pages", [1, 3])
@pytest.mark.parametrize("name", READY_STACKS)
def test_a_fresh_account_is_told_exactly_what_to_ask_for(name: str, pages: int, aws: StubbedAws) -> None:
    target = stack(aws, name)
    with_limits(aws, target, FRESH, pages)
    unused(aws)
    code, checks = run_json("quotas", name)
    assert code == Exit.FAILED
    failed = {one["name"]: one for one in checks if one["result"] == "FAIL"}
    types = {group.type.name for group in target.config.instance_groups}
    assert set(failed) == {f"{one} for cluster usage" for one in types}
    assert {one["result"] for one in checks} == {"PASS", "FAIL"}
    worker = target.config.worker_groups[0]
    request = failed[f"{worker.type.name} for cluster usage"]["request"]
    assert request.startswith("aws service-quotas request-service-quota-increase --region us-west-2")
    assert f"--service-code sagemaker --quota-code {failed[f'{worker.type.name} for cluster usage']['code']}" in request
    assert request.endswith(f"--desired-value {worker.count}")


@pytest.mark.parametrize("name", READY_STACKS)
def test_enough_of_everything_passes_and_reads_well(name: str, aws: StubbedAws) -> None:
    target = stack(aws, name)
    with_limits(aws, target, plenty(target))
    unused(aws)
    code, out, _ = run("quotas", name)
    assert code == Exit.GOOD, out
    assert "All quotas are large enough." in out
    assert max(map(len, out.splitlines())) <= 130


def test_a_service_missing_in_the_region_is_unknown_and_the_others_are_still_searched(aws: StubbedAws) -> None:
    target = stack(aws, "eks-gpu")
    with_limits(aws, target, plenty(target))
    unused(aws)
    aws.break_off("eks", EndpointConnectionError(endpoint_url="https://eks.us-west-2.amazonaws.com"))
    checks = ended_json(Exit.CANNOT_KNOW, "quotas", "eks-gpu")
    assert [(one["name"], "eks.us-west-2" in one["why"]) for one in checks if one["result"] != "PASS"] == [
        ("Clusters", True)
    ]


def test_a_limit_below_the_stacks_own_need_fails_whatever_others_use(aws: StubbedAws) -> None:
    target = stack(aws, "eks-gpu")
    with_limits(aws, target, plenty(target) | {"L-1194D53C": 0.0})
    unused(aws)
    aws.break_off("eks", EndpointConnectionError(endpoint_url="https://eks.us-west-2.amazonaws.com"))
    (found,) = [one for one in quotas.check(target) if one.code == "L-1194D53C"]
    assert (found.used, found.result) == (None, "FAIL")


def test_without_credentials_it_lists_what_the_stack_needs_and_how_to_log_in(aws: StubbedAws) -> None:
    aws.break_off("service-quotas", NoCredentialsError())
    out, err = ended(Exit.CANNOT_KNOW, "quotas", "dev")
    assert "aws sso login" in err
    assert all(str(quota.code or quota.name) in " ".join(out.split()) for quota in needed(config("dev")))
    assert "PASS" not in out


def test_another_stacks_workspaces_count_and_this_ones_do_not(aws: StubbedAws) -> None:
    target = stack(aws, "slurm-gpu", 'hyperpod:observability={"prometheus":"create","grafana":"create"}')
    with_limits(aws, target, plenty(target))
    unused(aws)
    for service in ("amp", "grafana"):
        aws._stubs[service]._queue.clear()
        aws._expected[service].clear()
    tags = [{CLUSTER_ID_TAG: target.names.cluster_id}, {CLUSTER_ID_TAG: "other"}, {}]
    common: dict[str, Any] = {"status": {"statusCode": "ACTIVE"}, "createdAt": 0}
    found = [{"workspaceId": f"ws-{n}", "arn": f"arn:{n}", "tags": tag, **common} for n, tag in enumerate(tags)]
    aws.answer("amp", "list_workspaces", {"workspaces": found})
    grafana: dict[str, Any] = {
        "created": 0, "modified": 0, "endpoint": "x", "grafanaVersion": "10.4", "status": "ACTIVE",
        "authentication": {"providers": ["AWS_SSO"]},
    }  # fmt: skip
    found = [{"id": f"g-{n:010}", "tags": tag, **grafana} for n, tag in enumerate(tags)]
    aws.answer("grafana", "list_workspaces", {"workspaces": found})
    checks = {one.service: one for one in quotas.check(target)}
    assert (checks["aps"].used, checks["grafana"].used) == (2, 2)


def test_what_others_use_counts_and_what_this_stack_has_does_not(aws: StubbedAws) -> None:
    target = stack(aws)
    own = [{"Key": CLUSTER_ID_TAG, "Value": target.names.cluster_id}]
    enough = {"ml.g5.16xlarge for cluster usage": 5.0, "ml.m5.2xlarge for cluster usage": 9.0}
    with_limits(aws, target, FRESH | enough)
    summaries = [
        {"ClusterArn": f"arn:aws:sagemaker:us-west-2:123456789012:cluster/{name[:12]:0<12}", "ClusterName": name,
         "CreationTime": "2026-01-01T00:00:00Z", "ClusterStatus": "InService"}
        for name in ("hyperpod-dev", "others")
    ]  # fmt: skip
    aws.answer("sagemaker", "list_clusters", {"ClusterSummaries": summaries})
    plan = "arn:aws:sagemaker:us-west-2:123456789012:training-plan/theirs"
    groups = [
        {"InstanceType": "ml.g5.16xlarge", "CurrentCount": 1, "TargetCount": 4},
        {"InstanceType": "ml.g5.16xlarge", "CurrentCount": 7, "CapacityRequirements": {"Spot": {}}},
        {"InstanceType": "ml.g5.16xlarge", "CurrentCount": 9, "TrainingPlanArn": plan},
    ]
    described = {"ClusterArn": summaries[1]["ClusterArn"], "ClusterStatus": "Updating", "InstanceGroups": groups}
    aws.answer("sagemaker", "describe_cluster", described, ClusterName="others")
    lustre = {"LustreConfiguration": {"DeploymentType": "PERSISTENT_2"}, "StorageCapacity": 100000}
    scratch = {"LustreConfiguration": {"DeploymentType": "SCRATCH_2"}, "StorageCapacity": 7200}
    aws.answer("fsx", "describe_file_systems", {"FileSystems": [lustre, scratch, {**lustre, "Tags": own}]})
    aws.answer("ec2", "describe_vpcs", {"Vpcs": [{"VpcId": "vpc-own", "Tags": own}, {"VpcId": "vpc-other"}]})
    aws.answer("ec2", "describe_subnets", {"Subnets": [{"SubnetId": "subnet-here"}]})
    # The limit holds in each zone (VPC User Guide, quotas, network interfaces).
    here = {"SubnetId": "subnet-here"}
    others = [{"VpcId": "vpc-other", **here}] * 2 + [{"VpcId": "vpc-other", "SubnetId": "subnet-elsewhere"}]
    interfaces = [{"VpcId": "vpc-own", **here}, *others]
    aws.answer("ec2", "describe_network_interfaces", {"NetworkInterfaces": interfaces})
    aws.answer("ec2", "describe_vpcs", {"Vpcs": [{"VpcId": "vpc-own", "Tags": own}, {"VpcId": "vpc-other"}]})
    aws.answer("ec2", "describe_vpc_endpoints", {"VpcEndpoints": []})
    aws.answer("ec2", "describe_internet_gateways", {"InternetGateways": [{}] * 5})
    nats = [{"SubnetId": "subnet-here"}, {"SubnetId": "subnet-elsewhere"}, {"SubnetId": "subnet-here", "Tags": own}]
    # VPC User Guide, quotas: gateways count while they are pending, active and deleting.
    counted = [{"Name": "state", "Values": ["pending", "available", "deleting"]}]
    aws.answer("ec2", "describe_nat_gateways", {"NatGateways": nats}, Filter=counted)
    aws.answer("ec2", "describe_addresses", {"Addresses": []})
    found = {one.name: one for one in quotas.check(target)}
    instances = found["ml.g5.16xlarge for cluster usage"]
    # Four on demand, and nine of a training plan, which count as well.
    assert (instances.used, instances.result) == (13, "FAIL")
    assert "--desired-value 15" in instances.request
    assert found["Lustre Persistent_2 storage capacity"].used == 100000
    assert found["Lustre Persistent_2 storage capacity"].result == "FAIL"
    assert found["VPCs per Region"].used == 1
    assert found["Network interfaces per Region"].used == 2
    assert found["NAT gateways per Availability Zone"].used == 1
    assert (found["Internet gateways per Region"].used, found["Internet gateways per Region"].result) == (5, "FAIL")


def test_spot_nodes_of_other_clusters_count_against_the_quota_of_spot_nodes(aws: StubbedAws) -> None:
    arn = "arn:aws:sagemaker:us-west-2:123456789012:cluster/others000000"
    summary = {"ClusterArn": arn, "ClusterName": "others", "CreationTime": "2026-01-01T00:00:00Z"}
    aws.answer("sagemaker", "list_clusters", {"ClusterSummaries": [{**summary, "ClusterStatus": "InService"}]})
    groups = [
        {"InstanceType": "ml.g5.16xlarge", "CurrentCount": 7, "CapacityRequirements": {"Spot": {}}},
        {"InstanceType": "ml.g5.16xlarge", "CurrentCount": 2},
    ]
    described = {"ClusterArn": arn, "ClusterStatus": "InService", "InstanceGroups": groups}
    aws.answer("sagemaker", "describe_cluster", described, ClusterName="others")
    spot = {"name": "spot", "instanceType": "ml.g5.16xlarge", "count": 3, "capacity": "spot"}
    (quota,) = (q for q in needed(config("dev", workers=[spot])) if "Total number of Spot" in q.name)
    assert quotas._Usage(stack(aws)).of(quota) == (7, "")


@pytest.mark.parametrize(
    ("code", "said"),
    [("AccessDeniedException", "permission denied"), ("ThrottlingException", "throttled"), ("Odd", "Odd")],
)
def test_what_cannot_be_seen_is_unknown_and_says_why(
    refusing: Callable[..., RefusingAws], code: str, said: str, on: On
) -> None:
    on(refusing(code))
    ended, out, _ = run("quotas", "dev")
    assert ended == Exit.CANNOT_KNOW
    assert "PASS" not in out
    assert said in out


def test_a_service_that_lists_nothing_is_unknown_not_good(aws: StubbedAws) -> None:
    target = stack(aws)
    for _ in dict.fromkeys(quota.service for quota in needed(target.config)):
        aws.answer("service-quotas", "list_service_quotas", {"Quotas": []})
        aws.answer("service-quotas", "list_aws_default_service_quotas", {"Quotas": []})
    unused(aws)
    assert {one.result for one in quotas.check(target)} == {"UNKNOWN"}


@pytest.mark.parametrize("name", READY_STACKS)
def test_it_is_known_how_much_others_use_of_every_quota(name: str) -> None:
    for quota in needed(config(name)):
        assert quota.of_type or quota.code in quotas._MEASURES or quota.code in quotas._OF_ONE, quota


@pytest.mark.parametrize("name", READY_STACKS)
def test_every_stack_needs_the_quotas_that_people_know_and_those_they_forget(name: str) -> None:
    found = {quota.name: quota for quota in needed(config(name))}
    assert {"L-3308CCC7", "L-2CE978FC", "L-E13DF72A", "L-8F1B9C74", "L-DF5E4CA3", "L-FE5A380F", "L-29B6F2EB"} <= {
        quota.code for quota in found.values()
    }
    assert ("Clusters" in found) == name.startswith("eks")
    # p5 and trn1 nodes take an address for every EFA interface.
    assert found["Network interfaces per Region"].needed >= (12 if name == "dev" else 26)


def test_a_reserved_types_quota_is_found_as_the_guide_writes_it(aws: StubbedAws) -> None:
    """SageMaker Developer Guide, "View SageMaker training plans quotas": ml-trn1-32xlarge, and dots in all others."""
    name = "Number of {} instances in reserved capacity across training plans per Region"
    listed = {"QuotaCode": "L-1", "QuotaName": name.format("ml-trn1-32xlarge"), "Value": 4.0}
    aws.answer("service-quotas", "list_service_quotas", {"Quotas": [listed]})
    wanted = Quota(service="sagemaker", name=name.format("ml.trn1.32xlarge"), needed=2)
    assert quotas._Limits(aws).find(wanted) == ("L-1", 4.0, "")


def test_a_types_code_is_the_accounts_where_another_is_in_the_catalogue(aws: StubbedAws) -> None:
    listed = {"QuotaCode": "L-2", "QuotaName": "ml.p5.48xlarge for cluster usage", "Value": 4.0}
    aws.answer("service-quotas", "list_service_quotas", {"Quotas": [listed]})
    (wanted,) = [one for one in needed(config("slurm-gpu")) if one.name == listed["QuotaName"]]
    assert wanted.code == "L-8762A75F"
    assert quotas._Limits(aws).find(wanted) == ("L-2", 4.0, "")


def test_each_code_is_one_types_of_the_catalogue() -> None:
    codes = [row.quota_code for row in CATALOGUE.values() if row.quota_code]
    assert all(re.fullmatch(r"L-[0-9A-F]{8}", code) for code in codes)
    assert len(set(codes)) == len(codes) > 70


def test_spot_and_training_plans_count_against_their_own_quotas() -> None:
    workers = [
        {"name": "spot", "instanceType": "ml.g5.16xlarge", "count": 3, "capacity": "spot"},
        {
            "name": "planned",
            "instanceType": "ml.p5.48xlarge",
            "count": 2,
            "trainingPlanArn": "arn:aws:sagemaker:us-west-2:123456789012:training-plan/mine",
        },
    ]
    found = {q.name: q.needed for q in needed(config("dev", workers=workers))}
    assert found["ml.g5.16xlarge for cluster spot instance usage"] == 3
    assert found["Total number of Spot instances allowed across SageMaker HyperPod clusters"] == 3
    assert found["Number of ml.p5.48xlarge instances in reserved capacity across training plans per Region"] == 2
    # SageMaker Developer Guide, "View SageMaker training plans quotas using the AWS management console": HyperPod's
    # quotas must allow the plan's instances too.
    assert found["ml.p5.48xlarge for cluster usage"] == 2
