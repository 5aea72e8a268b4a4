"""The audit after destroy: AWS's own remains apart from the stack's, and only they are removed."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from components.common.names import CLUSTER_ID_TAG
from components.kubernetes.storage import VOLUMES_TAG
from operations import target
from operations.aws import Aws
from operations.deployment import leftovers, tagged
from operations.target import Target
from rehearsal.account import Account, guardduty
from tests.operations.aws import RefusingAws, StubbedAws, stack

LOGS = "/aws/sagemaker/Clusters/hyperpod-dev/abcdef123456"


@pytest.fixture
def account() -> Iterator[Account]:
    with Account("us-west-2") as account:
        yield account


@pytest.fixture
def chosen(account: Account) -> Target:
    """The stack dev on an account that is clean."""
    return replace(target.load("dev"), aws=Aws("us-west-2"))


def tags(chosen: Target, kind: str) -> list[dict[str, Any]]:
    return [{"ResourceType": kind, "Tags": [{"Key": CLUSTER_ID_TAG, "Value": chosen.names.cluster_id}]}]


def test_a_clean_account_has_nothing_left(chosen: Target) -> None:
    found = leftovers.audit(chosen)
    assert (found.leftovers, found.kept) == ([], [])
    assert found.unknown == []


def test_log_groups_that_aws_made_are_listed_and_removed_on_demand(chosen: Target) -> None:
    logs = boto3.client("logs", region_name="us-west-2")
    # As many as take three pages, and those of a cluster with a longer name.
    for number in range(120):
        logs.create_log_group(logGroupName=f"{LOGS}-{number:03}")
    for prefix in ("/aws/eks/", "/aws/containerinsights/", "/hyperpod/"):
        logs.create_log_group(logGroupName=f"{prefix}hyperpod-dev/one")
    others = ("/aws/sagemaker/Clusters/hyperpod-dev-2/abcdef123456", "/aws/events/hyperpod/hyperpod-dev-2")
    for other in others:
        logs.create_log_group(logGroupName=other)
    found = leftovers.audit(chosen)
    assert len(found.leftovers) == 123
    assert found.of_the_stack == []
    assert f"aws logs delete-log-group --log-group-name {LOGS}-000" in {one.command for one in found.leftovers}
    leftovers.remove(chosen, found)
    assert (len(found.removed), found.leftovers) == (123, [])
    assert leftovers.audit(chosen).leftovers == []


def test_what_is_the_stacks_own_is_named_with_its_command_and_never_removed(chosen: Target) -> None:
    ec2 = boto3.client("ec2", region_name="us-west-2")
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16", TagSpecifications=tags(chosen, "vpc"))["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.0.0.0/24")["Subnet"]["SubnetId"]
    eni = ec2.create_network_interface(SubnetId=subnet)["NetworkInterface"]["NetworkInterfaceId"]
    s3 = boto3.client("s3", region_name="us-west-2")
    s3.create_bucket(Bucket=chosen.names.bucket, CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    s3.create_bucket(Bucket=chosen.names.artifacts, CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    iam = boto3.client("iam", region_name="us-west-2")
    iam.create_role(RoleName=chosen.names.role("worker"), AssumeRolePolicyDocument=json.dumps({"Statement": []}))
    found = leftovers.audit(chosen)
    own = {(one.kind, one.id): one.command for one in found.of_the_stack}
    assert own[("VPC", vpc)] == f"aws ec2 delete-vpc --vpc-id {vpc}"
    assert {("bucket", chosen.names.bucket), ("bucket", chosen.names.artifacts)} <= own.keys()
    assert ("role", chosen.names.role("worker")) in own
    assert ("network interface", eni) in {(one.kind, one.id) for one in found.leftovers if one.by_aws}
    leftovers.remove(chosen, found)
    assert found.removed == [f"network interface {eni}"]
    assert {(one.kind, one.id) for one in found.leftovers} == set(own)
    assert set(own) == {(one.kind, one.id) for one in leftovers.audit(chosen).leftovers}


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
    found = leftovers.audit(kept)
    assert (found.leftovers, found.kept) == ([], [f"FSx file system {made}"])
    without = leftovers.audit(replace(target.load("dev", settings[:1]), aws=Aws("us-west-2")))
    assert [one.kind for one in without.of_the_stack] == ["FSx file system"]


def test_a_file_system_that_a_claim_made_is_a_leftover_where_the_stacks_own_is_kept(aws: StubbedAws) -> None:
    existing = {"vpcId": "vpc-0123456789abcdef0", "privateSubnetId": "subnet-0123456789abcdef0"}
    network = json.dumps(existing | {"securityGroupIds": ["sg-0123456789abcdef0"]})
    target = stack(aws, "dev", f"hyperpod:network={network}", 'hyperpod:fsx={"retainOnDelete": true}')
    own: dict[str, Any] = {"FileSystemId": "fs-0123456789-own", "Lifecycle": "AVAILABLE"}
    own["Tags"] = [{"Key": CLUSTER_ID_TAG, "Value": target.names.cluster_id}]
    claims = own | {"FileSystemId": "fs-0123456789-claim"}
    claims["Tags"] = [
        {"Key": "CSIVolumeName", "Value": "pvc-1"},
        {"Key": VOLUMES_TAG, "Value": target.names.cluster_id},
    ]
    other = claims | {"FileSystemId": "fs-0123456789-other", "Tags": [{"Key": VOLUMES_TAG, "Value": "x"}]}
    aws.answer("fsx", "describe_file_systems", {"FileSystems": [own, claims, other]})
    found = leftovers.Audit(leftovers=list(leftovers._file_systems(target)))
    leftovers._set_kept_apart(target, found)
    assert found.kept == ["FSx file system fs-0123456789-own"]
    # Taken up by a stack of the same name.
    taken = stack(aws, "dev", f"hyperpod:network={network}", 'hyperpod:fsx={"fileSystemId": "fs-0123456789abcdef0"}')
    again = tagged.Leftover(kind="FSx file system", id="fs-0123456789abcdef0", command="")
    found_again = leftovers.Audit(leftovers=[again])
    leftovers._set_kept_apart(taken, found_again)
    assert (found_again.leftovers, found_again.kept) == ([], ["FSx file system fs-0123456789abcdef0"])
    assert [(one.kind, one.id) for one in found.of_the_stack] == [("FSx file system of a claim", "fs-0123456789-claim")]


def test_what_is_on_its_way_out_is_no_leftover_and_an_interface_in_use_is_not_aws_to_forget(aws: StubbedAws) -> None:
    found = stack(aws)
    target = leftovers.Searched(found.project, found.config, found.aws)
    tags = [{"Key": CLUSTER_ID_TAG, "Value": target.names.cluster_id}]
    systems = [
        {"FileSystemId": f"fs-12345678-{state}", "Lifecycle": state, "Tags": tags} for state in ("DELETING", "FAILED")
    ]
    aws.answer("fsx", "describe_file_systems", {"FileSystems": systems})
    assert [one.id for one in leftovers._file_systems(target)] == ["fs-12345678-FAILED"]
    # The stack's own VPC, once for all who look.
    aws.answer("ec2", "describe_vpcs", {"Vpcs": [{"VpcId": "vpc-1"}]})
    for _, operation, path, _ in leftovers._TAGGED:
        gateways = [{"NatGatewayId": f"nat-{state}", "State": state} for state in ("deleted", "deleting", "failed")]
        key = path.split("[")[0]
        aws.answer("ec2", operation, {key: gateways if key == "NatGateways" else []})
    assert [one.id for one in leftovers._network(target)] == ["vpc-1", "nat-failed"]
    interfaces = [{"NetworkInterfaceId": f"eni-{state}", "Status": state} for state in ("in-use", "available")]
    # Goes with its endpoint, which is listed itself.
    interfaces.append(
        {"NetworkInterfaceId": "eni-3", "Status": "in-use", "Description": "VPC Endpoint Interface vpce-1"}
    )
    aws.answer("ec2", "describe_network_interfaces", {"NetworkInterfaces": interfaces})
    assert [one.by_aws for one in leftovers._interfaces(target)] == [False, True]
    aws.answer("ec2", "describe_vpc_endpoints", {"VpcEndpoints": []})
    aws.answer("ec2", "describe_security_groups", {"SecurityGroups": []})
    assert list(leftovers._others_in_vpc(target)) == []
    documents = [{"Name": f"{target.names.document('')}{name}"} for name in ("ssh", "exec")]
    looks = dict(leftovers._LOOKS)
    aws.answer("ssm", "list_documents", {"DocumentIdentifiers": [*documents, {"Name": "AWS-RunShellScript"}]})
    assert [one.id for one in looks["SSM"](target)] == [one["Name"] for one in documents]


def test_in_a_vpc_of_others_only_interfaces_that_name_the_cluster_are_its_leftovers(chosen: Target) -> None:
    ec2 = boto3.client("ec2", region_name="us-west-2")
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.0.0.0/24")["Subnet"]["SubnetId"]
    second = ec2.create_subnet(VpcId=vpc, CidrBlock="10.0.1.0/24")["Subnet"]["SubnetId"]
    of_cni = {"Key": "cluster.k8s.amazonaws.com/name", "Value": chosen.cluster_name}
    marked = [{"ResourceType": "network-interface", "Tags": [of_cni]}]
    _, _, *ours = (
        ec2.create_network_interface(SubnetId=where, Description=said, TagSpecifications=tagged)["NetworkInterface"][
            "NetworkInterfaceId"
        ]
        for where, said, tagged in (
            (subnet, "a database", []),
            (second, f"Amazon EKS {chosen.cluster_name}-2", []),
            (subnet, f"[DO NOT DELETE] ENI of {chosen.cluster_name}", []),
            (subnet, "aws-K8S-i-0123456789abcdef0", marked),
            (second, f"Amazon EKS {chosen.cluster_name}", []),
        )
    )
    given = {"vpcId": vpc, "privateSubnetId": subnet, "securityGroupIds": ["sg-0123456789abcdef0"]}
    subnets = {"eksSubnetIds": [second, "subnet-0123456789abcdef0"]}
    named = [f"hyperpod:network={json.dumps(given | subnets)}", f"hyperpod:clusterName={chosen.cluster_name}"]
    existing = replace(target.load("eks-gpu", named), aws=Aws("us-west-2"))
    assert {one.id for one in leftovers.audit(existing).leftovers} == set(ours)


def test_what_guardduty_and_others_left_in_the_stacks_vpc_is_told_apart_and_guarddutys_is_removed(
    chosen: Target, account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    ec2 = boto3.client("ec2", region_name="us-west-2")
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16", TagSpecifications=tags(chosen, "vpc"))["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.0.0.0/24")["Subnet"]["SubnetId"]
    guardduty.watch(account, vpc, [subnet])
    other = ec2.create_security_group(GroupName="others", Description="x", VpcId=vpc)["GroupId"]
    pauses: list[float] = []
    monkeypatch.setattr("operations.deployment.leftovers.time.sleep", pauses.append)
    refusals = iter([True, False])

    def delete(_: Any, GroupId: str) -> None:  # noqa: N803
        """The endpoint's interfaces go later."""
        if next(refusals):
            raise ClientError({"Error": {"Code": "DependencyViolation", "Message": "in use"}}, "DeleteSecurityGroup")
        ec2.delete_security_group(GroupId=GroupId)

    found = leftovers.audit(chosen)
    assert {(one.kind, one.id) for one in found.of_the_stack} == {("VPC", vpc), ("security group of others", other)}
    # moto says nothing of the endpoint's interface, which on AWS goes with it.
    found.leftovers = [one for one in found.leftovers if one.kind != leftovers.INTERFACE]
    managed = [one for one in found.leftovers if one.by_aws]
    assert [one.kind for one in managed] == list(leftovers.GUARDDUTY)
    assert managed[1].command == f"aws ec2 delete-security-group --group-id {managed[1].id}"
    patched = chosen.aws.client("ec2")
    monkeypatch.setattr(patched, "delete_security_group", delete.__get__(patched))
    leftovers.remove(chosen, found)
    assert found.removed == [f"{one.kind} {one.id}" for one in managed]
    assert pauses == [leftovers._AGAIN_SECONDS]
    assert not [one for one in leftovers.audit(chosen).leftovers if one.by_aws]


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
    assert len(found.unknown) == len(leftovers._LOOKS) - 2  # this one has no EKS cluster and no dashboard to look for
    assert all(said in line for line in found.unknown)


def test_what_two_searches_find_is_listed_once_and_two_kinds_of_one_name_are_two(
    aws: StubbedAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the stack's own VPC the load balancer controller's security groups are others', and have its tag."""

    def one(kind: str, name: str, command: str) -> tagged.Leftover:
        return tagged.Leftover(kind=kind, id=name, command=command)

    delete = "aws ec2 delete-security-group --group-id sg-1"
    looks = (
        one("security group of others", "sg-1", delete),
        one("security group", "sg-1", delete),
        one("HyperPod cluster", "dev", "aws sagemaker delete-cluster --cluster-name dev"),
        one("EKS cluster", "dev", "aws eks delete-cluster --name dev"),
    )
    monkeypatch.setattr(leftovers, "_LOOKS", [(one.kind, lambda _, one=one: iter([one])) for one in looks])
    found = leftovers.audit(stack(aws)).leftovers
    assert [one.kind for one in found] == ["security group of others", "HyperPod cluster", "EKS cluster"]


def test_keys_parameters_and_volumes_with_the_stacks_tag_are_found_and_a_key_that_waits_for_its_end_is_not(
    chosen: Target,
) -> None:
    kms, ssm, ec2 = (boto3.client(name, region_name="us-west-2") for name in ("kms", "ssm", "ec2"))
    value = chosen.names.cluster_id
    keys = [
        kms.create_key(Tags=[{"TagKey": CLUSTER_ID_TAG, "TagValue": value}])["KeyMetadata"]["KeyId"] for _ in range(2)
    ]
    kms.schedule_key_deletion(KeyId=keys[1])
    tag = [{"Key": CLUSTER_ID_TAG, "Value": value}]
    name = "/hyperpod/hyperpod-dev/ssh-public-key"
    ssm.put_parameter(Name=name, Value="x", Type="String", Tags=tag)
    volume = ec2.create_volume(Size=1, AvailabilityZone="us-west-2a", TagSpecifications=tags(chosen, "volume"))[
        "VolumeId"
    ]
    found = leftovers.audit(chosen)
    assert {(one.kind, one.id) for one in found.of_the_stack} == {
        ("KMS key", keys[0]), ("SSM parameter", name), ("EBS volume", volume),
    }  # fmt: skip
    assert f"aws ssm delete-parameter --name {name}" in {one.command for one in found.of_the_stack}
    assert found.unknown == []


def test_what_kubernetes_made_is_found_by_its_drivers_tags(account: Account) -> None:
    eks = replace(target.load("eks-gpu"), aws=Aws("us-west-2"))
    ec2, elb, elbv2 = (boto3.client(name, region_name="us-west-2") for name in ("ec2", "elb", "elbv2"))
    owned = {"Key": f"kubernetes.io/cluster/{eks.cluster_name}", "Value": "owned"}
    newer = {"Key": "ebs.csi.aws.com/cluster-name", "Value": eks.cluster_name}
    other = {"Key": "kubernetes.io/cluster/other", "Value": "owned"}
    volumes = [
        ec2.create_volume(
            Size=1, AvailabilityZone="us-west-2a", TagSpecifications=[{"ResourceType": "volume", "Tags": [tag]}]
        )["VolumeId"]
        for tag in (owned, newer, other)
    ]
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.0.0.0/24")["Subnet"]["SubnetId"]
    listener = {"Protocol": "TCP", "LoadBalancerPort": 80, "InstancePort": 80}
    elb.create_load_balancer(LoadBalancerName="classic", Subnets=[subnet], Listeners=[listener], Tags=[owned])
    controllers = {"Key": "elbv2.k8s.aws/cluster", "Value": eks.cluster_name}
    arn = elbv2.create_load_balancer(Name="new", Subnets=[subnet], Type="network", Tags=[controllers])["LoadBalancers"][
        0
    ]["LoadBalancerArn"]
    found = {(one.kind, one.id.split("/")[-1]): one.command for one in leftovers.audit(eks).of_the_stack}
    assert set(found) == {
        ("EBS volume", volumes[0]),
        ("EBS volume", volumes[1]),
        ("load balancer", "classic"),
        ("load balancer", arn.split("/")[-1]),
    }
    assert found[("load balancer", "classic")] == "aws elb delete-load-balancer --load-balancer-name classic"
    assert f"aws elbv2 delete-load-balancer --load-balancer-arn {arn}" in found.values()


def test_what_is_found_by_other_means_is_added_once() -> None:
    own = tagged.Leftover(kind="VPC", id="vpc-1", command="")
    found = leftovers.Audit(leftovers=[own])
    found.add_unnamed(["ec2 vpcs vpc-1 (network-vpc)", "iam roles forgotten"])
    assert [one.id for one in found.of_the_stack] == ["vpc-1", "iam roles forgotten"]
