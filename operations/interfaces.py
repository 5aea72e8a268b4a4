"""Network interfaces: what keeps a VPC, a subnet or a security group from being deleted."""

from __future__ import annotations

import re

from botocore.exceptions import BotoCoreError, ClientError

from .failures import reason
from .target import Target

# EC2's filters of DescribeNetworkInterfaces, by how an id begins.
_FILTERS = {"vpc": "vpc-id", "subnet": "subnet-id", "sg": "group-id"}
_ID = re.compile(r"\b(vpc|subnet|sg)-[0-9a-f]{8,17}\b")
_MOST_NAMED = 5


def in_the_way(target: Target, text: str) -> str:
    """Which interfaces are in what a DependencyViolation names, in words.

    Asks only. What cannot be asked is said instead.
    """
    named = _ID.search(text)
    if named is None:
        return "AWS does not say of what"
    where = [{"Name": _FILTERS[named.group(1)], "Values": [named.group(0)]}]
    try:
        found = list(
            target.aws.pages("ec2", "describe_network_interfaces", "NetworkInterfaces", Filters=where),
        )
    except (ClientError, BotoCoreError) as error:
        return f"what is in the way is unknown: {reason(error)}"
    if not found:
        return f"no network interface is in {named.group(0)} any more; a rule, route or endpoint may still name it"
    words = [
        f'{one["NetworkInterfaceId"]} {one.get("Status", "")} "{one.get("Description", "")}"'
        for one in found[:_MOST_NAMED]
    ]
    more = f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
    return f"in the way in {named.group(0)}: {', '.join(words)}{more}"
