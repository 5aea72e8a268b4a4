"""Permissions: which principal of a stack may do which action, decided like IAM by the policies that are deployed.

What is right comes from what each principal is for (SageMaker Developer Guide, "IAM role for SageMaker HyperPod"; the
drivers' and add-ons' own guides), and everything else is refused. The team and the outsider are people with
AmazonSageMakerFullAccess; the team's role is in ``teams``, which gives it a namespace and nothing of AWS.
"""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import pytest

from operations.engine.state import ResourceState
from rehearsal.account import Account
from rehearsal.account.grants import granted, managed_statements
from rehearsal.account.policies import listed
from rehearsal.engines.deployment import Deployment, up
from tests.golden.stacks import deployed
from tests.rehearsal.test_iam_documents import written
from tests.support import few_files, of_type, one, project

HERE = "us-west-2:123456789012"
ROLES = "arn:aws:iam::123456789012:role"
FULL_ACCESS = "arn:aws:iam::aws:policy/AmazonSageMakerFullAccess"
_NOTHING: Mapping[str, str] = {}
# A stack, and the logical name of its role.
PRINCIPALS = {
    "worker": ("dev", "identity-worker"),
    "controller": ("dev", "identity-controller"),
    "login": ("login", "identity-login"),
    "eks-worker": ("eks-gpu", "identity-worker"),
    "vpc-cni": ("eks-gpu", "eks-addons-vpc-cni"),
    "ebs-csi": ("eks-gpu", "eks-addons-ebs-csi"),
    "fsx-csi": ("eks-gpu", "eks-addons-fsx-csi"),
    "karpenter": ("eks-teams", "hyperpod-karpenter"),
    "team": ("eks-teams", ""),
    "outsider": ("dev", ""),
    "deployer": ("dev", ""),
}
NODES = frozenset({"worker", "controller", "login", "eks-worker"})
# AmazonSageMakerFullAccess is for every cluster of the account, and passes every role to SageMaker.
PEOPLE = frozenset({"team", "outsider"})
# AmazonEKS_CNI_Policy and AmazonSageMakerFullAccess name no VPC; why the deployer: docs/security.md.
ANY_INTERFACE = PEOPLE | {"eks-worker", "vpc-cni", "deployer"}
CNI_POLICY = frozenset({"eks-worker", "vpc-cni"})
FSX_DRIVER = frozenset({"fsx-csi"})
D = frozenset({"deployer"})
NOBODY: frozenset[str] = frozenset()

SCRIPT, BUCKET = "arn:aws:s3:::BUCKET/lifecycle/on_create.sh", "arn:aws:s3:::BUCKET"
INTERFACE, SUBNET = f"arn:aws:ec2:{HERE}:network-interface/eni-1", f"arn:aws:ec2:{HERE}:subnet/SUBNET"
FILE_SYSTEM, CLUSTER = f"arn:aws:fsx:{HERE}:file-system/fs-1", f"arn:aws:sagemaker:{HERE}:cluster/abc"
KEY, GROUP = f"arn:aws:kms:{HERE}:key/k", f"arn:aws:logs:{HERE}:log-group:/aws/sagemaker/Clusters/CLUSTER/abc"
NODE_ROLE = f"{ROLES}/CLUSTER-us-west-2-worker-DIGEST"
# What EC2 says of an interface that exists.
OWN = {"ec2:Vpc": f"arn:aws:ec2:{HERE}:vpc/VPC", "ec2:Subnet": f"arn:aws:ec2:{HERE}:subnet/SUBNET"}
ELSEWHERE = {**OWN, "ec2:Subnet": f"arn:aws:ec2:{HERE}:subnet/subnet-other"}
STACKS_OWN = {"aws:ResourceTag/hyperpod:cluster-id": "CLUSTER-DIGEST"}
OTHERS_TAG = {"aws:ResourceTag/hyperpod:cluster-id": "x"}
POD_VOLUME = {"aws:ResourceTag/CSIVolumeName": "pvc-1", "aws:ResourceTag/ebs.csi.aws.com/cluster": "true"}

# Action, resource, what else the request says, and who may.
MATRIX: list[tuple[str, str, dict[str, str], frozenset[str]]] = [
    ("s3:GetObject", SCRIPT, {}, NODES | PEOPLE | D),
    ("s3:ListBucket", BUCKET, {}, NODES | PEOPLE | D),
    ("s3:PutObject", SCRIPT, {}, D),
    ("s3:DeleteObject", SCRIPT, {}, D),
    ("s3:PutBucketPolicy", BUCKET, {}, D),
    ("s3:PutLifecycleConfiguration", BUCKET, {}, D),
    ("s3:PutEncryptionConfiguration", BUCKET, {}, D),
    ("s3:DeleteBucket", BUCKET, {}, D),
    ("ec2:CreateNetworkInterface", SUBNET, {}, NODES | {"vpc-cni"} | PEOPLE),
    ("ec2:CreateNetworkInterface", INTERFACE, {}, NODES | {"vpc-cni"} | PEOPLE),
    ("ec2:DeleteNetworkInterface", INTERFACE, OWN, NODES | {"vpc-cni"} | PEOPLE | D),
    ("ec2:DeleteNetworkInterface", INTERFACE, ELSEWHERE, ANY_INTERFACE),
    ("ec2:TerminateInstances", f"arn:aws:ec2:{HERE}:instance/i-1", {}, NOBODY),
    ("ec2:DeleteVolume", f"arn:aws:ec2:{HERE}:volume/v-1", POD_VOLUME, NOBODY),
    ("ec2:DeleteVolume", f"arn:aws:ec2:{HERE}:volume/v-1", {}, NOBODY),
    ("fsx:DescribeFileSystems", "*", {}, NODES | FSX_DRIVER | PEOPLE | D),
    ("fsx:CreateFileSystem", FILE_SYSTEM, {}, FSX_DRIVER),
    ("fsx:DeleteFileSystem", FILE_SYSTEM, STACKS_OWN, D),
    ("fsx:DeleteFileSystem", FILE_SYSTEM, POD_VOLUME, FSX_DRIVER),
    ("fsx:DeleteFileSystem", FILE_SYSTEM, POD_VOLUME | STACKS_OWN, D),
    ("logs:PutLogEvents", f"{GROUP}:log-stream:x", {}, NODES | PEOPLE),
    ("cloudwatch:PutMetricData", "*", {"cloudwatch:namespace": "HyperPod"}, NODES | PEOPLE),
    ("ssmmessages:OpenDataChannel", "*", {}, NODES),
    ("ssm:StartSession", f"arn:aws:ssm:{HERE}:document/AWS-StartSSHSession", {}, NOBODY),
    ("secretsmanager:GetSecretValue", f"arn:aws:secretsmanager:{HERE}:secret:hyperpod/CLUSTER/token", {}, NOBODY),
    ("sagemaker:BatchAddClusterNodes", CLUSTER, STACKS_OWN, PEOPLE | D | {"karpenter"}),
    ("sagemaker:BatchDeleteClusterNodes", CLUSTER, STACKS_OWN, PEOPLE | D | {"karpenter"}),
    ("sagemaker:DeleteCluster", CLUSTER, STACKS_OWN, PEOPLE | D),
    ("sagemaker:UpdateCluster", CLUSTER, STACKS_OWN, PEOPLE | D),
    ("sagemaker:DeleteCluster", CLUSTER, {}, PEOPLE),
    ("iam:PassRole", NODE_ROLE, {"iam:PassedToService": "sagemaker.amazonaws.com"}, PEOPLE | D),
    ("iam:PassRole", NODE_ROLE, {"iam:PassedToService": "ec2.amazonaws.com"}, NOBODY),
    ("iam:AttachRolePolicy", NODE_ROLE, {}, NOBODY),
    ("iam:DeleteRole", NODE_ROLE, {}, D),
    ("sts:AssumeRole", NODE_ROLE, {}, NOBODY),
    ("kms:ScheduleKeyDeletion", KEY, {}, NOBODY),
    ("eks:CreateAccessEntry", f"arn:aws:eks:{HERE}:cluster/CLUSTER", {}, NOBODY),
    ("s3:GetObject", "arn:aws:s3:::sagemaker-somebody-elses/data", {}, PEOPLE),
    ("s3:PutObject", "arn:aws:s3:::sagemaker-of-their-own/x", {}, PEOPLE),
    ("s3:DeleteObjectVersion", SCRIPT, {}, D),
    ("ec2:CreateNetworkInterface", f"arn:aws:ec2:{HERE}:subnet/subnet-other", {}, ANY_INTERFACE - D),
    ("ec2:DetachNetworkInterface", INTERFACE, OWN, NODES | {"vpc-cni"}),
    ("ec2:DetachNetworkInterface", INTERFACE, ELSEWHERE, CNI_POLICY),
    ("ec2:CreateTags", INTERFACE, {}, NODES | {"vpc-cni"}),
    ("ec2:CreateTags", INTERFACE, OWN, NODES | {"vpc-cni"}),
    ("ec2:CreateTags", INTERFACE, ELSEWHERE, CNI_POLICY),
    ("ec2:CreateNetworkInterfacePermission", INTERFACE, ELSEWHERE, PEOPLE),
    ("fsx:TagResource", FILE_SYSTEM, {"aws:TagKeys": "CSIVolumeName"}, FSX_DRIVER),
    ("fsx:TagResource", FILE_SYSTEM, {"aws:TagKeys": "hyperpod:volumes-of"}, FSX_DRIVER),
    ("fsx:TagResource", FILE_SYSTEM, {"aws:TagKeys": "hyperpod:cluster-id"}, NOBODY),
    ("fsx:TagResource", FILE_SYSTEM, {"aws:TagKeys": "CSIVolumeName"} | OTHERS_TAG, NOBODY),
    ("fsx:DeleteFileSystem", FILE_SYSTEM, {}, NOBODY),
    ("fsx:DeleteFileSystem", FILE_SYSTEM, {"aws:ResourceTag/CSIVolumeName": "planted"} | OTHERS_TAG, NOBODY),
    ("logs:CreateLogStream", f"{GROUP}:log-stream:x", {}, NODES | PEOPLE),
    ("logs:PutLogEvents", f"{GROUP}:log-stream:x".replace("CLUSTER", "another"), {}, PEOPLE),
    ("cloudwatch:PutMetricData", "*", {"cloudwatch:namespace": "Billing"}, PEOPLE),
    ("ssm:PutParameter", f"arn:aws:ssm:{HERE}:parameter/hyperpod/CLUSTER/ssh-public-key", {}, NOBODY),
]


@cache
def managed(arn: str) -> tuple[Any, ...]:
    with Account("us-west-2") as account:
        return tuple(managed_statements(account.client("iam"), arn, "aws"))


def statements(deployment: Deployment, role: ResourceState) -> Iterator[Any]:
    """A role's policies, inline and attached."""
    for policy in of_type(deployment.state, "RolePolicy"):
        if policy.inputs["role"] == role.outputs["name"]:
            yield from listed(json.loads(policy.inputs["policy"])["Statement"])
    for attached in of_type(deployment.state, "RolePolicyAttachment"):
        if attached.inputs["role"] == role.outputs["name"]:
            yield from managed(attached.inputs["policyArn"])


def bucket_statements(deployment: Deployment) -> list[Any]:
    return listed(json.loads(one(deployment.state, "lifecycle-policy").inputs["policy"])["Statement"])


@cache
def stack_of(name: str) -> Deployment:
    """A golden stack, or the default one with login nodes, which no golden stack has with the default permissions."""
    if name != "login":
        return deployed(name)
    with Account("us-west-2") as account, few_files():
        return up(project("dev", login={"instanceType": "ml.m5.large"}), account)


@cache
def policies(who: str, stack: str, role: str) -> tuple[Any, ...]:
    """The identity's own policies."""
    if who == "deployer":
        return tuple(statement for document in written(stack).deploy for statement in document["Statement"])
    made = stack_of(stack)
    return tuple(statements(made, one(made.state, role, "Role"))) if role else managed(FULL_ACCESS)


@cache
def names(stack: str) -> dict[str, str]:
    """What the placeholders stand for in a stack; an existing VPC's ids are the configuration's."""
    made = stack_of(stack)
    bucket = one(made.state, "lifecycle-bucket").id
    vpcs = [it.id for it in of_type(made.state, "ec2/vpc:Vpc")] or ["vpc-0123456789abcdef0"]
    subnets = [it.id for it in of_type(made.state, "Subnet") if it.name == "network-private"]
    return {
        "BUCKET": bucket,
        "VPC": vpcs[0],
        "SUBNET": (subnets or ["subnet-0123456789abcdef0"])[0],
        "CLUSTER": str(made.outputs["clusterName"]),
        "DIGEST": bucket.rsplit("-", 1)[1],
    }


def may(who: str, action: str, resource: str, context: Mapping[str, str] = _NOTHING, stack: str = "") -> bool:
    """Whether a principal, or a role of this stack, may do an action on the resource of its stack."""
    stack, role = (stack, who) if stack else PRINCIPALS[who]
    for name, value in names(stack).items():
        resource = resource.replace(name, value)
        context = {key: text.replace(name, value) for key, text in context.items()}
    own = one(stack_of(stack).state, role, "Role").outputs["arn"] if role else f"{ROLES}/vision"
    known = {
        "aws:PrincipalArn": "arn:aws:iam::123456789012:user/rehearsal" if who == "deployer" else own,
        "aws:PrincipalAccount": "123456789012",
        "aws:ResourceAccount": "123456789012",
        "aws:PrincipalIsAWSService": "false",
        "aws:SecureTransport": "true",
        **context,
    }
    denying = bucket_statements(stack_of(stack)) if names(stack)["BUCKET"] in resource else ()
    return granted(policies(who, stack, role), denying, action, resource, known)


def wrong() -> Iterator[str]:
    for action, resource, context, right in MATRIX:
        who = {who for who in PRINCIPALS if may(who, action, resource, context)}
        if who != right:
            yield f"{action} {resource} {context}: also {sorted(who - right)}, not {sorted(right - who)}"


def test_every_principal_may_do_what_it_is_for_and_nothing_else() -> None:
    assert len({action for action, *_ in MATRIX}) >= 25
    assert len(MATRIX) >= 30
    assert not list(wrong())


def test_who_collects_metrics_may_write_them_and_nothing_else_of_prometheus() -> None:
    roles = {"slurm-closed": [f"identity-{kind}" for kind in ("controller", "login", "worker")]}
    roles["eks-spot"] = ["eks-addons-metrics"]
    other = f"arn:aws:aps:{HERE}:workspace/ws-other"
    for stack, names in roles.items():
        own = one(deployed(stack).state, "observability-prometheus").outputs["arn"]
        for role in names:
            assert may(role, "aps:RemoteWrite", own, stack=stack), role
            for action in ("aps:QueryMetrics", "aps:DeleteWorkspace", "aps:PutRuleGroupsNamespace"):
                assert not may(role, action, own, stack=stack), f"{role} {action}"
            assert not may(role, "aps:RemoteWrite", other, stack=stack), role
    assert not may("identity-worker", "aps:RemoteWrite", own, stack="eks-spot")


# What no pod of the system may do, whatever its driver or controller is for.
POD_MAY_NOT = [
    ("s3:PutObject", SCRIPT),
    ("s3:GetObject", "arn:aws:s3:::somebody-elses/data"),
    ("sagemaker:DeleteCluster", f"arn:aws:sagemaker:{HERE}:cluster/abc"),
    ("sagemaker:UpdateCluster", f"arn:aws:sagemaker:{HERE}:cluster/abc"),
    ("secretsmanager:GetSecretValue", f"arn:aws:secretsmanager:{HERE}:secret:hyperpod/CLUSTER/token"),
    ("iam:PassRole", f"{ROLES}/any"),
    ("iam:AttachRolePolicy", f"{ROLES}/any"),
    ("sts:AssumeRole", f"{ROLES}/any"),
    ("eks:CreateAccessEntry", f"arn:aws:eks:{HERE}:cluster/CLUSTER"),
    ("fsx:DeleteFileSystem", FILE_SYSTEM),
    ("ec2:TerminateInstances", f"arn:aws:ec2:{HERE}:instance/i-1"),
    ("kms:ScheduleKeyDeletion", f"arn:aws:kms:{HERE}:key/k"),
    ("aps:QueryMetrics", f"arn:aws:aps:{HERE}:workspace/ws-1"),
    ("sns:Publish", f"arn:aws:sns:{HERE}:any"),
]


@pytest.mark.parametrize("stack", ["eks-gpu", "eks-closed", "eks-spot"])
def test_no_pod_of_the_system_may_reach_beyond_its_work(stack: str) -> None:
    pods = [
        role.name
        for role in of_type(deployed(stack).state, "iam/role:Role")
        if "pods.eks.amazonaws.com" in role.inputs["assumeRolePolicy"]
    ]
    assert len(pods) >= 3
    wrong = [f"{who} may {a} {r}" for who in pods for a, r in POD_MAY_NOT if may(who, a, r, stack=stack)]
    assert not wrong, "\n".join(wrong)


def test_a_service_of_aws_writes_where_people_may_not() -> None:
    policy = bucket_statements(deployed("dev"))
    everything = [{"Effect": "Allow", "Action": "*", "Resource": "*"}]
    context = {"aws:PrincipalIsAWSService": "true", "aws:SecureTransport": "true"}
    assert granted(everything, policy, "s3:PutObject", "arn:aws:s3:::any/x", context)


def test_secrets_are_readable_only_if_configured_and_only_by_workers() -> None:
    secret = f"arn:aws:secretsmanager:{HERE}:secret:hyperpod/CLUSTER/token"
    asked = [
        may(f"identity-{kind}", "secretsmanager:GetSecretValue", secret, stack="slurm-closed")
        for kind in ("worker", "login")
    ]
    assert asked == [True, False]
