"""The embedded account answers like AWS in cases where moto alone would not."""

import json
from typing import Any

import pytest

from rehearsal.account import Account, Caller, Refused

VPC = "aws:ec2/vpc:Vpc"
BLOCK = "aws:ec2/vpcIpv4CidrBlockAssociation:VpcIpv4CidrBlockAssociation"
SUBNET = "aws:ec2/subnet:Subnet"
GROUP = "aws:ec2/securityGroup:SecurityGroup"
LUSTRE = "aws:fsx/lustreFileSystem:LustreFileSystem"
CLUSTER = "aws-native:sagemaker:Cluster"
MISSING = "subnet-0123456789abcdef0"


@pytest.fixture
def account() -> Any:
    with Account("us-west-2") as account:
        yield account


@pytest.fixture
def subnet(account: Account) -> str:
    vpc, _ = account.create(VPC, "vpc", {"cidrBlock": "10.0.0.0/16"})
    place = {"vpcId": vpc, "cidrBlock": "10.0.1.0/24", "availabilityZoneId": "usw2-az2"}
    return account.create(SUBNET, "subnet", place)[0]


def lustre(subnet: str, **changes: Any) -> dict[str, Any]:
    return {
        "deploymentType": "PERSISTENT_2",
        "storageType": "SSD",
        "storageCapacity": 1200,
        "perUnitStorageThroughput": 250,
        "subnetIds": subnet,
        **changes,
    }


@pytest.mark.parametrize(
    ("kind", "inputs", "code"),
    [
        (SUBNET, {"vpcId": "vpc-0123456789abcdef0", "cidrBlock": "10.0.0.0/24"}, "InvalidVpcID.NotFound"),
        (LUSTRE, lustre(MISSING), "InvalidSubnetID.NotFound"),
        (
            "aws:ec2/natGateway:NatGateway",
            {"subnetId": MISSING, "allocationId": "eipalloc-0123456789abcdef0"},
            "NotFound",
        ),
        (
            "aws:ec2/route:Route",
            {
                "routeTableId": "rtb-0123456789abcdef0",
                "destinationCidrBlock": "0.0.0.0/0",
                "natGatewayId": "nat-0123456789abcdef0",
            },
            "NotFound",
        ),
        (
            "aws:ec2/flowLog:FlowLog",
            {"vpcId": "vpc-0123456789abcdef0", "iamRoleArn": "arn:aws:iam::123456789012:role/none"},
            "NotFound",
        ),
        (CLUSTER, {"vpcConfig": {"subnets": [MISSING]}}, "InvalidSubnetID.NotFound"),
    ],
)
def test_naming_something_that_does_not_exist_is_refused(
    account: Account, kind: str, inputs: dict[str, Any], code: str
) -> None:
    with pytest.raises(Refused, match=code):
        account.create(kind, "probe", inputs)


def test_a_subnet_with_a_file_system_in_it_is_not_deleted(account: Account, subnet: str) -> None:
    account.create(LUSTRE, "lustre", lustre(subnet))
    with pytest.raises(Refused, match=r"DependencyViolation.*still used by lustre"):
        account.delete(SUBNET, subnet)


def test_a_security_group_that_a_rule_names_is_not_deleted(account: Account) -> None:
    vpc, _ = account.create(VPC, "vpc", {"cidrBlock": "10.0.0.0/16"})
    one, two = (account.create(GROUP, n, {"vpcId": vpc, "name": n, "description": n})[0] for n in ("one", "two"))
    rule = {"securityGroupId": one, "referencedSecurityGroupId": two, "ipProtocol": "tcp", "fromPort": 1, "toPort": 2}
    account.create("aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule", "rule", rule)
    with pytest.raises(Refused, match="DependencyViolation"):
        account.delete(GROUP, two)


def test_an_address_that_a_nat_gateway_uses_is_not_released(account: Account, subnet: str) -> None:
    vpc = account.live[SUBNET, subnet].inputs["vpcId"]
    account.create("aws:ec2/internetGateway:InternetGateway", "igw", {"vpcId": vpc})
    address, _ = account.create("aws:ec2/eip:Eip", "eip", {"domain": "vpc"})
    account.create("aws:ec2/natGateway:NatGateway", "nat", {"subnetId": subnet, "allocationId": address})
    with pytest.raises(Refused, match="still used by nat"):
        account.delete("aws:ec2/eip:Eip", address)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("10.2.0.0/16", "172.16.0.0/16"),
        ("10.1.0.0/16", "10.0.0.0/16"),
        ("172.16.0.0/16", "172.31.0.0/20"),
        ("100.64.0.0/16", "10.1.0.0/16"),
        ("192.168.0.0/20", "198.19.0.0/16"),
    ],
)
def test_ec2_restricts_the_second_block_of_a_vpc(account: Account, first: str, second: str) -> None:
    vpc, _ = account.create(VPC, "vpc", {"cidrBlock": first})
    with pytest.raises(Refused, match=rf"InvalidVpc\.Range: The CIDR '{second}' is restricted\."):
        account.create(BLOCK, "block", {"vpcId": vpc, "cidrBlock": second})
    account.create(BLOCK, "block", {"vpcId": vpc, "cidrBlock": "100.65.0.0/16"})


def test_a_public_nat_gateway_needs_an_attached_internet_gateway(account: Account, subnet: str) -> None:
    address, _ = account.create("aws:ec2/eip:Eip", "eip", {"domain": "vpc"})
    with pytest.raises(Refused, match=r"Gateway\.NotAttached"):
        account.create("aws:ec2/natGateway:NatGateway", "nat", {"subnetId": subnet, "allocationId": address})


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"storageCapacity": 1300}, "1200 or a multiple of 2400"),
        ({"deploymentType": "PERSISTENT_9"}, "PERSISTENT_9"),
        ({"dataCompressionType": "ZIP"}, "ZIP"),
    ],
)
def test_a_record_must_satisfy_the_published_schema(
    account: Account, subnet: str, changes: dict[str, Any], text: str
) -> None:
    with pytest.raises(Refused, match=text):
        account.create(LUSTRE, "lustre", lustre(subnet, **changes))


def test_a_file_system_grows_to_a_capacity_that_a_new_one_could_have(account: Account, subnet: str) -> None:
    system, _ = account.create(LUSTRE, "lustre", lustre(subnet, storageCapacity=1200))
    with pytest.raises(Refused, match="1200 or a multiple of 2400"):
        account.update(LUSTRE, system, lustre(subnet, storageCapacity=3600))
    account.update(LUSTRE, system, lustre(subnet, storageCapacity=2400))


EFA = {
    "efaEnabled": True,
    "metadataConfiguration": {"mode": "AUTOMATIC"},
    "perUnitStorageThroughput": 1000,
    "storageCapacity": 4800,
}


@pytest.fixture
def group(account: Account, subnet: str) -> str:
    """A security group that allows all traffic among its members."""
    vpc = account.live[SUBNET, subnet].inputs["vpcId"]
    group, _ = account.create(GROUP, "lustre", {"vpcId": vpc, "name": "lustre", "description": "lustre"})
    for direction in ("Ingress", "Egress"):
        rule = {"securityGroupId": group, "referencedSecurityGroupId": group, "ipProtocol": "-1"}
        token = f"aws:vpc/securityGroup{direction}Rule:SecurityGroup{direction}Rule"
        account.create(token, direction, rule)
    return group


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"metadataConfiguration": None}, "with metadata configuration"),
        ({"storageCapacity": 2400}, "a multiple of 4800"),
        ({"perUnitStorageThroughput": 125}, "a multiple of 38400"),
        ({"metadataConfiguration": {"mode": "NONE"}}, "NONE"),
        ({"securityGroupIds": None}, "no ingress rule for all traffic of the group to itself"),
    ],
)
def test_a_file_system_with_efa_needs_metadata_room_and_open_groups(
    account: Account, subnet: str, group: str, changes: dict[str, Any], text: str
) -> None:
    given = {key: value for key, value in {"securityGroupIds": [group], **EFA, **changes}.items() if value is not None}
    with pytest.raises(Refused, match=text):
        account.create(LUSTRE, "lustre", lustre(subnet, **given))


def test_efa_is_for_a_file_systems_whole_life_and_its_throughput_with_it(
    account: Account, subnet: str, group: str
) -> None:
    inputs = lustre(subnet, securityGroupIds=[group], **EFA)
    system, _ = account.create(LUSTRE, "lustre", inputs)
    with pytest.raises(Refused, match="throughput of an EFA-enabled file system cannot be changed"):
        account.update(LUSTRE, system, {**inputs, "perUnitStorageThroughput": 500, "storageCapacity": 9600})
    with pytest.raises(Refused, match="a multiple of 4800"):
        account.update(LUSTRE, system, {**inputs, "storageCapacity": 7200})
    assert account.update(LUSTRE, system, {**inputs, "storageCapacity": 9600})["storageCapacity"] == 9600
    assert account.diff(LUSTRE, inputs, {**inputs, "efaEnabled": False}) == ({"efaEnabled"}, {"efaEnabled"})


def test_a_bucket_with_objects_is_deleted_only_with_force(account: Account) -> None:
    for name, force in (("kept-bucket", False), ("forced-bucket", True)):
        account.create("aws:s3/bucket:Bucket", name, {"bucket": name, "forceDestroy": force})
        account.client("s3").put_object(Bucket=name, Key="x", Body=b"x")
    with pytest.raises(Refused, match="BucketNotEmpty"):
        account.delete("aws:s3/bucket:Bucket", "kept-bucket")
    account.delete("aws:s3/bucket:Bucket", "forced-bucket")


@pytest.mark.parametrize("name", ["Upper", "a", "x" * 64, "192.168.0.1", "two..dots"])
def test_a_bad_bucket_name_is_refused(account: Account, name: str) -> None:
    with pytest.raises(Refused, match="InvalidBucketName"):
        account.create("aws:s3/bucket:Bucket", "bucket", {"bucket": name})


def test_an_object_is_put_and_deleted_only_by_whoever_may_and_every_version_goes(account: Account) -> None:
    token, made = "aws:s3/bucketObjectv2:BucketObjectv2", {"bucket": "a-bucket", "key": "k", "content": "x"}
    with pytest.raises(Refused, match="NoSuchBucket: The specified bucket does not exist"):
        account.create(token, "early", made)
    account.create("aws:s3/bucket:Bucket", "bucket", {"bucket": "a-bucket"})
    account.create(
        "aws:s3/bucketVersioning:BucketVersioning",
        "versions",
        {"bucket": "a-bucket", "versioningConfiguration": {"status": "Enabled"}},
    )
    key, outputs = account.create(token, "object", made)
    assert account.update(token, key, {**made, "content": "y"})["versionId"] not in ("", outputs["versionId"])
    allowed: list[str] = []
    for needed in ("s3:ListBucketVersions", "s3:DeleteObject"):
        statements = [{"Effect": "Allow", "Action": [*allowed, "s3:GetObject"], "Resource": "*"}]
        account.caller = Caller("arn:aws:iam::123456789012:role/deployer", statements)
        with pytest.raises(Refused, match=f"AccessDenied: .* not authorized to perform: {needed} on resource: arn:aws"):
            account.delete(token, key)
        with pytest.raises(
            Refused, match="not authorized to perform: s3:PutObject on resource: arn:aws:s3:::a-bucket/"
        ):
            account.create(token, "other", {**made, "key": "other"})
        allowed.append(needed)
    account.caller = None
    account.delete(token, key)
    assert "Versions" not in account.client("s3").list_object_versions(Bucket="a-bucket")


def test_an_s3_object_accepts_ten_tags_and_everything_else_fifty(account: Account) -> None:
    account.create("aws:s3/bucket:Bucket", "bucket", {"bucket": "a-bucket"})
    for kind, inputs, limit in (
        ("aws:s3/bucketObjectv2:BucketObjectv2", {"bucket": "a-bucket", "key": "k", "content": "x"}, 10),
        ("aws:cloudwatch/logGroup:LogGroup", {"name": "a"}, 50),
    ):
        tags = {f"tag-{number}": "x" for number in range(limit + 1)}
        with pytest.raises(Refused, match=f"{limit}"):
            account.create(kind, "tagged", {**inputs, "tagsAll": tags})
        tags.popitem()
        made, _ = account.create(kind, "tagged", {**inputs, "tagsAll": tags})
        with pytest.raises(Refused, match=f"{limit}"):
            account.update(kind, made, {**inputs, "tagsAll": {**tags, "one": "more"}})


def test_a_bucket_keeps_its_tags_and_loses_those_that_it_no_longer_has(account: Account) -> None:
    def tags() -> dict[str, str]:
        return {tag["Key"]: tag["Value"] for tag in account.client("s3").get_bucket_tagging(Bucket="b-123")["TagSet"]}

    token, inputs = "aws:s3/bucket:Bucket", {"bucket": "b-123", "tags": {"a": "1"}}
    account.create(token, "bucket", {**inputs, "tagsAll": {"a": "1", "b": "2"}})
    assert tags() == {"a": "1", "b": "2"}
    account.update(token, "b-123", {**inputs, "tagsAll": {"b": "3"}})
    assert tags() == {"b": "3"}


def test_a_rule_between_groups_keeps_its_description(account: Account, subnet: str) -> None:
    (vpc,) = [live.id for live in account.find(VPC)]
    one, other = (account.create(GROUP, name, {"vpcId": vpc, "name": name})[0] for name in ("one", "other"))
    token = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
    rule = {"securityGroupId": one, "referencedSecurityGroupId": other, "ipProtocol": "tcp", "fromPort": 1, "toPort": 2}
    made, _ = account.create(token, "rule", {**rule, "description": "EFA"})
    (group,) = account.client("ec2").describe_security_groups(GroupIds=[one])["SecurityGroups"]
    assert [pair["Description"] for pair in group["IpPermissions"][0]["UserIdGroupPairs"]] == ["EFA"]
    account.update(token, made, {**rule, "description": "MPI"})
    (group,) = account.client("ec2").describe_security_groups(GroupIds=[one])["SecurityGroups"]
    assert [pair["Description"] for pair in group["IpPermissions"][0]["UserIdGroupPairs"]] == ["MPI"]
    account.delete(token, made)
    assert account.client("ec2").describe_security_groups(GroupIds=[one])["SecurityGroups"][0]["IpPermissions"] == []


def test_a_role_needs_a_real_trust_policy_and_a_name_that_fits(account: Account) -> None:
    role = "aws:iam/role:Role"
    with pytest.raises(Refused, match="MalformedPolicyDocument"):
        account.create(role, "role", {"name": "r", "assumeRolePolicy": '{"Statement": [{"Effect": "Allow"}]}'})
    with pytest.raises(Refused, match="longer than 64"):
        account.create(role, "role", {"name": "r" * 65, "assumeRolePolicy": '{"Statement": []}'})


def test_a_retention_that_logs_do_not_offer_is_refused(account: Account) -> None:
    with pytest.raises(Refused, match="31 days"):
        account.create("aws:cloudwatch/logGroup:LogGroup", "logs", {"name": "a", "retentionInDays": 31})


def test_who_encrypts_a_log_group_may_describe_the_key(account: Account) -> None:
    key = account.create("aws:kms/key:Key", "key", {"deletionWindowInDays": 7})[1]["arn"]
    kind, group = "aws:cloudwatch/logGroup:LogGroup", {"name": "a", "kmsKeyId": key}
    for allowed in ([], ["kms:DescribeKey"]):
        statements = [{"Effect": "Allow", "Action": ["logs:CreateLogGroup", *allowed], "Resource": "*"}]
        account.caller = Caller("arn:aws:iam::123456789012:role/deployer", statements)
        if allowed:
            account.create(kind, "logs", group)
        else:
            with pytest.raises(Refused, match=f"AccessDenied: .* to perform: kms:DescribeKey on resource: {key}"):
                account.create(kind, "logs", group)


def test_an_account_has_at_most_ten_log_resource_policies_and_each_log_group_one(account: Account) -> None:
    kind, group = (
        "aws:cloudwatch/logResourcePolicy:LogResourcePolicy",
        "arn:aws:logs:us-west-2:123456789012:log-group:a",
    )
    statement = {
        "Effect": "Allow",
        "Principal": {"Service": "events.amazonaws.com"},
        "Action": "logs:PutLogEvents",
        "Resource": f"{group}:*",
    }
    document = {"policyDocument": json.dumps({"Version": "2012-10-17", "Statement": [statement]})}
    for number in range(10):
        account.create(kind, f"policy-{number}", {"policyName": f"p{number}", **document})
    with pytest.raises(Refused, match="LimitExceeded"):
        account.create(kind, "eleventh", {"policyName": "p10", **document})
    account.create("aws:cloudwatch/logGroup:LogGroup", "group", {"name": "a"})
    own, _ = account.create(kind, "own", {"resourceArn": group, **document})
    with pytest.raises(Refused, match="has a resource policy already"):
        account.create(kind, "second", {"resourceArn": group, **document})
    with pytest.raises(Refused, match="exactly one of"):
        account.create(kind, "neither", document)
    account.delete(kind, own)


def test_a_document_for_shells_says_of_each_log_whether_it_is_encrypted_and_who_runs_it(account: Account) -> None:
    """AWS Systems Manager User Guide, "Session document schema": Booleans that inputs require."""
    inputs: dict[str, Any] = {"cloudWatchEncryptionEnabled": False, "cloudWatchStreamingEnabled": True}
    document = {"name": "shell", "documentType": "Session"}
    content = {"schemaVersion": "1.0", "sessionType": "Standard_Stream", "inputs": inputs}
    with pytest.raises(Refused, match=r"InvalidDocumentContent: .* lack s3EncryptionEnabled, runAsEnabled"):
        account.create("aws:ssm/document:Document", "shell", {**document, "content": json.dumps(content)})
    inputs |= {"s3EncryptionEnabled": True, "runAsEnabled": False}
    account.create("aws:ssm/document:Document", "shell", {**document, "content": json.dumps(content)})


def test_an_endpoint_of_another_region_is_refused(account: Account) -> None:
    vpc, _ = account.create(VPC, "vpc", {"cidrBlock": "10.0.0.0/16"})
    with pytest.raises(Refused, match="InvalidServiceName"):
        account.create(
            "aws:ec2/vpcEndpoint:VpcEndpoint", "s3", {"vpcId": vpc, "serviceName": "com.amazonaws.us-east-1.s3"}
        )


def test_alert_rules_that_prometheus_would_not_load_are_refused(account: Account) -> None:
    workspace, _ = account.create("aws:amp/workspace:Workspace", "amp", {"alias": "a"})
    kind = "aws:amp/ruleGroupNamespace:RuleGroupNamespace"
    for data in ("groups: [", "nothing: here", "groups: [{name: a, rules: [{alert: x}]}]"):
        with pytest.raises(Refused, match="ValidationException"):
            account.create(kind, "rules", {"workspaceId": workspace, "name": "n", "data": data})


def test_reading_what_is_not_there_is_refused(account: Account) -> None:
    with pytest.raises(Refused, match="ResourceNotFound"):
        account.read(VPC, "vpc-0123456789abcdef0")


def test_the_audit_finds_what_nobody_declared(account: Account) -> None:
    account.client("logs").create_log_group(logGroupName="/stray")
    account.client("s3").create_bucket(
        Bucket="stray-bucket", CreateBucketConfiguration={"LocationConstraint": "us-west-2"}
    )
    assert account.leftovers() == ["s3 buckets stray-bucket", "logs log-groups /stray"]


def test_the_account_never_uses_the_machines_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "real")
    with Account("us-west-2") as account:
        assert os.environ["AWS_ACCESS_KEY_ID"] != "real"
        assert account.client("sts").get_caller_identity()["Account"] == "123456789012"
    assert os.environ["AWS_ACCESS_KEY_ID"] == "real"


@pytest.mark.parametrize("block", ["203.0.113.0/24", "10.0.0.0/8", "100.64.0.0/10"])
def test_a_kubernetes_api_is_not_opened_to_addresses_that_are_not_public(
    account: Account, subnet: str, block: str
) -> None:
    trust = '{"Version": "2012-10-17", "Statement": []}'
    account.create("aws:iam/role:Role", "role", {"name": "eks", "assumeRolePolicy": trust})
    vpc = {"subnetIds": [subnet], "endpointPublicAccess": True, "publicAccessCidrs": ["52.95.110.0/24", block]}
    inputs = {
        "name": "cluster",
        "version": "1.34",
        "roleArn": "arn:aws:iam::123456789012:role/eks",
        "vpcConfig": vpc,
    }
    with pytest.raises(Refused, match=rf"not allowed in publicAccessCidrs: \[{block}\]"):
        account.create("aws:eks/cluster:Cluster", "cluster", inputs)
