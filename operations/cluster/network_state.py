"""What a subnet and security groups permit, as EC2 describes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

# EC2's names of a security group's rules, by direction.
DIRECTIONS = {"in": "IpPermissions", "out": "IpPermissionsEgress"}


def routes_of(client: Any, subnet: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The routes of a subnet. One without a route table of its own uses the VPC's main one."""
    own = [{"Name": "association.subnet-id", "Values": [subnet["SubnetId"]]}]
    main = [
        {"Name": "vpc-id", "Values": [subnet["VpcId"]]},
        {"Name": "association.main", "Values": ["true"]},
    ]
    tables = (
        client.describe_route_tables(Filters=own)["RouteTables"]
        or client.describe_route_tables(Filters=main)["RouteTables"]
    )
    return [route for table in tables for route in table["Routes"]]


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
