"""A closed network is closed: its endpoints let through what nodes need, and nothing of anybody else."""

import json
from collections.abc import Iterator
from functools import cache
from typing import Any
from unittest.mock import patch

import pytest

from operations.engine.state import HYPERPOD_CLUSTER, State
from rehearsal.account import Account, Refused
from rehearsal.account.endpoints import blocks
from rehearsal.account.grants import granted
from rehearsal.engines.deployment import Deployment, up
from rehearsal.nodes.permissions import denied
from tests.golden.stacks import account_of, deployed, state_of
from tests.support import few_files, of_type, one, project

HERE, OWN, FOREIGN = "us-west-2:123456789012", "123456789012", "210987654321"
OURS = {"aws:PrincipalAccount": OWN}
THEIRS = {"aws:PrincipalAccount": FOREIGN}
NOBODY: dict[str, str] = {}
LAYER = "arn:aws:s3:::prod-us-west-2-starport-layer-bucket/layer"

# Who asks for what on which resource, and whether it leaves. Sources: Amazon ECR User Guide, "Amazon ECR interface VPC
# endpoints"; AWS Systems Manager User Guide, "SSM Agent communications with AWS managed S3 buckets"; EKS User Guide,
# "View Amazon container image registries for Amazon EKS add-ons"; AWS Deep Learning Containers, available images.
LEAVES: list[tuple[dict[str, str], str, str, bool]] = [
    (OURS, "s3:GetObject", "arn:aws:s3:::BUCKET/lifecycle/on_create.sh", True),
    (OURS, "s3:PutObject", "arn:aws:s3:::training-data/checkpoint", True),
    (OURS, "s3:PutObject", "arn:aws:s3:::somebody-elses/stolen", False),
    (OURS, "s3:GetObject", "arn:aws:s3:::somebody-elses/tool", False),
    (THEIRS, "s3:PutObject", "arn:aws:s3:::somebody-elses/stolen", False),
    (THEIRS, "s3:GetObject", "arn:aws:s3:::training-data/model", False),
    (NOBODY, "s3:PutObject", "arn:aws:s3:::somebody-elses/stolen", False),
    (NOBODY, "s3:GetObject", LAYER, True),
    (NOBODY, "s3:PutObject", LAYER, False),
    (NOBODY, "s3:GetObject", "arn:aws:s3:::amazon-ssm-us-west-2/latest/manifest.json", True),
    (NOBODY, "s3:GetObject", "arn:aws:s3:::al2023-repos-us-west-2-de612dc2/core", True),
    (NOBODY, "s3:GetObject", "arn:aws:s3:::amazon-ssm-us-east-1/latest/manifest.json", False),
    (OURS, "ecr:GetAuthorizationToken", "*", True),
    (OURS, "ecr:PutImage", f"arn:aws:ecr:{HERE}:repository/training", True),
    (OURS, "ecr:BatchGetImage", "arn:aws:ecr:us-west-2:602401143452:repository/eks/pause", True),
    (OURS, "ecr:BatchGetImage", "arn:aws:ecr:us-west-2:763104351884:repository/pytorch-training", True),
    (OURS, "ecr:PutImage", "arn:aws:ecr:us-west-2:602401143452:repository/eks/pause", False),
    (OURS, "ecr:BatchGetImage", f"arn:aws:ecr:us-west-2:{FOREIGN}:repository/theirs", False),
    (OURS, "ecr:PutImage", f"arn:aws:ecr:us-west-2:{FOREIGN}:repository/stolen", False),
    (OURS, "logs:PutLogEvents", f"arn:aws:logs:{HERE}:log-group:/aws/sagemaker/Clusters/x:log-stream:y", True),
    (THEIRS, "logs:PutLogEvents", f"arn:aws:logs:us-west-2:{FOREIGN}:log-group:x:log-stream:y", False),
    (OURS, "ssmmessages:OpenDataChannel", "*", True),
    (OURS, "ssm:GetParameter", f"arn:aws:ssm:{HERE}:parameter/hyperpod/x", True),
    (OURS, "ssm:GetParameter", "arn:aws:ssm:us-west-2::parameter/aws/service/eks/optimized-ami", True),
    (OURS, "ssm:GetParameter", f"arn:aws:ssm:us-west-2:{FOREIGN}:parameter/x", False),
    (OURS, "secretsmanager:PutSecretValue", f"arn:aws:secretsmanager:us-west-2:{FOREIGN}:secret:x", False),
    (OURS, "ec2:CreateNetworkInterface", f"arn:aws:ec2:{HERE}:subnet/subnet-1", True),
    (OURS, "kms:Encrypt", f"arn:aws:kms:us-west-2:{FOREIGN}:key/x", False),
    (OURS, "sts:GetCallerIdentity", "*", True),
    (THEIRS, "sts:GetCallerIdentity", "arn:aws:sts::210987654321:*", False),
    (OURS, "sts:AssumeRole", f"arn:aws:iam::{FOREIGN}:role/drop", False),
    (OURS, "eks-auth:AssumeRoleForPodIdentity", f"arn:aws:eks:{HERE}:cluster/x", True),
    (OURS, "cloudwatch:PutMetricData", "*", True),
    (OURS, "sagemaker:AttachClusterNodeVolume", f"arn:aws:sagemaker:{HERE}:cluster/x", True),
]


def test_metrics_leave_a_closed_network_for_our_own_workspaces_alone() -> None:
    statements = json.loads(one(state_of("slurm-closed"), "network-aps-workspaces").inputs["policy"])["Statement"]
    strangers = "310987654321"
    for asks, owner, leaves in ((OWN, OWN, True), (OWN, strangers, False), (strangers, strangers, False)):
        about = {"aws:PrincipalIsAWSService": "false", "aws:PrincipalAccount": asks, "aws:ResourceAccount": owner}
        workspace = f"arn:aws:aps:us-west-2:{owner}:workspace/ws-1"
        assert granted(statements, (), "aps:RemoteWrite", workspace, about) is leaves


@pytest.fixture(scope="module")
def closed() -> Iterator[tuple[Account, Deployment]]:
    with account_of("eks-closed") as account:
        yield account, deployed("eks-closed")


def test_endpoints_let_through_what_nodes_need_and_nothing_of_anybody_else(closed: tuple[Account, Deployment]) -> None:
    account, deployment = closed
    bucket = one(deployment.state, "lifecycle-bucket").id
    wrong = [
        f"{who} {action} {resource} {'is blocked' if leaves else 'leaves'}"
        for who, action, resource, leaves in LEAVES
        if blocks(account, action, resource.replace("BUCKET", bucket), who) == leaves
    ]
    assert not wrong, "\n".join(wrong)


def test_a_volume_is_made_although_aws_does_not_tell_whose_it_is(closed: tuple[Account, Deployment]) -> None:
    """IAM User Guide, "AWS global condition context keys": aws:ResourceAccount is not there for ec2:CreateVolume."""
    account, _ = closed
    assert not blocks(account, "ec2:CreateVolume", "arn:aws:ec2:us-west-2::volume/*", OURS)
    assert blocks(account, "ec2:CreateVolume", "arn:aws:ec2:us-west-2::volume/*", THEIRS)


@cache
def mirrored() -> State:
    """A closed network with a mirror of somebody else's, where one service takes no policy."""

    def answer(*, service_name: str, service_type: str) -> Any:
        found = type("Found", (), {"vpc_endpoint_policy_supported": not service_name.endswith(".eks-auth")})
        assert service_type == ("Gateway" if service_name.endswith(".s3") else "Interface")
        return found

    network = {"egress": "vpc-only", "imageRegistry": f"{FOREIGN}.dkr.ecr.us-west-2.amazonaws.com/mirror"}
    with patch("pulumi_aws.ec2.get_vpc_endpoint_service", answer), few_files():
        return up(project("eks-gpu", network=network), Account("us-west-2"), preview=True).state


def test_a_service_that_takes_no_policy_is_given_none() -> None:
    without = [endpoint.name for endpoint in of_type(mirrored(), "VpcEndpoint") if not endpoint.inputs.get("policy")]
    assert without == ["network-eks-auth"]


def test_charts_images_are_pulled_from_the_account_that_mirrors_them() -> None:
    policy = json.loads(one(mirrored(), "network-ecr-dkr").inputs["policy"])
    pulls = next(one for one in policy["Statement"] if one["Sid"] == "ImagesOfAws")
    assert f"arn:aws:ecr:us-west-2:{FOREIGN}:repository/*" in pulls["Resource"]


@pytest.mark.parametrize(
    ("endpoint", "needed", "said"),
    [
        ("network-logs", "logs:", "cannot logs:CreateLogStream"),
        ("network-s3", "s3:*", "cannot s3:GetObject"),
        ("network-s3", "starport", "s3:GetObject action on arn:aws:s3:::prod-us-west-2-starport-layer-bucket/layer"),
        ("network-ecr-api", "602401143452", "602401143452:repository/eks/pause, which pods need"),
    ],
)
def test_a_policy_that_is_too_narrow_fails_the_rehearsal(
    closed: tuple[Account, Deployment], endpoint: str, needed: str, said: str
) -> None:
    account, deployment = closed
    cluster = one(deployment.state, "hyperpod-cluster")
    live = account.live["aws:ec2/vpcEndpoint:VpcEndpoint", one(deployment.state, endpoint).id]
    narrower = live.inputs["policy"].replace(needed, needed.replace(needed[0], "x", 1))
    with (
        patch.dict(live.inputs, policy=narrower),
        patch.dict(account.live[HYPERPOD_CLUSTER, cluster.id].inputs, clusterName="elsewhere"),
        pytest.raises(Refused) as refused,
    ):
        account.create(HYPERPOD_CLUSTER, "probe", cluster.inputs, at=10_000)
    assert "no VPC endpoint policy allows the " in str(refused.value)
    assert said in str(refused.value)


def test_a_node_hears_of_the_endpoint_in_aws_words(closed: tuple[Account, Deployment]) -> None:
    account, deployment = closed
    role = one(deployment.state, "identity-worker", "Role").outputs["arn"]
    script = {"Bucket": one(deployment.state, "lifecycle-bucket").id, "Key": "lifecycle/on_create.sh"}
    assert denied(account, role, "s3", "GetObject", script) is None
    live = account.live["aws:ec2/vpcEndpoint:VpcEndpoint", one(deployment.state, "network-s3").id]
    with patch.dict(live.inputs, policy=live.inputs["policy"].replace("s3:*", "s3:List*")):
        said = str(denied(account, role, "s3", "GetObject", script))
    assert said.endswith("because no VPC endpoint policy allows the s3:GetObject action")
