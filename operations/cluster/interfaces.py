"""Network interfaces: what prevents the deletion of a VPC, a subnet or a security group."""

import re

from botocore.exceptions import BotoCoreError, ClientError

from ..failures import is_missing, reason
from ..target import Target

# EC2's filters of DescribeNetworkInterfaces, by how an id begins.
_FILTERS = {"vpc": "vpc-id", "subnet": "subnet-id", "sg": "group-id"}
_THERE = {
    "vpc": ("describe_vpcs", "VpcIds"),
    "subnet": ("describe_subnets", "SubnetIds"),
    "sg": ("describe_security_groups", "GroupIds"),
}
_ID = re.compile(r"\b(vpc|subnet|sg)-[0-9a-f]{8,17}\b")
_MOST_NAMED = 5
_AGAIN = "then run the same command again"


def in_the_way(target: Target, text: str) -> tuple[str, str]:
    """Which interfaces use the resource that a DependencyViolation names, in words, and the next step.

    Read-only. If AWS cannot be asked, the text says so.
    """
    named = _ID.search(text)
    if named is None:
        return "AWS does not say which resource", f"remove what still uses it, {_AGAIN}"
    where = [{"Name": _FILTERS[named.group(1)], "Values": [named.group(0)]}]
    try:
        found = list(target.aws.pages("ec2", "describe_network_interfaces", "NetworkInterfaces", Filters=where))
        if not found:
            operation, parameter = _THERE[named.group(1)]
            getattr(target.aws.client("ec2"), operation)(**{parameter: [named.group(0)]})
    except (ClientError, BotoCoreError) as error:
        if isinstance(error, ClientError) and is_missing(error):
            return f"{named.group(0)} no longer exists", "nothing to do"
        return f"what still uses it is unknown: {reason(error)}", f"remove what still uses {named.group(0)}, {_AGAIN}"
    if not found:
        return (
            f"no network interface is in {named.group(0)} any more",
            f"remove the rule, route or endpoint that still names {named.group(0)}, {_AGAIN}",
        )
    words = [
        f'{one["NetworkInterfaceId"]} {one.get("Status", "")} "{one.get("Description", "")}"'
        for one in found[:_MOST_NAMED]
    ]
    more = f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
    unused = [one["NetworkInterfaceId"] for one in found if one.get("Status") == "available"]
    step = f"remove what the interfaces' descriptions name, {_AGAIN}"
    if unused:
        command = f"aws ec2 delete-network-interface --region {target.aws.region} --network-interface-id {unused[0]}"
        step = f"{command}    # {len(unused)} of {len(found)} are unused; {_AGAIN}"
    return f"in the way in {named.group(0)}: {', '.join(words)}{more}", step
