"""An existing file system that the nodes could not use is told before anything is made, all reasons at once."""

import json
from typing import Any

from components.common.names import CLUSTER_ID_TAG
from operations.cluster.validate import Validation
from operations.deployment import existing_fsx
from operations.deployment.preconditions import _QUESTIONS
from operations.target import Target
from tests.operations.aws import StubbedAws, stack
from tests.rows import each

SYSTEM, OTHER = "fs-0123456789abcdef0", "fs-0123456789abcdef1"
VPC, SUBNET, NODES, OWN = (
    "vpc-0abc00000000000a1",
    "subnet-0abc00000000000b1",
    "sg-0abc00000000000c1",
    "sg-0abc0000000d1",
)
NETWORK = json.dumps({"vpcId": VPC, "privateSubnetId": SUBNET, "securityGroupIds": [NODES]})
LUSTRE = {"DeploymentType": "PERSISTENT_2", "PerUnitStorageThroughput": 250, "MountName": "abcdefgh"}
GOOD = {
    "FileSystemId": SYSTEM,
    "FileSystemType": "LUSTRE",
    "FileSystemTypeVersion": "2.15",
    "Lifecycle": "AVAILABLE",
    "StorageType": "SSD",
    "VpcId": VPC,
    "SubnetIds": ["subnet-0abc00000000000e1"],
    "NetworkInterfaceIds": ["eni-0abc00000000000f1"],
    "ResourceARN": f"arn:aws:fsx:us-west-2:123456789012:file-system/{SYSTEM}",
    "LustreConfiguration": LUSTRE,
    "Tags": [{"Key": CLUSTER_ID_TAG, "Value": "another"}],
}


def rule(first: int, last: int, **peers: Any) -> dict[str, Any]:
    """A rule for TCP."""
    return {"IpProtocol": "tcp", "FromPort": first, "ToPort": last, "UserIdGroupPairs": [], "IpRanges": [], **peers}


FROM_NODES = {"UserIdGroupPairs": [{"GroupId": NODES}]}
OUT = [{"IpProtocol": "-1", "UserIdGroupPairs": [], "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}]
IN = [rule(988, 988, **FROM_NODES), rule(1018, 1023, IpRanges=[{"CidrIp": "10.0.0.0/16"}])]
LINK = {"AssociationId": "dra-0123456789abcdef0", "FileSystemPath": "/data/", "DataRepositoryPath": "s3://other"}
LINKED = 'hyperpod:fsx={"fileSystemId": "fs-0123456789abcdef0", "linkedBucket": "training-data"}'

# What is wrong: of the file system, its zone, the rules in and out, its links; what is said of it, and what helps.
DEFECTS: dict[str, tuple[dict[str, Any], str, str]] = {
    "away": ({"system": {"Lifecycle": "DELETING"}}, "is DELETING", "wait until it is AVAILABLE"),
    "scratch": (
        {"system": {"LustreConfiguration": LUSTRE | {"DeploymentType": "SCRATCH_2"}}},
        "is SCRATCH_2 on SSD, and /fsx PERSISTENT_1 or PERSISTENT_2",
        "another one",
    ),
    "tiering": ({"system": {"StorageType": "INTELLIGENT_TIERING"}}, "on INTELLIGENT_TIERING", "another one"),
    "old": ({"system": {"FileSystemTypeVersion": "2.10"}}, "has Lustre 2.10", "--file-system-type-version 2.15"),
    "EFA": (
        {"system": {"LustreConfiguration": LUSTRE | {"EfaEnabled": True}}},
        "has EFA",
        "hyperpod:fsx.efa: true",
    ),
    "another VPC": (
        {"system": {"VpcId": "vpc-0abc00000000000a2"}},
        f"is in vpc-0abc00000000000a2, and the nodes in {VPC}",
        "another one",
    ),
    "another zone": ({"zone": "usw2-az4"}, "is in usw2-az4, and the nodes in usw2-az2", "availabilityZoneId: usw2-az4"),
    "shut": ({"in": []}, f"({OWN}) allows TCP 988 and 1018-1023 from the nodes", f"ingress --group-id {OWN}"),
    "half shut": ({"in": IN[:1]}, "allows TCP 1018-1023 from the nodes", "ingress"),
    "for others": ({"in": [rule(988, 1023, IpRanges=[{"CidrIp": "10.1.0.0/16"}])]}, "allows TCP 988", "ingress"),
    "nodes shut in": ({"out": []}, "of the nodes to it", f"egress --group-id {NODES}"),
    "another link": ({"links": [LINK]}, f"/data of {SYSTEM} is linked to s3://other already", "linkedBucket out"),
    "all of it linked": (
        {"links": [LINK | {"FileSystemPath": "/"}]},
        "is linked to s3://other",
        "association-id dra-0123456789abcdef0",
    ),
}


def there(aws: StubbedAws, **changes: Any) -> Target:
    """A stack with an existing file system, which AWS describes."""
    system = GOOD | changes.get("system", {})
    aws.answer("fsx", "describe_file_systems", {"FileSystems": [system]})
    if system["VpcId"] == VPC:
        subnet = {"AvailabilityZoneId": changes.get("zone", "usw2-az2"), "CidrBlock": "10.0.4.0/24"}
        aws.answer("ec2", "describe_subnets", {"Subnets": [subnet]}, SubnetIds=system["SubnetIds"])
        interface = {"Groups": [{"GroupId": OWN}], "PrivateIpAddress": "10.0.4.7"}
        aws.answer("ec2", "describe_network_interfaces", {"NetworkInterfaces": [interface]})
        groups = [
            {"GroupId": OWN, "IpPermissions": changes.get("in", IN), "IpPermissionsEgress": []},
            {"GroupId": NODES, "IpPermissions": [], "IpPermissionsEgress": changes.get("out", OUT)},
        ]
        aws.answer("ec2", "describe_security_groups", {"SecurityGroups": groups})
        aws.answer("ec2", "describe_subnets", {"Subnets": [{"CidrBlock": "10.0.1.0/24"}]}, SubnetIds=[SUBNET])
    aws.answer("fsx", "describe_data_repository_associations", {"Associations": changes.get("links", [])})
    return stack(aws, "dev", f"hyperpod:network={NETWORK}", "hyperpod:availabilityZoneId=usw2-az2", LINKED)


@each(DEFECTS)
def test_a_file_system_that_would_not_serve_is_told_by_its_defect(
    changes: Any, said: str, fix: str, aws: StubbedAws
) -> None:
    (lack,) = existing_fsx.lacks(there(aws, **changes))
    assert lack.sure
    assert said in lack.what
    assert fix in lack.fix


def test_all_that_is_wrong_with_it_is_told_at_once(aws: StubbedAws) -> None:
    found = list(existing_fsx.lacks(there(aws, system={"Lifecycle": "FAILED"}, zone="usw2-az1", links=[LINK])))
    assert [one.what.split(" ")[2] for one in found[:1]] == ["FAILED"]
    assert len(found) == 3
    assert existing_fsx.lacks in _QUESTIONS


def test_a_good_one_lacks_nothing_with_the_stacks_own_link(aws: StubbedAws) -> None:
    own = LINK | {"Tags": [{"Key": CLUSTER_ID_TAG, "Value": stack(aws).names.cluster_id}]}
    assert list(existing_fsx.lacks(there(aws, links=[own, LINK | {"FileSystemPath": "/other"}]))) == []
    aws.assert_all_asked()


def test_one_that_is_not_there_or_no_lustre_is_told_with_those_that_are(aws: StubbedAws) -> None:
    for system, said in (
        (
            {"FileSystemId": OTHER},
            f"there is no file system {SYSTEM} in us-west-2; hyperpod:fsx.fileSystemId: one of {OTHER}",
        ),
        ({"FileSystemType": "OPENZFS"}, f"{SYSTEM} is a file system of type OPENZFS"),
    ):
        aws.answer("fsx", "describe_file_systems", {"FileSystems": [GOOD | system]})
        (lack,) = existing_fsx.lacks(stack(aws, "dev", f"hyperpod:network={NETWORK}", LINKED))
        assert said in str(lack)


def test_a_new_stack_is_told_of_the_file_system_that_a_destroy_has_kept_for_it(aws: StubbedAws) -> None:
    chosen = stack(aws)
    own = GOOD | {"Tags": [{"Key": CLUSTER_ID_TAG, "Value": chosen.names.cluster_id}]}
    aws.refuse("sagemaker", "describe_cluster", "ResourceNotFound")
    aws.answer("fsx", "describe_file_systems", {"FileSystems": [own, GOOD | {"FileSystemId": OTHER}]})
    (lack,) = existing_fsx.lacks(chosen)
    assert f"hyperpod:fsx.fileSystemId: {SYSTEM} takes it up" in str(lack)
    assert not lack.sure


def test_validate_looks_for_it_by_its_id(aws: StubbedAws) -> None:
    for systems, result in (([GOOD], "PASS"), ([GOOD | {"Lifecycle": "FAILED"}], "FAIL"), ([], "FAIL")):
        aws.answer("fsx", "describe_file_systems", {"FileSystems": systems})
        chosen = stack(aws, "dev", f"hyperpod:network={NETWORK}", LINKED)
        (check,) = Validation(chosen).file_system()
        assert (check.name, check.result, SYSTEM in check.detail) == ("FSx for Lustre", result, True)
