"""What a deployed stack cannot become is refused before anything happens, with the way that works."""

import json
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from components.common.names import BUCKET, DEPLOYED_WITH, Names, for_stack
from components.config import Config, ConfigError
from components.config.change_checks import deployed_with, rename_problems, require_possible
from components.security import bucket_writers
from rehearsal.account import Account
from rehearsal.engines.deployment import up
from rehearsal.engines.program import ProgramError
from tests.golden.stacks import DATABASE_SUBNETS, deployed, state_of
from tests.golden.stacks import VPC as EXISTING
from tests.support import config, project

ACCOUNT = "123456789012"
DEPLOYER = "arn:aws:iam::123456789012:user/rehearsal"
P5 = {"name": "workers", "instanceType": "ml.p5.48xlarge", "count": 2}
FIXED = P5 | {"name": "spare"}
SEVERAL = P5 | {"fallbackTypes": ["ml.p5e.48xlarge"]}
DEMAND = {"workers": [P5, FIXED | {"scaling": "demand"}], "autoscaling": {"enabled": True}}
VPC = {"vpcId": "vpc-0123456789abcdef0", "privateSubnetId": "subnet-0123456789abcdef0"}
CREATED = {"security": {"kmsKey": "create"}}
RDS = {"slurm": {"accounting": {"database": "rds"}}}
OTHERS = ["subnet-0bbbbbbbbbbbbbbb3", "subnet-0bbbbbbbbbbbbbbb2"]


@dataclass(frozen=True)
class Change:
    """What a deployed stack is to become, and where and under which name it was deployed."""

    stack: str
    before: dict[str, Any]
    after: dict[str, Any]
    zone: str = ""
    name: str = ""


BAD: dict[str, Change] = {
    "another name of the cluster": Change("slurm-gpu", {}, {"clusterName": "other"}),
    "another region": Change("slurm-gpu", {}, {"region": "us-east-1", "availabilityZoneId": "use1-az1"}),
    "another block": Change("slurm-gpu", {}, {"network": {"cidr": "10.8.0.0/16"}}),
    "no second block": Change("slurm-gpu", {}, {"network": {"secondaryCidr": ""}}),
    "no database of jobs": Change("slurm-gpu", RDS, {"slurm": {}}),
    "the database on the controller": Change("slurm-gpu", RDS, {"slurm": {"accounting": {}}}),
    "a smaller database": Change("slurm-gpu", {"slurm": {"accounting": {"database": "rds", "storageGiB": 40}}}, RDS),
    "a database that is hardly larger": Change(
        "slurm-gpu", RDS, {"slurm": {"accounting": {"database": "rds", "storageGiB": 21}}}
    ),
    "other subnets of the database": Change(
        "slurm-gpu",
        {"network": EXISTING, "slurm": {"accounting": {"database": "rds", "subnetIds": DATABASE_SUBNETS}}},
        {"network": EXISTING, "slurm": {"accounting": {"database": "rds", "subnetIds": OTHERS}}},
    ),
    "a smaller file system": Change("slurm-gpu", {"size": "medium"}, {"size": "small"}),
    "EFA later": Change("slurm-gpu", {}, {"fsx": {"efa": True, "storageGiB": 19200}}),
    "EFA no more": Change("slurm-gpu", {"fsx": {"efa": True, "storageGiB": 19200}}, {"fsx": {"storageGiB": 19200}}),
    "another throughput with EFA": Change(
        "slurm-gpu",
        {"fsx": {"efa": True, "storageGiB": 19200}},
        {"fsx": {"efa": True, "storageGiB": 19200, "throughput": 500}},
    ),
    "another type of workers": Change("slurm-gpu", {}, {"workers": [P5 | {"instanceType": "ml.p5e.48xlarge"}]}),
    "other threads of workers": Change("slurm-gpu", {}, {"workers": [P5 | {"threadsPerCore": 2}]}),
    "workers on spot": Change("slurm-gpu", {}, {"workers": [P5 | {"capacity": "spot"}]}),
    "another role": Change("slurm-gpu", {}, {"existingRoleArn": "arn:aws:iam::123456789012:role/team/hyperpod"}),
    "another controller": Change("slurm-gpu", {}, {"controllerInstanceType": "ml.m5.4xlarge"}),
    "other login nodes": Change(
        "slurm-gpu", {"login": {"instanceType": "ml.m5.2xlarge"}}, {"login": {"instanceType": "ml.m5.4xlarge"}}
    ),
    "the image's set-up later": Change("dev", {}, {"slurm": {"setup": "image"}}),
    "a key later": Change("dev", {}, CREATED),
    "a key no more": Change("dev", CREATED, {"security": {}}),
    "two Kubernetes versions at once": Change("eks-gpu", {"kubernetesVersion": "1.33"}, {"kubernetesVersion": "1.35"}),
    "an older Kubernetes version": Change("eks-gpu", {"kubernetesVersion": "1.34"}, {"kubernetesVersion": "1.33"}),
    "a smaller home file system": Change("dev", {"fsx": {"homeStorageGiB": 128}}, {"fsx": {"homeStorageGiB": 64}}),
    "a home file system that grows too little": Change(
        "dev", {"fsx": {"homeStorageGiB": 128}}, {"fsx": {"homeStorageGiB": 140}}
    ),
    "older authentication": Change(
        "eks-gpu", {}, {"authenticationMode": "API_AND_CONFIG_MAP", "kubernetesApiCidrs": ["52.94.76.1/32"]}
    ),
    "checkpoints' memory left out": Change("eks-gpu", {"charts": {"checkpointMemoryPercent": 30}}, {"charts": {}}),
    "Karpenter left out": Change("eks-gpu", DEMAND, {"workers": [P5], "autoscaling": {}}),
    "fixed nodes that follow demand": Change("eks-gpu", {"workers": [P5, FIXED]}, DEMAND),
    "nodes that follow demand no more": Change(
        "eks-gpu", DEMAND, {"workers": [P5, FIXED], "autoscaling": {"enabled": False}}
    ),
    "a second type for a group of one": Change("eks-gpu", {"workers": [P5]}, {"workers": [SEVERAL]}),
    "one type for a group of several": Change("eks-gpu", {"workers": [SEVERAL]}, {"workers": [P5]}),
    "a type less for a group of several": Change(
        "eks-gpu", {"workers": [SEVERAL]}, {"workers": [SEVERAL | {"fallbackTypes": ["ml.p5en.48xlarge"]}]}
    ),
    "another first type": Change(
        "eks-gpu",
        {"workers": [SEVERAL]},
        {"workers": [SEVERAL | {"instanceType": "ml.p5e.48xlarge", "fallbackTypes": ["ml.p5.48xlarge"]}]},
    ),
    "a Kueue of SageMaker's in place of the stack's": Change("eks-gpu", {}, {"charts": {"queues": "task-governance"}}),
    "a Kueue of the stack's in place of SageMaker's": Change(
        "eks-gpu", {"charts": {"queues": "task-governance"}}, {"charts": {"queues": "kueue"}}
    ),
    "another orchestrator": Change("slurm-gpu", {}, {"orchestrator": "eks"}),
    "an existing network": Change("slurm-gpu", {}, {"network": VPC | {"securityGroupIds": ["sg-0123456789abcdef0"]}}),
    "an existing file system": Change(
        "slurm-gpu",
        {"network": VPC | {"securityGroupIds": ["sg-0123456789abcdef0"]}},
        {"fsx": {"fileSystemId": "fs-0123456789abcdef0"}},
    ),
    "another zone": Change("dev", {}, {}, zone="usw2-az3"),
    "another name of the stack": Change("dev", {}, {}, name="research"),
}


def told(change: Change) -> list[str]:
    """Everything that is said of it before a deployment."""
    before, after = config(change.stack, **change.before), config(change.stack, **(change.before | change.after))
    left = {
        DEPLOYED_WITH: json.loads(json.dumps(deployed_with(before))),
        BUCKET: named(change.name or change.stack, before).bucket,
    }
    zone = SimpleNamespace(availability_zone_id=change.zone or after.zone_id)
    with (
        patch("components.config.change_checks._last_outputs", lambda: left),
        patch("pulumi_aws.ec2.get_subnets", lambda *, filters: SimpleNamespace(ids=["subnet-0123456789abcdef0"])),
        patch("pulumi_aws.ec2.get_subnet", lambda *, id: zone),
    ):
        try:
            require_possible(after, named(change.stack, after), ACCOUNT, DEPLOYER)
        except ConfigError as refused:
            return [str(problem) for problem in refused.problems]
    return []


def named(stack: str, chosen: Config) -> Names:
    cluster = {"cluster": chosen.settings.cluster_name, "region": chosen.region.name}
    return for_stack(stack=stack, account=ACCOUNT, project="hyperpod", **cluster)


@pytest.mark.parametrize(
    ("stack", "before", "after"),
    [
        ("slurm-gpu", {}, {}),
        ("slurm-gpu", {"size": "small"}, {"size": "large"}),
        (
            "eks-gpu",
            {"workers": [SEVERAL]},
            {"workers": [SEVERAL | {"fallbackTypes": ["ml.p5en.48xlarge", "ml.p5e.48xlarge"]}]},
        ),
        ("eks-gpu", {"workers": [P5]}, {"workers": [P5, SEVERAL | {"name": "more"}]}),
        ("slurm-gpu", {}, {"workers": [P5 | {"count": 5}, P5 | {"name": "more", "threadsPerCore": 2}]}),
        ("slurm-gpu", {"workers": [P5, P5 | {"name": "more"}]}, {"workers": [P5 | {"name": "more"}]}),
        ("slurm-gpu", {}, {"fsx": {"backupDays": 7, "throughput": 500, "compression": "NONE"}}),
        ("slurm-gpu", {}, {"fsx": {"homeStorageGiB": 64}}),
        ("slurm-gpu", {"fsx": {"homeStorageGiB": 128}}, {"fsx": {"homeStorageGiB": 141}}),
        ("slurm-gpu", {}, {"network": {"egress": "vpc-only"}, "protect": True, "tags": {"a": "b"}}),
        ("slurm-gpu", {}, RDS),
        ("slurm-gpu", {"slurm": {"accounting": {}}}, RDS),
        ("slurm-gpu", RDS, {"slurm": {"accounting": {"database": "rds", "storageGiB": 40}}}),
        (
            "slurm-gpu",
            {"network": EXISTING, "slurm": {"accounting": {"database": "rds", "subnetIds": DATABASE_SUBNETS}}},
            {"slurm": {"accounting": {"database": "rds", "subnetIds": DATABASE_SUBNETS[::-1]}}},
        ),
        ("eks-gpu", {"kubernetesVersion": "1.33"}, {"kubernetesVersion": "1.34"}),
    ],
)
def test_a_possible_change_is_let_through(stack: str, before: dict[str, Any], after: dict[str, Any]) -> None:
    assert told(Change(stack, before, after)) == []


def test_every_deployment_leaves_what_the_next_is_held_against() -> None:
    for stack in ("slurm-gpu", "eks-gpu"):
        left = deployed(stack).outputs[DEPLOYED_WITH]
        assert left == {**deployed_with(config(stack)), bucket_writers.OUTPUT: [DEPLOYER]}


def test_a_stack_without_a_bucket_has_no_other_name() -> None:
    assert list(rename_problems({}, named("dev", config("dev")))) == []


def test_the_preview_of_a_renamed_stack_says_so() -> None:
    other, left = replace(project("dev"), stack="research"), deployed("dev").outputs
    # Its state has kept the outputs, as after `pulumi stack rename`.
    with (
        Account("us-west-2") as account,
        pytest.raises(ProgramError, match="pulumi stack: this stack is deployed under another name"),
    ):
        up(other, account, old_outputs=left, preview=True)


def test_the_queue_of_a_team_that_is_added_later_waits_for_its_namespace() -> None:
    state = state_of("eks-closed")
    namespace = next(urn for urn, resource in state.items() if resource.name == "training-speech-namespace")
    assert namespace in next(r for r in state.values() if r.name == "training-queues-local-speech").dependencies
