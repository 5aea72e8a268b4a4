"""Permissions: what every principal of a stack must and must not be able to do, decided like IAM.

The policies are the deployed identity policies, AWS's managed ones as moto has them, the bucket's policy and the trust
policies.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import pytest

from operations.engine.state import ResourceState
from rehearsal.account import Account
from rehearsal.account.grants import granted, managed_statements
from rehearsal.account.policies import listed
from rehearsal.engines.deployment import Deployment
from tests.golden.stacks import deployed
from tests.support import of_type, one

HERE = "us-west-2:123456789012"
_NOTHING: Mapping[str, str] = {}
ROLES = "arn:aws:iam::123456789012:role"
DEPLOYER = "arn:aws:iam::123456789012:user/rehearsal"
FULL_ACCESS = "arn:aws:iam::aws:policy/AmazonSageMakerFullAccess"
INTERFACE = f"arn:aws:ec2:{HERE}:network-interface/eni-1"
FILE_SYSTEM = f"arn:aws:fsx:{HERE}:file-system/fs-1"


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


def may(stack: str, who: str, action: str, resource: str, context: Mapping[str, str] = _NOTHING) -> bool:
    """Whether a principal of a stack may do an action: a role by its logical name, the deployer, or an outsider with
    AmazonSageMakerFullAccess."""
    deployment = deployed(stack)
    values: dict[str, str] = {
        "BUCKET": one(deployment.state, "lifecycle-bucket").id,
        "VPC": one(deployment.state, "network-vpc").id,
        "SUBNET": one(deployment.state, "network-private", "Subnet").id,
        "CLUSTER": str(deployment.outputs["clusterName"]),
    }
    for key, value in values.items():
        resource = resource.replace(key, value)
        context = {name: text.replace(key, value) for name, text in context.items()}
    arn, own = {
        "deployer": (DEPLOYER, [{"Effect": "Allow", "Action": "*", "Resource": "*"}]),
        "outsider": (f"{ROLES}/data-scientist", list(managed(FULL_ACCESS))),
    }.get(who) or _role(deployment, who)
    known = {
        "aws:PrincipalArn": arn,
        "aws:PrincipalAccount": "123456789012",
        "aws:ResourceAccount": "123456789012",
        "aws:PrincipalIsAWSService": "false",
        "aws:SecureTransport": "true",
        **context,
    }
    about_bucket = resource.startswith(f"arn:aws:s3:::{values['BUCKET']}")
    return granted(own, bucket_statements(deployment) if about_bucket else (), action, resource, known)


def _role(deployment: Deployment, name: str) -> tuple[str, list[Any]]:
    role = one(deployment.state, name, "Role")
    return role.outputs["arn"], list(statements(deployment, role))


SCRIPT, BUCKET = "arn:aws:s3:::BUCKET/lifecycle/on_create.sh", "arn:aws:s3:::BUCKET"
# What EC2 says of an interface that exists. Another subnet of the same VPC has databases, load balancers and EKS's own.
OWN = {"ec2:Vpc": f"arn:aws:ec2:{HERE}:vpc/VPC", "ec2:Subnet": f"arn:aws:ec2:{HERE}:subnet/SUBNET"}
ELSEWHERE = {**OWN, "ec2:Subnet": f"arn:aws:ec2:{HERE}:subnet/subnet-other"}
NODES = {
    "dev": ("identity-controller", "identity-worker"),
    "eks-gpu": ("identity-worker",),
}
LOGS = f"arn:aws:logs:{HERE}:log-group:/aws/sagemaker/Clusters"

# What every node does, according to AWS's guides, and what no node may do.
NODE_MAY: list[tuple[str, str, dict[str, str]]] = [
    ("s3:GetObject", SCRIPT, {}),
    ("s3:ListBucket", BUCKET, {}),
    ("ec2:CreateNetworkInterface", INTERFACE, {}),
    ("ec2:CreateNetworkInterface", f"arn:aws:ec2:{HERE}:subnet/SUBNET", {}),
    ("ec2:DeleteNetworkInterface", INTERFACE, OWN),
    ("ec2:DetachNetworkInterface", INTERFACE, OWN),
    ("ec2:CreateTags", INTERFACE, {}),
    ("ec2:CreateTags", INTERFACE, OWN),
    ("fsx:DescribeFileSystems", "*", {}),
    ("cloudwatch:PutMetricData", "*", {"cloudwatch:namespace": "/aws/sagemaker/Clusters"}),
    ("logs:CreateLogStream", f"{LOGS}/CLUSTER/abc:log-stream:x", {}),
    ("logs:PutLogEvents", f"{LOGS}/CLUSTER/abc:log-stream:x", {}),
    ("ssmmessages:OpenDataChannel", "*", {}),
]
NODE_MAY_NOT: list[tuple[str, str, dict[str, str]]] = [
    ("s3:PutObject", SCRIPT, {}),
    ("s3:DeleteObject", SCRIPT, {}),
    ("s3:PutBucketPolicy", BUCKET, {}),
    ("s3:GetObject", "arn:aws:s3:::sagemaker-somebody-elses/data", {}),
    ("logs:PutLogEvents", f"{LOGS}/another/abc:log-stream:x", {}),
    ("cloudwatch:PutMetricData", "*", {"cloudwatch:namespace": "Billing"}),
    ("secretsmanager:GetSecretValue", f"arn:aws:secretsmanager:{HERE}:secret:hyperpod/CLUSTER/token", {}),
    ("ssm:PutParameter", f"arn:aws:ssm:{HERE}:parameter/hyperpod/CLUSTER/ssh-public-key", {}),
    ("sagemaker:UpdateCluster", f"arn:aws:sagemaker:{HERE}:cluster/abc", {}),
    ("iam:PassRole", f"{ROLES}/any", {}),
    ("fsx:DeleteFileSystem", FILE_SYSTEM, {}),
    ("ec2:TerminateInstances", f"arn:aws:ec2:{HERE}:instance/i-1", {}),
]
# Only Slurm's nodes: on EKS, HyperPod requires AmazonEKS_CNI_Policy on the role, which names no VPC.
SLURM_MAY_NOT: list[tuple[str, str, dict[str, str]]] = [
    ("ec2:CreateNetworkInterface", f"arn:aws:ec2:{HERE}:subnet/subnet-other", {}),
    ("ec2:DeleteNetworkInterface", INTERFACE, ELSEWHERE),
    ("ec2:DetachNetworkInterface", INTERFACE, ELSEWHERE),
    ("ec2:CreateTags", INTERFACE, ELSEWHERE),
    ("ec2:CreateNetworkInterfacePermission", INTERFACE, ELSEWHERE),
]
DRIVER = "eks-addons-fsx-csi"
OTHERS: list[tuple[str, str, str, dict[str, str], bool]] = [
    ("deployer", "s3:PutObject", SCRIPT, {}, True),
    ("deployer", "s3:DeleteBucket", BUCKET, {}, True),
    ("outsider", "s3:PutObject", SCRIPT, {}, False),
    ("outsider", "s3:DeleteObject", SCRIPT, {}, False),
    ("outsider", "s3:DeleteObjectVersion", SCRIPT, {}, False),
    ("outsider", "s3:PutBucketPolicy", BUCKET, {}, False),
    ("outsider", "s3:PutLifecycleConfiguration", BUCKET, {}, False),
    ("outsider", "s3:PutEncryptionConfiguration", BUCKET, {}, False),
    ("outsider", "s3:PutObject", "arn:aws:s3:::sagemaker-of-their-own/x", {}, True),
    (DRIVER, "fsx:CreateFileSystem", FILE_SYSTEM, {}, True),
    (DRIVER, "fsx:TagResource", FILE_SYSTEM, {"aws:TagKeys": "CSIVolumeName"}, True),
    (DRIVER, "fsx:TagResource", FILE_SYSTEM, {"aws:TagKeys": "hyperpod:volumes-of"}, True),
    (DRIVER, "fsx:TagResource", FILE_SYSTEM, {"aws:TagKeys": "hyperpod:cluster-id"}, False),
    (DRIVER, "fsx:DeleteFileSystem", FILE_SYSTEM, {"aws:ResourceTag/CSIVolumeName": "pvc-1"}, True),
    (DRIVER, "fsx:DeleteFileSystem", FILE_SYSTEM, {}, False),
    (
        DRIVER,
        "fsx:DeleteFileSystem",
        FILE_SYSTEM,
        {"aws:ResourceTag/CSIVolumeName": "planted", "aws:ResourceTag/hyperpod:cluster-id": "x"},
        False,
    ),
    (
        DRIVER,
        "fsx:TagResource",
        FILE_SYSTEM,
        {"aws:TagKeys": "CSIVolumeName", "aws:ResourceTag/hyperpod:cluster-id": "x"},
        False,
    ),
    ("eks-addons-vpc-cni", "sagemaker:DeleteCluster", f"arn:aws:sagemaker:{HERE}:cluster/abc", {}, False),
    ("eks-addons-ebs-csi", "fsx:DeleteFileSystem", FILE_SYSTEM, {}, False),
]


@pytest.mark.parametrize(("stack", "role"), [(stack, role) for stack, roles in NODES.items() for role in roles])
def test_a_node_may_do_what_it_does_and_nothing_of_somebody_elses(stack: str, role: str) -> None:
    forbidden = NODE_MAY_NOT + (SLURM_MAY_NOT if not stack.startswith("eks") else [])
    wrong = [f"may not {a} {r} {c}" for a, r, c in NODE_MAY if not may(stack, role, a, r, c)]
    wrong += [f"may {a} {r} {c}" for a, r, c in forbidden if may(stack, role, a, r, c)]
    assert not wrong, "\n".join(wrong)


def test_who_collects_metrics_may_write_them_and_nothing_else_of_prometheus() -> None:
    roles = {"slurm-closed": [f"identity-{kind}" for kind in ("controller", "login", "worker")]}
    roles["eks-spot"] = ["eks-addons-metrics"]
    other = f"arn:aws:aps:{HERE}:workspace/ws-other"
    for stack, names in roles.items():
        own = one(deployed(stack).state, "observability-prometheus").outputs["arn"]
        for role in names:
            assert may(stack, role, "aps:RemoteWrite", own), role
            for action in ("aps:QueryMetrics", "aps:DeleteWorkspace", "aps:PutRuleGroupsNamespace"):
                assert not may(stack, role, action, own), f"{role} {action}"
            assert not may(stack, role, "aps:RemoteWrite", other), role
    assert not may("eks-spot", "identity-worker", "aps:RemoteWrite", own)


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
    wrong = [f"{who} may {a} {r}" for who in pods for a, r in POD_MAY_NOT if may(stack, who, a, r)]
    assert not wrong, "\n".join(wrong)


def test_everybody_else_may_do_what_is_theirs() -> None:
    wrong = [
        f"{who} may {'not ' if expected else ''}{action} {resource} {context}"
        for who, action, resource, context, expected in OTHERS
        if may("eks-gpu", who, action, resource, context) != expected
    ]
    assert not wrong, "\n".join(wrong)


def test_a_service_of_aws_writes_where_people_may_not() -> None:
    policy = bucket_statements(deployed("dev"))
    everything = [{"Effect": "Allow", "Action": "*", "Resource": "*"}]
    context = {"aws:PrincipalIsAWSService": "true", "aws:SecureTransport": "true"}
    assert granted(everything, policy, "s3:PutObject", "arn:aws:s3:::any/x", context)


def test_secrets_are_readable_only_if_configured_and_only_by_workers() -> None:
    secret = f"arn:aws:secretsmanager:{HERE}:secret:hyperpod/CLUSTER/token"
    asked = [
        may("slurm-closed", f"identity-{kind}", "secretsmanager:GetSecretValue", secret) for kind in ("worker", "login")
    ]
    assert asked == [True, False]
