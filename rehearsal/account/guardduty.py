"""GuardDuty's Runtime Monitoring: what it puts into a cluster's VPC, and how pulumi-aws takes it out again.

Amazon GuardDuty User Guide, "How Runtime Monitoring works with Amazon EKS clusters" and "Using Infrastructure as Code
(IaC) with GuardDuty automated security agents"; hashicorp/terraform-provider-aws, pull request 46953 (of April 2026).
"""

from collections.abc import Sequence
from typing import Any

from .books import Books, Live, Refused
from .watching import as_aws

_TAG = {"Key": "GuardDutyManaged", "Value": "true"}
_OF_GUARDDUTY = {"Name": "tag:GuardDutyManaged", "Values": ["true"]}


def watch(account: Books, vpc: str, subnets: Sequence[str]) -> None:
    """Make the endpoint and its security group, as GuardDuty does for a new cluster."""
    ec2 = account.client("ec2")

    def tagged(kind: str) -> list[dict[str, Any]]:
        return [{"ResourceType": kind, "Tags": [_TAG]}]

    with as_aws():
        group = ec2.create_security_group(
            GroupName=f"GuardDutyManagedSecurityGroup-{vpc}",
            Description="Associated with VPC endpoint",
            VpcId=vpc,
            TagSpecifications=tagged("security-group"),
        )["GroupId"]
        ec2.create_vpc_endpoint(
            VpcId=vpc,
            ServiceName=f"com.amazonaws.{account.region}.guardduty-data",
            VpcEndpointType="Interface",
            SubnetIds=list(subnets),
            SecurityGroupIds=[group],
            TagSpecifications=tagged("vpc-endpoint"),
        )


def delete_subnet(account: Books, live: Live) -> None:
    """Delete a subnet, after the provider has taken it off GuardDuty's endpoint. Raises Refused."""
    ec2 = account.client("ec2")
    for one in _endpoints(account, live.inputs["vpcId"]):
        if live.id in one["SubnetIds"]:
            try:
                ec2.describe_vpc_endpoints(Filters=[_OF_GUARDDUTY])
                ec2.modify_vpc_endpoint(VpcEndpointId=one["VpcEndpointId"], RemoveSubnetIds=[live.id])
            except Refused:
                raise _held("subnet", live.id) from None
    ec2.delete_subnet(SubnetId=live.id)


def delete_vpc(account: Books, live: Live) -> None:
    """Delete a VPC, after the provider has deleted what GuardDuty has in it. Raises Refused."""
    ec2 = account.client("ec2")
    where = [{"Name": "vpc-id", "Values": [live.id]}, _OF_GUARDDUTY]
    with as_aws():
        groups = [one["GroupId"] for one in ec2.describe_security_groups(Filters=where)["SecurityGroups"]]
    try:
        for one in _endpoints(account, live.id):
            ec2.describe_vpc_endpoints(Filters=where)
            ec2.delete_vpc_endpoints(VpcEndpointIds=[one["VpcEndpointId"]])
        for group in groups:
            ec2.describe_security_groups(Filters=where)
            ec2.delete_security_group(GroupId=group)
    except Refused:
        raise _held("vpc", live.id) from None
    ec2.delete_vpc(VpcId=live.id)


def _endpoints(account: Books, vpc: str) -> list[dict[str, Any]]:
    with as_aws():
        found = account.client("ec2").describe_vpc_endpoints(
            Filters=[{"Name": "vpc-id", "Values": [vpc]}, _OF_GUARDDUTY]
        )["VpcEndpoints"]
    return [one for one in found if one["State"] != "deleted"]


def _held(kind: str, name: str) -> Refused:
    return Refused("DependencyViolation", f"The {kind} '{name}' has dependencies and cannot be deleted.")
