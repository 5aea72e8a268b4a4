"""The audit after destroy: AWS's own remains apart from the stack's, and only they are removed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import boto3
import pytest

from components.names import CLUSTER_ID_TAG
from operations import leftovers, target
from operations.aws import Aws
from operations.target import Target
from rehearsal.account import Account
from tests.operations.aws import RefusingAws, stack

LOGS = "/aws/sagemaker/Clusters/hyperpod-dev/abcdef123456"


@pytest.fixture(scope="module")
def account() -> Iterator[Account]:
    with Account("us-west-2") as account:
        yield account


@pytest.fixture
def chosen(account: Account) -> Iterator[Target]:
    """The stack dev on an account that is clean before and after."""
    found = replace(target.load("dev"), aws=Aws("us-west-2"))
    yield found
    leftovers.remove(found, leftovers.audit(found))


def tags(chosen: Target, kind: str) -> list[dict[str, Any]]:
    return [{"ResourceType": kind, "Tags": [{"Key": CLUSTER_ID_TAG, "Value": chosen.names.cluster_id}]}]


def test_a_clean_account_has_nothing_left(chosen: Target) -> None:
    found = leftovers.audit(chosen)
    assert (found.leftovers, found.kept) == ([], [])
    assert found.unknown == []


def test_log_groups_that_aws_made_are_listed_and_removed_on_demand(chosen: Target) -> None:
    logs = boto3.client("logs", region_name="us-west-2")
    # As many as take three pages, and one of a cluster with a longer name.
    for number in range(120):
        logs.create_log_group(logGroupName=f"{LOGS}-{number:03}")
    logs.create_log_group(logGroupName="/aws/sagemaker/Clusters/hyperpod-dev-2/abcdef123456")
    found = leftovers.audit(chosen)
    assert len(found.leftovers) == 120
    assert found.of_the_stack == []
    assert f"aws logs delete-log-group --log-group-name {LOGS}-000" in {one.command for one in found.leftovers}
    leftovers.remove(chosen, found)
    assert (len(found.removed), found.leftovers) == (120, [])
    assert leftovers.audit(chosen).leftovers == []
    logs.delete_log_group(logGroupName="/aws/sagemaker/Clusters/hyperpod-dev-2/abcdef123456")


def test_what_is_the_stacks_own_is_named_with_its_command_and_never_removed(chosen: Target) -> None:
    ec2 = boto3.client("ec2", region_name="us-west-2")
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16", TagSpecifications=tags(chosen, "vpc"))["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.0.0.0/24")["Subnet"]["SubnetId"]
    eni = ec2.create_network_interface(SubnetId=subnet)["NetworkInterface"]["NetworkInterfaceId"]
    s3 = boto3.client("s3", region_name="us-west-2")
    s3.create_bucket(Bucket=chosen.names.bucket, CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    iam = boto3.client("iam", region_name="us-west-2")
    iam.create_role(RoleName=chosen.names.role("worker"), AssumeRolePolicyDocument=json.dumps({"Statement": []}))
    try:
        found = leftovers.audit(chosen)
        own = {(one.kind, one.id): one.command for one in found.of_the_stack}
        assert own[("VPC", vpc)] == f"aws ec2 delete-vpc --vpc-id {vpc}"
        assert ("bucket", chosen.names.bucket) in own
        assert ("role", chosen.names.role("worker")) in own
        assert ("network interface", eni) in {(one.kind, one.id) for one in found.leftovers if one.by_aws}
        leftovers.remove(chosen, found)
        assert set(own) == {(one.kind, one.id) for one in leftovers.audit(chosen).leftovers}
    finally:
        ec2.delete_subnet(SubnetId=subnet)
        ec2.delete_vpc(VpcId=vpc)
        s3.delete_bucket(Bucket=chosen.names.bucket)
        iam.delete_role(RoleName=chosen.names.role("worker"))


def test_a_file_system_that_is_kept_on_purpose_is_no_leftover(account: Account) -> None:
    network = {"vpcId": "vpc-0123456789abcdef0", "privateSubnetId": "subnet-0123456789abcdef0"}
    existing = json.dumps(network | {"securityGroupIds": ["sg-0123456789abcdef0"]})
    settings = [f"hyperpod:network={existing}", 'hyperpod:fsx={"retainOnDelete": true}']
    kept = replace(target.load("dev", settings), aws=Aws("us-west-2"))
    fsx = boto3.client("fsx", region_name="us-west-2")
    made = fsx.create_file_system(
        FileSystemType="LUSTRE", StorageCapacity=1200, SubnetIds=["subnet-0123456789abcdef0"],
        Tags=[{"Key": CLUSTER_ID_TAG, "Value": kept.names.cluster_id}],
    )["FileSystem"]["FileSystemId"]  # fmt: skip
    try:
        found = leftovers.audit(kept)
        assert (found.leftovers, found.kept) == ([], [f"FSx file system {made}"])
        without = leftovers.audit(replace(target.load("dev", settings[:1]), aws=Aws("us-west-2")))
        assert [one.kind for one in without.of_the_stack] == ["FSx file system"]
    finally:
        fsx.delete_file_system(FileSystemId=made)


@pytest.mark.parametrize(
    ("code", "said"), [("AccessDenied", "permission denied"), ("ThrottlingException", "throttled"), ("Odd", "Odd")]
)
def test_what_may_not_be_looked_at_is_said_and_not_taken_for_clean(
    refusing: Callable[..., RefusingAws], code: str, said: str
) -> None:
    aws = refusing(code)
    aws.__dict__["account_id"] = "123456789012"
    found = leftovers.audit(stack(aws))
    assert found.leftovers == []
    assert len(found.unknown) == len(leftovers._LOOKS) - 1  # a Slurm stack has no EKS cluster to look for
    assert all(said in line for line in found.unknown)


def test_what_is_found_by_other_means_is_added_once() -> None:
    own = leftovers.Leftover(kind="VPC", id="vpc-1", by_aws=False, command="")
    found = leftovers.Audit(leftovers=[own])
    found.add_unnamed(["ec2 vpcs vpc-1 (network-vpc)", "iam roles forgotten"])
    assert [one.id for one in found.of_the_stack] == ["vpc-1", "iam roles forgotten"]
