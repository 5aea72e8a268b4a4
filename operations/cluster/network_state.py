"""What a subnet and security groups permit, as EC2 describes them."""

from collections.abc import Collection, Mapping, Sequence
from ipaddress import ip_address, ip_network
from typing import Any

# EC2's names of a security group's rules, by direction.
DIRECTIONS = {"in": "IpPermissions", "out": "IpPermissionsEgress"}


def route_table_of(client: Any, subnet: Mapping[str, Any]) -> dict[str, Any]:
    """The route table of a subnet, by default the VPC's main one, without routes whose target is gone."""
    own = [{"Name": "association.subnet-id", "Values": [subnet["SubnetId"]]}]
    main = [
        {"Name": "vpc-id", "Values": [subnet["VpcId"]]},
        {"Name": "association.main", "Values": ["true"]},
    ]
    (table,) = (
        client.describe_route_tables(Filters=own)["RouteTables"]
        or client.describe_route_tables(Filters=main)["RouteTables"]
    )
    return {**table, "Routes": [route for route in table["Routes"] if route.get("State") != "blackhole"]}


def why_public(subnet: Mapping[str, Any], routes: Sequence[Mapping[str, Any]]) -> str:
    """What makes nodes in this subnet reachable from the internet; nothing where it is private."""
    if any(str(route.get("GatewayId", "")).startswith("igw-") for route in routes):
        return "a route to an internet gateway"
    return "addresses given at launch" if subnet.get("MapPublicIpOnLaunch", False) else ""


def open_to_itself(groups: Sequence[Mapping[str, Any]], direction: str) -> list[str]:
    """The groups with a rule for all traffic from, or to, themselves: EFA does not work without both."""
    return [
        group["GroupId"]
        for group in groups
        for rule in group[DIRECTIONS[direction]]
        if rule["IpProtocol"] == "-1" and group["GroupId"] in {p["GroupId"] for p in rule["UserIdGroupPairs"]}
    ]


def admits(
    groups: Sequence[Mapping[str, Any]], direction: str, peers: Collection[str], port: int, address: str = ""
) -> bool:
    """Whether some rule of the groups lets TCP at this port in from, or out to, these groups or this address."""
    for rule in (rule for group in groups for rule in group[DIRECTIONS[direction]]):
        every = rule["IpProtocol"] == "-1"
        if not every and not (rule["IpProtocol"] == "tcp" and rule["FromPort"] <= port <= rule["ToPort"]):
            continue
        if any(pair["GroupId"] in peers for pair in rule.get("UserIdGroupPairs", ())):
            return True
        if any(ip_address(address) in ip_network(block["CidrIp"]) for block in rule.get("IpRanges", ()) if address):
            return True
    return False
