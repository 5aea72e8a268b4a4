"""What the account and a network of one's own must have before the first resource of a stack is made.

AWS refuses most of this late: a quota at the cluster, after the network and the file system are paid for; a security
group at EFA's health check, when nodes boot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from components.network.endpoint_services import closed_services

from ..cluster.network_state import DIRECTIONS, open_to_itself, routes_of, why_public
from ..failures import bad_input, reason
from ..spending import capacity, quotas
from ..target import Target
from ..terminal.console import note
from . import existing_fsx, own_images
from .lack import Lack

_NETWORK = "hyperpod:network"
# Route targets that lead to S3 without its gateway endpoint.
_WAYS_OUT = ("NatGatewayId", "TransitGatewayId", "NetworkInterfaceId", "InstanceId", "VpcPeeringConnectionId")
# Each is a "no" of VpcAttribute that keeps the names of endpoints and of FSx from resolving in the VPC (VPC User Guide,
# "DNS attributes for your VPC").
_DNS = {"enableDnsSupport": "EnableDnsSupport", "enableDnsHostnames": "EnableDnsHostnames"}


def require(target: Target, *, anyway: bool = False) -> None:
    """Refuse a deployment whose new nodes, file systems or network cannot come, all reasons at once.

    Asks nothing for a cluster that has all its nodes already. What cannot be asked is said and stops nobody. With
    ``anyway``, what is missing is a warning. Raises Failure.
    """
    if _complete(target):
        return
    note("Asking the account whether it has what the stack needs ...")
    answers = [_asked(target, question) for question in _QUESTIONS]
    found = [lack for lacks, _ in answers for lack in lacks]
    unknown = sorted({f"not checked before the deployment: {why}" for _, why in answers if why})
    for warning in [*unknown, *(str(lack) for lack in found if anyway or not lack.sure)]:
        note(f"Warning: {warning}", "yellow")
    if (missing := [f"  {lack}" for lack in found if lack.sure]) and not anyway:
        raise bad_input(
            "\n".join(["nothing was changed. The account lacks what the stack needs:", *missing]),
            f"fix these, then `hyperpod deploy {target.stack}`; --anyway deploys although they are missing",
        )


def _complete(target: Target) -> bool:
    """Whether the cluster has every group with at least as many nodes as the configuration (DescribeCluster)."""
    try:
        deployed = {one["InstanceGroupName"]: one for one in (target.found_cluster or {}).get("InstanceGroups", [])}
    except (ClientError, BotoCoreError):
        return False
    wanted = target.config.instance_groups
    return all(deployed.get(group.name, {}).get("TargetCount", -1) >= group.least for group in wanted)


def _asked(target: Target, question: Callable[[Target], Iterator[Lack]]) -> tuple[list[Lack], str]:
    """What is missing, or why nobody knows."""
    try:
        return list(question(target)), ""
    except (ClientError, BotoCoreError) as error:
        return [], reason(error)


def quotas_lack(target: Target) -> Iterator[Lack]:
    """Quotas that are too small for the stack beside the account's other use."""
    for one in quotas.check(target):
        if one.result == "FAIL":
            used = f" beside {one.used:g} in use" if one.used else ""
            yield Lack(
                what=f"the quota {one.service}: {one.name} is {one.limit:g}, and the stack needs {one.needed:g}{used}",
                fix=one.request,
            )


def zone_lacks(target: Target) -> Iterator[Lack]:
    """Instance types that EC2 does not offer in the stack's zone, where it offers them in others."""
    here = target.config.zone_id
    for name in sorted({group.type.name for group in target.config.instance_groups if group.count}):
        zones, unknown = capacity.zones_of(target.aws, name)
        if unknown:
            yield Lack(what=f"whether {here} offers {name} is unknown: {unknown}", fix="", sure=False)
        elif zones and here not in zones:
            yield Lack(
                what=f"{here} does not offer {name}", fix=f"hyperpod:availabilityZoneId: one of {', '.join(zones)}"
            )


def network_lacks(target: Target) -> Iterator[Lack]:
    """What a VPC of one's own lacks (SageMaker Developer Guide, "Prerequisites for using SageMaker HyperPod")."""
    network = target.config.settings.network
    if not network.vpc_id or not network.private_subnet_id:
        return
    client = target.aws.client("ec2")
    for attribute, key in _DNS.items():
        if not client.describe_vpc_attribute(VpcId=network.vpc_id, Attribute=attribute)[key]["Value"]:
            yield Lack(
                what=f"{network.vpc_id} has {attribute} off, so the names of FSx and of endpoints do not resolve in it",
                fix=f"aws ec2 modify-vpc-attribute --vpc-id {network.vpc_id} "
                f"--{'enable-dns-support' if attribute == 'enableDnsSupport' else 'enable-dns-hostnames'}",
            )
    (subnet,) = client.describe_subnets(SubnetIds=[network.private_subnet_id])["Subnets"]
    yield from _subnet_lacks(target, subnet, routes_of(client, subnet))
    groups = client.describe_security_groups(GroupIds=list(network.security_group_ids))["SecurityGroups"]
    for direction in DIRECTIONS:
        if not open_to_itself(groups, direction):
            yield Lack(
                what=f"none of {', '.join(network.security_group_ids)} allows all traffic {direction} of itself, which "
                "EFA and FSx need",
                fix=f"a rule for all traffic {'from' if direction == 'in' else 'to'} the group itself",
            )


def _subnet_lacks(target: Target, subnet: dict[str, Any], routes: list[dict[str, Any]]) -> Iterator[Lack]:
    settings, name = target.config.settings, subnet["SubnetId"]
    if subnet["VpcId"] != settings.network.vpc_id:
        yield Lack(what=f"{name} is in {subnet['VpcId']}", fix=f"{_NETWORK}.privateSubnetId: a subnet of the VPC")
    if subnet["AvailabilityZoneId"] != target.config.zone_id:
        yield Lack(
            what=f"{name} is in {subnet['AvailabilityZoneId']}, and the stack in {target.config.zone_id}",
            fix=f"hyperpod:availabilityZoneId: {subnet['AvailabilityZoneId']}",
        )
    if public := why_public(subnet, routes):
        yield Lack(what=f"{name} has {public}", fix=f"{_NETWORK}.privateSubnetId: a private subnet with a NAT gateway")
    free, needed = subnet["AvailableIpAddressCount"], settings.addresses
    if free < needed:
        yield Lack(
            what=f"{name} has {free} free addresses, and nodes and file systems take {needed}",
            fix=f"{_NETWORK}.privateSubnetId: a larger subnet, or fewer nodes",
        )
    out = any(route.get("DestinationCidrBlock") == "0.0.0.0/0" and any(map(route.get, _WAYS_OUT)) for route in routes)
    if not out:
        yield from _endpoints_lack(target, subnet, routes)
    if not out and not any(str(route.get("GatewayId", "")).startswith("vpce-") for route in routes):
        yield Lack(
            what=f"{name} has no route to S3, from which nodes read their scripts",
            fix=f"an S3 gateway endpoint on its route table: aws ec2 create-vpc-endpoint --vpc-id {subnet['VpcId']} "
            f"--service-name com.amazonaws.{target.aws.region}.s3 --route-table-ids TABLE",
        )


def _endpoints_lack(target: Target, subnet: dict[str, Any], routes: list[dict[str, Any]]) -> Iterator[Lack]:
    """Endpoints that nodes without a way out need in the VPC. A route elsewhere may lead to another VPC's."""
    settings, region, vpc = target.config.settings, target.aws.region, subnet["VpcId"]
    where = [{"Name": "vpc-id", "Values": [vpc]}, {"Name": "vpc-endpoint-state", "Values": ["available"]}]
    found = target.aws.pages("ec2", "describe_vpc_endpoints", "VpcEndpoints", Filters=where)
    there = {one["ServiceName"].partition(f".{region}.")[2] for one in found}
    wanted = closed_services(on_eks=target.on_eks, metrics=settings.observability.with_prometheus)
    if missing := [name for name in wanted if name not in there]:
        yield Lack(
            what=f"{subnet['SubnetId']} has no default route out, and {vpc} no endpoint of {', '.join(missing)}",
            fix="a NAT gateway, or for each: aws ec2 create-vpc-endpoint --vpc-endpoint-type Interface --vpc-id "
            f"{vpc} --service-name com.amazonaws.{region}.SERVICE --subnet-ids {subnet['SubnetId']}",
            sure=not any(route.get(way) for route in routes for way in _WAYS_OUT),
        )


def surprises(target: Target) -> Iterator[Lack]:
    """What is paid for and may be of no use: it stops nobody."""
    settings = target.config.settings
    if settings.node_recovery == "None":
        yield Lack(
            what="a node that fails is paid for and out of service until somebody replaces it",
            fix="hyperpod:nodeRecovery: Automatic",
            sure=False,
        )
    grafana = settings.observability
    if grafana.grafana != "create" or "AWS_SSO" not in grafana.grafana_authentication:
        return
    # ListInstances answers for one region, and Identity Center may be in another.
    if not list(target.aws.pages("sso-admin", "list_instances", "Instances")):
        yield Lack(
            what=f"there is no IAM Identity Center in {target.aws.region}, through which people sign in to Grafana",
            fix="enable it in the organization's management account, or hyperpod:observability.grafanaAuthentication",
            sure=False,
        )


_QUESTIONS: tuple[Callable[[Target], Iterator[Lack]], ...] = (
    quotas_lack,
    zone_lacks,
    network_lacks,
    existing_fsx.lacks,
    own_images.lacks,
    surprises,
)
