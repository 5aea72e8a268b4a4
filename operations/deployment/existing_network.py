"""Checks an existing VPC before the first resource of a stack is created."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from components.network.endpoint_services import closed_services

from ..cluster.network_state import open_to_itself, route_table_of, why_public
from ..target import Target
from .lack import Lack

_KEY = "hyperpod:network"
# Route targets that lead to S3 without its gateway endpoint.
_WAYS_OUT = ("NatGatewayId", "TransitGatewayId", "NetworkInterfaceId", "InstanceId", "VpcPeeringConnectionId")
# Each is a "no" of VpcAttribute that keeps the names of endpoints and of FSx from resolving in the VPC (VPC User Guide,
# "DNS attributes for your VPC"): the attribute, its name in the answer, and the option that turns it on.
_DNS = (
    ("enableDnsSupport", "EnableDnsSupport", "--enable-dns-support"),
    ("enableDnsHostnames", "EnableDnsHostnames", "--enable-dns-hostnames"),
)
# Amazon EKS User Guide, "View Amazon EKS networking requirements for VPC and subnets": free addresses in each subnet.
_EKS_ADDRESSES = 6

Described = Mapping[str, Mapping[str, Any]]


def lacks(target: Target) -> Iterator[Lack]:
    """What the existing VPC lacks (SageMaker Developer Guide, "Prerequisites for using SageMaker HyperPod")."""
    network, region = target.config.settings.network, target.aws.region
    vpc, private = network.vpc_id, network.private_subnet_id
    if not vpc or not private:
        return
    client = target.aws.client("ec2")
    if not (vpcs := _found(target, "vpc", [vpc])):
        yield from _misplaced(f"{_KEY}.vpcId", [vpc], vpcs, vpc, region)
        return
    for attribute, key, option in _DNS:
        if not client.describe_vpc_attribute(VpcId=vpc, Attribute=attribute)[key]["Value"]:
            yield Lack(
                what=f"{vpc} has {attribute} off, so the names of FSx and of endpoints do not resolve in it",
                fix=f"aws ec2 modify-vpc-attribute --vpc-id {vpc} {option}",
            )
    accounting = target.config.settings.slurm.accounting
    pairs = (
        (f"{_KEY}.eksSubnetIds", network.eks_subnet_ids, _EKS_ADDRESSES),
        ("hyperpod:slurm.accounting.subnetIds", accounting.subnet_ids if accounting else (), 1),
    )
    subnets = _found(target, "subnet", {private, *(one for _, pair, _ in pairs for one in pair)})
    yield from _misplaced(f"{_KEY}.privateSubnetId", [private], subnets, vpc, region)
    if private in subnets:
        yield from _private_subnet_lacks(target, subnets[private])
    for key, pair, least in pairs:
        yield from _misplaced(key, pair, subnets, vpc, region)
        yield from _pair_lacks(key, [subnets[one] for one in pair if one in subnets], least)
    groups = _found(target, "group", network.security_group_ids)
    yield from _misplaced(f"{_KEY}.securityGroupIds", network.security_group_ids, groups, vpc, region)
    if groups:
        yield from _groups_lack(groups)


def _found(target: Target, kind: str, ids: Collection[str]) -> Described:
    """What EC2 has of these ids. By a filter, it leaves out what is not there, and does not refuse the question."""
    operation, key, name = {
        "vpc": ("describe_vpcs", "Vpcs", "VpcId"),
        "subnet": ("describe_subnets", "Subnets", "SubnetId"),
        "group": ("describe_security_groups", "SecurityGroups", "GroupId"),
    }[kind]
    only = [{"Name": f"{kind}-id", "Values": sorted(ids)}]
    return {one[name]: one for one in target.aws.pages("ec2", operation, key, Filters=only)}


def _misplaced(key: str, ids: Collection[str], found: Described, vpc: str, region: str) -> Iterator[Lack]:
    """Name what is not there for these credentials, or in another VPC."""
    for one in ids:
        if one not in found:
            yield Lack(what=f"there is no {one} in {region} for these credentials", fix=f"{key}: one that is there")
        elif found[one]["VpcId"] != vpc:
            yield Lack(what=f"{one} is in {found[one]['VpcId']}", fix=f"{key}: one of {vpc}")


def _private_subnet_lacks(target: Target, subnet: Mapping[str, Any]) -> Iterator[Lack]:
    name, key = subnet["SubnetId"], f"{_KEY}.privateSubnetId"
    if (zone := subnet["AvailabilityZoneId"]) != target.config.zone_id:
        yield Lack(
            what=f"{name} is in {zone}, and the stack in {target.config.zone_id}",
            fix=f"hyperpod:availabilityZoneId: {zone}",
        )
    free, needed = subnet["AvailableIpAddressCount"], target.config.settings.addresses
    if free < needed:
        yield Lack(
            what=f"{name} has {free} free addresses, and nodes and file systems take {needed}",
            fix=f"{key}: a larger subnet, or fewer nodes",
        )
    table = route_table_of(target.aws.client("ec2"), subnet)
    ways = [route for route in table["Routes"] if any(map(route.get, _WAYS_OUT))]
    if public := why_public(subnet, []):
        switch = f"aws ec2 modify-subnet-attribute --subnet-id {name} --no-map-public-ip-on-launch"
        yield Lack(what=f"{name} has {public}", fix=switch)
    if public := why_public({}, table["Routes"]):
        yield Lack(what=f"{name} has {public}", fix=f"{key}: a private subnet with a NAT gateway")
    elif not any(route.get("DestinationCidrBlock") == "0.0.0.0/0" for route in ways):
        yield from _endpoints_lack(target, subnet, table, elsewhere=bool(ways))


def _endpoints_lack(
    target: Target, subnet: Mapping[str, Any], table: Mapping[str, Any], *, elsewhere: bool
) -> Iterator[Lack]:
    """Endpoints that nodes without a default route out need. A route ``elsewhere`` may lead to another VPC's."""
    settings, region, vpc = target.config.settings, target.aws.region, subnet["VpcId"]
    where = [{"Name": "vpc-id", "Values": [vpc]}, {"Name": "vpc-endpoint-state", "Values": ["available"]}]
    there = list(target.aws.pages("ec2", "describe_vpc_endpoints", "VpcEndpoints", Filters=where))
    services = {one["ServiceName"].partition(f".{region}.")[2] for one in there}
    wanted = closed_services(on_eks=target.on_eks, metrics=settings.observability.with_prometheus)
    if missing := [name for name in wanted if name not in services]:
        yield Lack(
            what=f"{subnet['SubnetId']} has no default route out, and {vpc} no endpoint of {', '.join(missing)}",
            fix="a NAT gateway, or for each: aws ec2 create-vpc-endpoint --vpc-endpoint-type Interface --vpc-id "
            f"{vpc} --service-name com.amazonaws.{region}.SERVICE --subnet-ids {subnet['SubnetId']}",
            sure=not elsewhere,
        )
    gateways = {route.get("GatewayId") for route in table["Routes"]}
    s3 = [one for one in there if one["ServiceName"].endswith(f".{region}.s3")]
    if not any(one["VpcEndpointId"] in gateways or one.get("PrivateDnsEnabled") for one in s3):
        yield Lack(
            what=f"{subnet['SubnetId']} has no route to S3, from which nodes read their scripts",
            fix=f"aws ec2 create-vpc-endpoint --vpc-id {vpc} --service-name com.amazonaws.{region}.s3 "
            f"--route-table-ids {table['RouteTableId']}",
        )


def _pair_lacks(key: str, subnets: Collection[Mapping[str, Any]], least: int) -> Iterator[Lack]:
    """EKS and RDS want two zones (Amazon EKS User Guide, as above; Amazon RDS User Guide, "DB subnet groups")."""
    zones = {one["AvailabilityZoneId"] for one in subnets}
    if len(subnets) > 1 and len(zones) == 1:
        names = " and ".join(one["SubnetId"] for one in subnets)
        yield Lack(what=f"{names} are in one zone, {zones.pop()}", fix=f"{key}: subnets in two zones")
    for one in subnets:
        if (free := one["AvailableIpAddressCount"]) < least:
            yield Lack(
                what=f"{one['SubnetId']} has {free} free addresses, and its service takes {least}",
                fix=f"{key}: a larger subnet",
            )


def _groups_lack(groups: Described) -> Iterator[Lack]:
    first = next(iter(groups))
    for direction, verb in (("in", "ingress"), ("out", "egress")):
        if not open_to_itself(list(groups.values()), direction):
            yield Lack(
                what=f"none of {', '.join(groups)} allows all traffic {direction} of itself, which EFA and FSx need",
                fix=f"aws ec2 authorize-security-group-{verb} --group-id {first} --ip-permissions "
                f"'IpProtocol=-1,UserIdGroupPairs=[{{GroupId={first}}}]'",
            )
