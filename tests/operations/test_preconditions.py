"""What the account or an existing VPC lacks is named before the first resource is made, all of it at once."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from moto.ssoadmin.models import ssoadmin_backends

from components.config import parse
from components.network.endpoint_services import CLOSED_ENDPOINTS, closed_services
from operations import target
from operations.aws import SERVED, Aws
from operations.commands import deploy as verbs
from operations.deployment import existing_network, leftovers, preconditions
from operations.failures import Exit, Failure
from operations.spending import capacity
from operations.target import Target
from rehearsal.account import ACCOUNT_ID, Account
from rehearsal.existing import prepare
from rehearsal.served.api import serving
from rehearsal.verb_engine import EmbeddedEngine
from tests.operations.aws import StubbedAws, cluster, run, stack
from tests.support import METRICS, ROOT, few_files, project

VPC, SUBNET, GROUP = "vpc-0123456789abcdef0", "subnet-0123456789abcdef0", "sg-0123456789abcdef0"
PAIR = ["subnet-0aaaaaaaaaaaaaaa1", "subnet-0aaaaaaaaaaaaaaa2"]
OWN = {"vpcId": VPC, "privateSubnetId": SUBNET, "securityGroupIds": [GROUP]}
KEY = "AKIAKNOWN"
ITSELF = [{"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": GROUP}]}]
# What differs from one account to the next.
_IDS = re.compile(r"\b(rtb|nat)-[0-9a-f]{17}\b")

Opened = Callable[..., Account]


@pytest.fixture
def account() -> Iterator[Opened]:
    """Opens an account that has what the stack's configuration names. The verbs ask it, and deploy in it."""
    with ExitStack() as opened, few_files():

        def open_account(name: str = "dev", limits: dict[str, int] | None = None, **settings: Any) -> Account:
            loaded = project(name, **settings)
            chosen = parse(loaded.config)
            made = opened.enter_context(Account(chosen.region.name, quotas=limits))
            prepare(made, chosen)
            address = opened.enter_context(serving(made, chosen, name, KEY))
            # Undone before moto takes its own credentials out of the environment.
            monkeypatch = opened.enter_context(pytest.MonkeyPatch.context())
            signed = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": "any", "AWS_ENDPOINT_URL": address}
            for variable, value in {**signed, SERVED: str(ROOT)}.items():
                monkeypatch.setenv(variable, value)
            found = Target(project=loaded, config=chosen, aws=Aws(chosen.region.name))
            monkeypatch.setattr(target, "load", lambda *_: found)
            engine = EmbeddedEngine(found, made)
            monkeypatch.setattr(verbs, "open_stack", lambda *_, **__: engine)
            return made

        yield open_account


def table_of(ec2: Any) -> str:
    """The route table of the private subnet."""
    only = [{"Name": "association.subnet-id", "Values": [SUBNET]}]
    return str(ec2.describe_route_tables(Filters=only)["RouteTables"][0]["RouteTableId"])


def without_way_out(ec2: Any) -> None:
    ec2.delete_route(RouteTableId=table_of(ec2), DestinationCidrBlock="0.0.0.0/0")


def shut(ec2: Any) -> None:
    """No names, no private nodes, and a group that is closed to itself."""
    for attribute in ("EnableDnsSupport", "EnableDnsHostnames"):
        ec2.modify_vpc_attribute(VpcId=VPC, **{attribute: {"Value": False}})
    ec2.modify_subnet_attribute(SubnetId=SUBNET, MapPublicIpOnLaunch={"Value": True})
    ec2.revoke_security_group_ingress(GroupId=GROUP, IpPermissions=ITSELF)
    ec2.revoke_security_group_egress(GroupId=GROUP, IpPermissions=ITSELF)


def mended(ec2: Any) -> None:
    """What the fixes say."""
    for attribute in ("EnableDnsSupport", "EnableDnsHostnames"):
        ec2.modify_vpc_attribute(VpcId=VPC, **{attribute: {"Value": True}})
    ec2.modify_subnet_attribute(SubnetId=SUBNET, MapPublicIpOnLaunch={"Value": False})
    gateway = ec2.describe_nat_gateways()["NatGateways"][0]["NatGatewayId"]
    ec2.create_route(RouteTableId=table_of(ec2), DestinationCidrBlock="0.0.0.0/0", NatGatewayId=gateway)
    ec2.authorize_security_group_ingress(GroupId=GROUP, IpPermissions=ITSELF)
    ec2.authorize_security_group_egress(GroupId=GROUP, IpPermissions=ITSELF)


SHUT = f"""\
Asking the account whether it has what the stack needs ...
nothing was changed. The account lacks what the stack needs:
  {VPC} has enableDnsSupport off, so the names of FSx and of endpoints do not resolve in it
      aws ec2 modify-vpc-attribute --vpc-id {VPC} --enable-dns-support
  {VPC} has enableDnsHostnames off, so the names of FSx and of endpoints do not resolve in it
      aws ec2 modify-vpc-attribute --vpc-id {VPC} --enable-dns-hostnames
  {SUBNET} has addresses given at launch
      aws ec2 modify-subnet-attribute --subnet-id {SUBNET} --no-map-public-ip-on-launch
  {SUBNET} has no default route out, and {VPC} no endpoint of {", ".join(CLOSED_ENDPOINTS)}
      a NAT gateway, or for each: aws ec2 create-vpc-endpoint --vpc-endpoint-type Interface --vpc-id {VPC} \
--service-name com.amazonaws.us-west-2.SERVICE --subnet-ids {SUBNET}
  {SUBNET} has no route to S3, from which nodes read their scripts
      aws ec2 create-vpc-endpoint --vpc-id {VPC} --service-name com.amazonaws.us-west-2.s3 --route-table-ids rtb-ID
  none of {GROUP} allows all traffic in of itself, which EFA and FSx need
      aws ec2 authorize-security-group-ingress --group-id {GROUP} --ip-permissions \
'IpProtocol=-1,UserIdGroupPairs=[{{GroupId={GROUP}}}]'
  none of {GROUP} allows all traffic out of itself, which EFA and FSx need
      aws ec2 authorize-security-group-egress --group-id {GROUP} --ip-permissions \
'IpProtocol=-1,UserIdGroupPairs=[{{GroupId={GROUP}}}]'
Next: fix these, then `hyperpod deploy dev`; --anyway deploys although they are missing
More: hyperpod explain HP002, or docs/troubleshooting.md#hp002
"""


@pytest.mark.slow
def test_a_vpc_is_told_by_all_its_defects_at_once_and_deployed_into_when_they_are_mended(account: Opened) -> None:
    made = account(network=OWN)
    shut(made.client("ec2"))
    without_way_out(made.client("ec2"))
    code, out, err = run("deploy", "dev", "--yes")
    assert (code, out, made.creates) == (Exit.BAD_INPUT, "", 0)
    assert _IDS.sub(r"\1-ID", err) == SHUT
    code, out, err = run("preview", "dev")
    assert (code, err.count("Warning: ")) == (Exit.GOOD, 7)
    assert "1 to create: hyperpod-cluster" in out
    mended(made.client("ec2"))
    code, out, err = run("deploy", "dev", "--yes")
    assert (code, "Warning" in err) == (Exit.GOOD, False), err
    assert "dev is deployed" in out
    assert VPC in out
    code, out, _ = run("destroy", "dev", "--yes")
    assert (code, "Nothing is left in the account." in out) == (Exit.GOOD, True), out


def subnet_in(ec2: Any, vpc: str, block: str, zone: str) -> str:
    return str(ec2.create_subnet(VpcId=vpc, CidrBlock=block, AvailabilityZoneId=zone)["Subnet"]["SubnetId"])


def another_vpc(ec2: Any) -> dict[str, Any]:
    """The names lead to a small public subnet of another VPC, and to a group there."""
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    (main,) = ec2.describe_route_tables(Filters=[{"Name": "vpc-id", "Values": [vpc]}])["RouteTables"]
    gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    ec2.create_route(RouteTableId=main["RouteTableId"], DestinationCidrBlock="0.0.0.0/0", GatewayId=gateway)
    group = ec2.create_security_group(GroupName="there", Description="there", VpcId=vpc)["GroupId"]
    return {"privateSubnetId": subnet_in(ec2, vpc, "10.0.0.0/28", "usw2-az4"), "securityGroupIds": [group]}


def one_zone(ec2: Any) -> dict[str, Any]:
    """Both subnets for EKS are in one zone, and one is full."""
    pair = [subnet_in(ec2, VPC, f"10.0.9.{16 * number}/28", "usw2-az1") for number in (0, 1)]
    for _ in range(6):
        ec2.create_network_interface(SubnetId=pair[0])
    return {"eksSubnetIds": pair}


def behind_transit(ec2: Any) -> None:
    """Instead of the NAT gateway, a route to a network that may have endpoints; and one here, of another service."""
    without_way_out(ec2)
    gateway = ec2.create_transit_gateway()["TransitGateway"]["TransitGatewayId"]
    ec2.create_route(RouteTableId=table_of(ec2), DestinationCidrBlock="10.0.0.0/8", TransitGatewayId=gateway)
    endpoint(ec2, "dynamodb")


def endpoint(ec2: Any, service: str) -> None:
    kind = {} if service in ("s3", "dynamodb") else {"VpcEndpointType": "Interface", "SubnetIds": [SUBNET]}
    place = kind or {"RouteTableIds": [table_of(ec2)]}
    ec2.create_vpc_endpoint(VpcId=VPC, ServiceName=f"com.amazonaws.us-west-2.{service}", **place)


def nearly_closed(ec2: Any) -> None:
    """No route elsewhere, and all endpoints but two."""
    ec2.delete_route(RouteTableId=table_of(ec2), DestinationCidrBlock="10.0.0.0/8")
    for service in ("s3", *closed_services(on_eks=True, metrics=False)):
        if not service.startswith("ssm"):
            endpoint(ec2, service)


def closed(ec2: Any) -> None:
    for service in ("ssm", "ssmmessages"):
        endpoint(ec2, service)


ABSENT = {"privateSubnetId": f"{SUBNET[:-1]}1", "securityGroupIds": [f"{GROUP[:-1]}1"]}
# What is done to one VPC, step by step; the keys that change for this step alone; and of each defect its words and fix.
STEPS: dict[str, tuple[Callable[[Any], dict[str, Any] | None], list[tuple[str, str]]]] = {
    "good": (lambda ec2: None, []),
    "no VPC": (lambda ec2: {"vpcId": f"{VPC[:-1]}1"}, [(f"there is no {VPC[:-1]}1 in us-west-2", "network.vpcId")]),
    "no subnet and no group": (
        lambda ec2: ABSENT,
        [("there is no subnet-", "privateSubnetId"), ("there is no sg-", "securityGroupIds")],
    ),
    "another VPC": (
        another_vpc,
        [
            ("is in vpc-", f"privateSubnetId: one of {VPC}"),
            ("is in usw2-az4, and the stack in usw2-az2", "availabilityZoneId: usw2-az4"),
            ("11 free addresses, and nodes and file systems take 323", "a larger subnet"),
            ("a route to an internet gateway", "a private subnet"),
            ("is in vpc-", f"securityGroupIds: one of {VPC}"),
            ("in of itself", "ingress"),
            ("out of itself", "egress"),
        ],
    ),
    "control plane in one zone": (
        one_zone,
        [("are in one zone, usw2-az1", "eksSubnetIds"), ("has 5 free addresses", "a larger subnet")],
    ),
    "perhaps endpoints elsewhere": (
        behind_transit,
        [("Warning ", "a NAT gateway"), ("no route to S3", "s3 --route-table-ids rtb-")],
    ),
    "no way to SSM": (nearly_closed, [("no endpoint of ssm, ssmmessages", "a NAT gateway, or")]),
    "every endpoint": (closed, []),
    "shut": (
        shut,
        [
            ("enableDnsSupport off", "--enable-dns-support"),
            ("enableDnsHostnames off", "--enable-dns-hostnames"),
            ("addresses given at launch", "--no-map-public-ip-on-launch"),
            ("in of itself", "authorize-security-group-ingress"),
            ("out of itself", "authorize-security-group-egress"),
        ],
    ),
}


def test_an_existing_vpc_is_told_by_each_of_its_defects() -> None:
    network, aws = OWN | {"eksSubnetIds": PAIR}, Aws("us-west-2")
    with Account(aws.region) as embedded:
        prepare(embedded, parse(project("eks-gpu", network=network).config))
        for step, (act, told) in STEPS.items():
            loaded = project("eks-gpu", network=network | (act(embedded.client("ec2")) or {}))
            chosen = Target(project=loaded, config=parse(loaded.config), aws=aws)
            found = [("" if one.sure else "Warning ") + str(one) for one in existing_network.lacks(chosen)]
            assert len(found) == len(told), (step, found)
            for lack, words in zip(found, told, strict=True):
                assert all(word in lack for word in words), (step, lack)
        others = leftovers.Searched(chosen.project, chosen.config, aws)
        assert list(leftovers._network(others)) == [], "what is there is nobody's leftover"


# What a new account in such a zone lacks, beside one in use of each quota.
LACKING = """\
Asking the account whether it has what the stack needs ...
Warning: a node that fails is paid for and out of service until somebody replaces it; hyperpod:nodeRecovery: Automatic
Warning: there is no IAM Identity Center in us-west-2, through which people sign in to Grafana; enable it in the \
organization's management account, or hyperpod:observability.grafanaAuthentication
nothing was changed. The account lacks what the stack needs:
  the quota sagemaker: ml.g5.16xlarge for cluster usage is 0, and the stack needs 2
      REQUEST sagemaker --quota-code L-86822EDB --desired-value 2
  the quota fsx: Lustre Persistent_2 file systems is 0, and the stack needs 1
      REQUEST fsx --quota-code L-FD6F2F22 --desired-value 1
  the quota vpc: VPCs per Region is 1, and the stack needs 1 beside 1 in use
      REQUEST vpc --quota-code L-F678F1CE --desired-value 2
  the quota ec2: EC2-VPC Elastic IPs is 0, and the stack needs 1
      REQUEST ec2 --quota-code L-0263D0A3 --desired-value 1
  usw2-az4 does not offer ml.g5.16xlarge
      hyperpod:availabilityZoneId: one of usw2-az1, usw2-az2, usw2-az3
Next: fix these, then `hyperpod deploy dev`; --anyway deploys although they are missing
More: hyperpod explain HP002, or docs/troubleshooting.md#hp002
"""
LIMITS = {"ml.g5.16xlarge": 0, "lustre-file-systems": 0, "vpcs": 1, "elastic-ips": 0}


def test_what_an_account_lacks_is_told_at_once_and_nothing_is_made(
    account: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = account("dev", LIMITS, availabilityZoneId="usw2-az4", nodeRecovery="None", observability=METRICS)
    # moto has one in every account.
    ssoadmin_backends[ACCOUNT_ID][made.region].instances.clear()
    code, out, err = run("deploy", "dev", "--yes")
    assert (code, out, made.creates) == (Exit.BAD_INPUT, "", 0)
    request = "aws service-quotas request-service-quota-increase --region us-west-2 --service-code"
    assert err.replace(request, "REQUEST") == LACKING
    monkeypatch.setattr(verbs, "settle", lambda *_, **__: _stop())
    code, _, err = run("deploy", "dev", "--yes", "--anyway")
    assert (code, err.count("Warning: "), "it went on" in err) == (Exit.FAILED, 7, True), err


def _stop() -> None:
    raise Failure("it went on", "", Exit.FAILED)


def test_people_who_may_not_ask_deploy_with_a_warning(
    aws: StubbedAws, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    aws.refuse("sagemaker", "describe_cluster", "ResourceNotFound")
    aws.refuse("ec2", "describe_vpcs", "AccessDenied")
    monkeypatch.setattr(preconditions, "_QUESTIONS", (existing_network.lacks,))
    preconditions.require(stack(aws, "dev", f"hyperpod:network={json.dumps(OWN)}"))
    assert "Warning: not checked before the deployment: permission denied" in capsys.readouterr().err


def test_a_cluster_that_has_all_its_nodes_is_asked_nothing_more(aws: StubbedAws) -> None:
    chosen = stack(aws, "dev")
    groups = [{"InstanceGroupName": one.name, "TargetCount": one.count} for one in chosen.config.instance_groups]
    aws.answer("sagemaker", "describe_cluster", cluster() | {"InstanceGroups": groups})
    preconditions.require(chosen)
    aws.assert_all_asked()


@pytest.mark.parametrize(
    ("offered", "sure"),
    [(("p5.48xlarge",), {"ml.p5e.48xlarge": False}), ((), {"ml.p5.48xlarge": True, "ml.p5e.48xlarge": True})],
)
def test_a_zone_without_one_of_a_groups_types_is_a_warning(
    offered: tuple[str, ...], sure: dict[str, bool], aws: StubbedAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    def zones_of(_: Aws, name: str) -> tuple[list[str], str]:
        here = name.removeprefix("ml.") in (*offered, "m5.xlarge")
        return (["usw2-az2"] if here else ["usw2-az1"]), ""

    monkeypatch.setattr(capacity, "zones_of", zones_of)
    several = [{"name": "workers", "instanceType": "ml.p5.48xlarge", "fallbackTypes": ["ml.p5e.48xlarge"], "count": 2}]
    found = preconditions.zone_lacks(stack(aws, "eks-gpu", f"hyperpod:workers={json.dumps(several)}"))
    assert {lack.what.rsplit(" ", 1)[1]: lack.sure for lack in found} == sure
