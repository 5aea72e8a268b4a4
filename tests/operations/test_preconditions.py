"""What the account or a stranger's VPC lacks is named before the first resource is made, all of it at once."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from components.network.endpoint_services import CLOSED_ENDPOINTS
from operations.aws import Aws
from operations.commands import deploy as verbs
from operations.deployment import preconditions, preflight
from operations.failures import Exit, Failure
from operations.kubernetes import governance
from operations.spending import quotas
from operations.target import Target
from tests.operations.aws import StubbedAws, cluster, run, stack
from tests.rows import each

VPC, SUBNET, GROUP = "vpc-0abc00000000000a1", "subnet-0abc00000000000b1", "sg-0abc00000000000c1"
OWN = json.dumps({"vpcId": VPC, "privateSubnetId": SUBNET, "securityGroupIds": [GROUP]})
ITSELF = [{"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": GROUP}]}]
GOOD_SUBNET = {
    "SubnetId": SUBNET,
    "VpcId": VPC,
    "AvailabilityZoneId": "usw2-az2",
    "AvailableIpAddressCount": 4000,
    "MapPublicIpOnLaunch": False,
}
GOOD_ROUTES = [{"DestinationCidrBlock": "0.0.0.0/0", "NatGatewayId": "nat-0abc00000000000d1"}]
LOCAL = {"DestinationCidrBlock": "10.0.0.0/16", "GatewayId": "local"}
TO_S3 = {"DestinationPrefixListId": "pl-68a54001", "GatewayId": "vpce-0abc00000000000f1"}
GOOD_GROUP = {"GroupId": GROUP, "IpPermissions": ITSELF, "IpPermissionsEgress": ITSELF}

# A defect of a VPC: DNS names on, the subnet, its routes, the group; and what is said of it.
DEFECTS: dict[str, tuple[dict[str, Any], str]] = {
    "no names": ({"dns": False}, "enableDnsHostnames off"),
    "few addresses": ({"subnet": {"AvailableIpAddressCount": 3}}, "3 free addresses, and nodes and file systems take"),
    "another zone": ({"subnet": {"AvailabilityZoneId": "usw2-az4"}}, "is in usw2-az4, and the stack in usw2-az2"),
    "another VPC": ({"subnet": {"VpcId": "vpc-0abc00000000000f1"}}, "is in vpc-0abc00000000000f1"),
    "addresses at launch": ({"subnet": {"MapPublicIpOnLaunch": True}}, "addresses given at launch"),
    "a public subnet": (
        {"routes": [*GOOD_ROUTES, {"DestinationCidrBlock": "::/0", "GatewayId": "igw-0abc00000000000e1"}]},
        "a route to an internet gateway",
    ),
    "no way to S3": ({"routes": [LOCAL], "endpoints": CLOSED_ENDPOINTS}, "no route to S3"),
    "no way to SSM": (
        {"routes": [LOCAL, TO_S3], "endpoints": CLOSED_ENDPOINTS[:-2]},
        "no default route out, and vpc-0abc00000000000a1 no endpoint of ssm, ssmmessages; a NAT gateway, or",
    ),
    "nothing in": ({"group": {"IpPermissions": []}}, "allows all traffic in of itself"),
    "nothing out": ({"group": {"IpPermissionsEgress": []}}, "allows all traffic out of itself"),
}


def a_vpc(aws: StubbedAws, *, dns: bool = True, **changes: Any) -> Target:
    """A stack in a VPC of one's own, which EC2 describes."""
    for attribute, value in (("EnableDnsSupport", True), ("EnableDnsHostnames", dns)):
        aws.answer("ec2", "describe_vpc_attribute", {attribute: {"Value": value}}, VpcId=VPC)
    aws.answer("ec2", "describe_subnets", {"Subnets": [GOOD_SUBNET | changes.get("subnet", {})]}, SubnetIds=[SUBNET])
    aws.answer("ec2", "describe_route_tables", {"RouteTables": [{"Routes": changes.get("routes", GOOD_ROUTES)}]})
    if "endpoints" in changes:
        there = [{"ServiceName": f"com.amazonaws.us-west-2.{one}"} for one in changes["endpoints"]]
        aws.answer("ec2", "describe_vpc_endpoints", {"VpcEndpoints": there})
    aws.answer("ec2", "describe_security_groups", {"SecurityGroups": [GOOD_GROUP | changes.get("group", {})]})
    return stack(aws, "dev", f"hyperpod:network={OWN}", "hyperpod:availabilityZoneId=usw2-az2")


def quota(limit: float) -> quotas.Check:
    """The workers' quota."""
    return quotas.Check(
        service="sagemaker",
        name="ml.g5.16xlarge for cluster usage",
        code="L-1",
        unit="instances",
        needed=2,
        used=0,
        limit=limit,
        result="FAIL" if limit < 2 else "PASS",
        request="aws service-quotas request-service-quota-increase" if limit < 2 else "",
    )


def offered(aws: StubbedAws, *zones: str) -> None:
    """EC2 offers each of the stack's two types in these zones."""
    for name in ("a", "b"):
        found = [{"InstanceType": name, "Location": zone} for zone in zones]
        aws.answer("ec2", "describe_instance_type_offerings", {"InstanceTypeOfferings": found})


@pytest.fixture
def new(aws: StubbedAws, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Target]:
    """A stack that is not deployed, in an account with this quota that offers the types in these zones."""

    def made(limit: float = 2, zones: tuple[str, ...] = ("usw2-az2",), *settings: str) -> Target:
        aws.refuse("sagemaker", "describe_cluster", "ResourceNotFound")
        monkeypatch.setattr(quotas, "check", lambda _: [quota(limit)])
        offered(aws, *zones)
        return stack(aws, "dev", "hyperpod:availabilityZoneId=usw2-az2", *settings)

    return made


@each(DEFECTS)
def test_a_network_that_would_fail_later_is_told_by_its_defect(changes: Any, said: str, aws: StubbedAws) -> None:
    found = [str(lack) for lack in preconditions.network_lacks(a_vpc(aws, **changes))]
    assert len(found) == 1, found
    assert said in found[0]


def test_a_network_that_has_everything_lacks_nothing(aws: StubbedAws) -> None:
    assert list(preconditions.network_lacks(a_vpc(aws))) == []
    aws.assert_all_asked()


def test_routes_elsewhere_may_lead_to_the_endpoints_of_another_vpc(aws: StubbedAws) -> None:
    routes = [LOCAL, TO_S3, {"DestinationCidrBlock": "10.0.0.0/8", "TransitGatewayId": "tgw-0abc00000000000f1"}]
    (lack,) = preconditions.network_lacks(a_vpc(aws, routes=routes, endpoints=()))
    assert not lack.sure


def test_all_that_is_missing_is_said_at_once_and_nothing_is_made(new: Callable[..., Target]) -> None:
    with pytest.raises(Failure) as refused:
        preconditions.require(new(0, ("usw2-az1", "usw2-az3")))
    said = refused.value.message
    assert refused.value.code == Exit.BAD_INPUT
    assert "the quota sagemaker: ml.g5.16xlarge for cluster usage is 0, and the stack needs 2" in said
    assert "aws service-quotas request-service-quota-increase" in said
    assert "usw2-az2 does not offer ml.g5.16xlarge; hyperpod:availabilityZoneId: one of usw2-az1, usw2-az3" in said
    assert "--anyway" in refused.value.hint


def test_anyway_makes_warnings_of_it(new: Callable[..., Target], capsys: pytest.CaptureFixture[str]) -> None:
    preconditions.require(new(0), anyway=True)
    assert "Warning: the quota sagemaker: ml.g5.16xlarge for cluster usage is 0" in capsys.readouterr().err


def test_what_is_not_sure_stops_nobody(new: Callable[..., Target], capsys: pytest.CaptureFixture[str]) -> None:
    preconditions.require(new(2, ("usw2-az2",), "hyperpod:nodeRecovery=None"))
    assert "Warning: a node that fails is paid for and out of service" in capsys.readouterr().err


def test_people_who_may_not_ask_deploy_with_a_warning(
    aws: StubbedAws, new: Callable[..., Target], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = new()

    def refused(_: Target) -> list[quotas.Check]:
        aws.refuse("service-quotas", "list_service_quotas", "AccessDenied")
        return list(aws.pages("service-quotas", "list_service_quotas", "Quotas", ServiceCode="vpc"))

    monkeypatch.setattr(quotas, "check", refused)
    preconditions.require(chosen)
    assert "Warning: not checked before the deployment: permission denied" in capsys.readouterr().err


def test_a_grafana_without_identity_center_is_told(aws: StubbedAws) -> None:
    aws.answer("sso-admin", "list_instances", {"Instances": []})
    grafana = 'hyperpod:observability={"prometheus": "create", "grafana": "create"}'
    (lack,) = preconditions.surprises(stack(aws, "dev", grafana))
    assert "no IAM Identity Center in us-west-2" in str(lack)
    assert not lack.sure


def test_a_cluster_that_has_all_its_nodes_is_asked_nothing_more(aws: StubbedAws) -> None:
    chosen = stack(aws, "dev")
    groups = [{"InstanceGroupName": one.name, "TargetCount": one.count} for one in chosen.config.instance_groups]
    aws.answer("sagemaker", "describe_cluster", cluster() | {"InstanceGroups": groups})
    preconditions.require(chosen)
    aws.assert_all_asked()


def test_deploy_asks_after_the_engine_is_open_and_before_anything_else(
    monkeypatch: pytest.MonkeyPatch, aws: StubbedAws, on: Callable[[Aws], None], capsys: pytest.CaptureFixture[str]
) -> None:
    order: list[str] = []
    monkeypatch.setattr(verbs, "open_stack", lambda *_, **__: order.append("open"))
    monkeypatch.setattr(preflight, "require_plans", lambda _: None)
    monkeypatch.setattr(preconditions, "require", lambda _, *, anyway: order.append(f"asked, anyway {anyway}"))
    monkeypatch.setattr(governance, "begin", lambda _: None)
    monkeypatch.setattr(verbs, "settle", lambda *_, **__: _stop())
    on(aws)
    for words, anyway in ((("deploy", "dev", "--yes"), False), (("deploy", "dev", "--yes", "--anyway"), True)):
        order.clear()
        code, _, err = run(capsys, *words)
        assert (code, order) == (Exit.FAILED, ["open", f"asked, anyway {anyway}"]), err


def _stop() -> None:
    raise Failure("stopped", "", Exit.FAILED)
