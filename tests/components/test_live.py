"""What a deployed stack cannot become is refused before anything happens, with the way that works."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from components import writers
from components.live import deployed_with, impossible, renamed
from components.names import BUCKET, DEPLOYED_WITH, for_stack
from rehearsal.account import Account
from rehearsal.engines.deployment import up
from rehearsal.engines.program import ProgramError
from tests.golden.stacks import DATABASE_SUBNETS, deployed, state_of
from tests.golden.stacks import VPC as EXISTING
from tests.support import config, project

ROLES = "arn:aws:iam::123456789012:role"
DEPLOYER = "arn:aws:iam::123456789012:user/rehearsal"
P5 = {"name": "workers", "instanceType": "ml.p5.48xlarge", "count": 2}
VPC = {"vpcId": "vpc-0123456789abcdef0", "privateSubnetId": "subnet-0123456789abcdef0"}
CONTINUOUS = {"nodeProvisioning": "Continuous"}
CREATED = {**CONTINUOUS, "security": {"kmsKey": "create"}}
RDS = {"slurm": {"accounting": {"database": "rds"}}}
OTHERS = ["subnet-0bbbbbbbbbbbbbbb3", "subnet-0bbbbbbbbbbbbbbb2"]
CHANGES: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("slurm-gpu", {}, {"clusterName": "other"}, 'clusterName: the cluster is called "slurm-gpu'),
    (
        "slurm-gpu",
        {},
        {"region": "us-east-1", "availabilityZoneId": "use1-az1"},
        "aws:region: this stack is deployed with us-west-2",
    ),
    ("slurm-gpu", {}, {"network": {"cidr": "10.8.0.0/16"}}, "network.cidr: this stack is deployed with 10.0.0.0/16"),
    ("slurm-gpu", {}, {"network": {"secondaryCidr": ""}}, "network.secondaryCidr: this stack is deployed with"),
    (
        "slurm-gpu",
        {},
        {"slurm": {"controllers": 2}},
        "slurm.controllers: this stack has 1, .* queue is on its own disk",
    ),
    ("slurm-gpu", {"slurm": {"controllers": 2}}, {"slurm": {}}, "slurm.controllers: this stack has 2, .* removes no"),
    ("slurm-gpu", RDS, {"slurm": {}}, "accounting.database: the history of jobs is in a database on RDS"),
    (
        "slurm-gpu",
        RDS,
        {"slurm": {"accounting": {}}},
        "accounting.database: the history of jobs is in a database on RDS",
    ),
    (
        "slurm-gpu",
        {"slurm": {"accounting": {"database": "rds", "storageGiB": 40}}},
        RDS,
        "accounting.storageGiB: 20 GiB, and the database has 40 GiB",
    ),
    (
        "slurm-gpu",
        {"network": EXISTING, "slurm": {"accounting": {"database": "rds", "subnetIds": DATABASE_SUBNETS}}},
        {"network": EXISTING, "slurm": {"accounting": {"database": "rds", "subnetIds": OTHERS}}},
        "accounting.subnetIds: the database is in subnet-0bbbbbbbbbbbbbbb1",
    ),
    ("slurm-gpu", {"size": "medium"}, {"size": "small"}, "fsx.storageGiB: 1200 GiB, and the file system has 4800 GiB"),
    (
        "slurm-gpu",
        {},
        {"fsx": {"efa": True, "storageGiB": 19200}},
        "fsx.efa: the file system was created without EFA",
    ),
    (
        "slurm-gpu",
        {"fsx": {"efa": True, "storageGiB": 19200}},
        {"fsx": {"efa": True, "storageGiB": 19200, "throughput": 500}},
        "fsx.throughput: the throughput of a file system with EFA",
    ),
    (
        "slurm-gpu",
        {},
        {"workers": [P5 | {"instanceType": "ml.p5e.48xlarge"}]},
        r'workers: group "workers" runs on ml.p5.48xlarge.*; add a group with another name',
    ),
    ("slurm-gpu", {}, {"controllerInstanceType": "ml.m5.4xlarge"}, "controllerInstanceType: .*cannot be removed"),
    (
        "slurm-gpu",
        {"login": {"instanceType": "ml.m5.2xlarge"}},
        {"login": {"instanceType": "ml.m5.4xlarge"}},
        "login: .*remove the login nodes with one update",
    ),
    ("dev", CONTINUOUS, CREATED, "security.kmsKey: this stack is encrypted with keys of AWS's"),
    ("dev", CREATED, {"security": {}}, "security.kmsKey: this stack is encrypted with a key that it created"),
    ("eks-gpu", {"kubernetesVersion": "1.33"}, {"kubernetesVersion": "1.35"}, r"kubernetesVersion: .* to 1\.34 first"),
    ("eks-gpu", {"kubernetesVersion": "1.34"}, {"kubernetesVersion": "1.33"}, "kubernetesVersion: .*within 7 days"),
    (
        "dev",
        {"fsx": {"homeStorageGiB": 128}},
        {"fsx": {"homeStorageGiB": 64}},
        "homeStorageGiB: .*; 128, or at least 141",
    ),
    (
        "dev",
        {"fsx": {"homeStorageGiB": 128}},
        {"fsx": {"homeStorageGiB": 140}},
        "homeStorageGiB: .*by a tenth at least",
    ),
    (
        "eks-gpu",
        {},
        {"authenticationMode": "API_AND_CONFIG_MAP", "kubernetesApiCidrs": ["52.94.76.1/32"]},
        "authenticationMode: access entries alone",
    ),
]


@pytest.mark.parametrize(("stack", "before", "after", "reason"), CHANGES)
def test_an_impossible_change_is_refused_with_the_way_that_works(
    stack: str, before: dict[str, Any], after: dict[str, Any], reason: str
) -> None:
    known = json.loads(json.dumps(deployed_with(config(stack, **before))))
    problems = [str(problem) for problem in impossible(known, config(stack, **(before | after)))]
    assert len(problems) == 1, f"{stack} to {after} meets: {problems or 'nothing'}"
    assert re.search(reason, problems[0]), problems[0]
    assert "; " in problems[0]


@pytest.mark.parametrize(
    ("stack", "before", "after"),
    [
        ("slurm-gpu", {}, {}),
        ("slurm-gpu", {"size": "small"}, {"size": "large"}),
        ("slurm-gpu", {}, {"workers": [P5 | {"count": 5}, P5 | {"name": "more"}]}),
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
    known = json.loads(json.dumps(deployed_with(config(stack, **before))))
    assert list(impossible(known, config(stack, **(before | after)))) == []


def test_a_move_to_an_existing_network_is_told_key_by_key() -> None:
    known = deployed_with(config("slurm-gpu"))
    network = VPC | {"securityGroupIds": ["sg-0123456789abcdef0"]}
    keys = [problem.key for problem in impossible(known, config("slurm-gpu", network=network))]
    assert "hyperpod:network.vpcId" in keys


def test_every_deployment_leaves_what_the_next_is_held_against() -> None:
    for stack in ("slurm-gpu", "eks-gpu"):
        left = deployed(stack).outputs[DEPLOYED_WITH]
        assert left == {**deployed_with(config(stack)), writers.OUTPUT: [DEPLOYER]}


def test_a_renamed_stack_is_refused_before_all_of_it_is_replaced() -> None:
    account, settings = {"account": "123456789012", "project": "hyperpod"}, config("dev")
    cluster = {"cluster": settings.settings.cluster_name, "region": settings.region.name}
    left = deployed("dev").outputs
    same = for_stack(stack="dev", **account, **cluster)
    assert left[BUCKET] == same.bucket
    assert list(renamed(left, same)) == []
    assert list(renamed({}, same)) == []
    (problem,) = renamed(left, for_stack(stack="research", **account, **cluster))
    assert "nearly every resource would be replaced" in str(problem)
    assert "pulumi stack rename OLD" in str(problem)


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


@pytest.mark.parametrize(
    ("before", "given", "who", "expected"),
    [
        ([], [], "ci", ""),
        (["ci"], [], "ci", ""),
        (["ci"], [], "colleague", "the deployed bucket lets only .*/ci write the scripts, and .*/colleague deploys"),
        (["ci"], ["ci", "colleague"], "colleague", "let one of those deploy that first"),
        (["ci"], ["ci", "colleague"], "ci", ""),
        (["ci"], ["colleague"], "ci", "this would let only .*/colleague write"),
        (["team/*"], ["team/*"], "team/b", ""),
    ],
)
def test_the_deployer_is_among_those_who_may_write_the_scripts(
    before: list[str], given: list[str], who: str, expected: str
) -> None:
    arns = {writers.OUTPUT: [f"{ROLES}/{one}" for one in before]}
    settings = config("dev", security={"lifecycleWriters": [f"{ROLES}/{one}" for one in given]}).settings
    problems = [str(one) for one in writers.locked_out(settings, arns, f"{ROLES}/{who}")]
    assert bool(problems) == bool(expected)
    assert not problems or (re.search(expected, problems[0]) and writers.KEY in problems[0]), problems


def test_the_writers_stay_whoever_deploys_next() -> None:
    settings = config("dev").settings
    assert writers.writers(settings, {}, "first") == ["first"]
    assert writers.writers(settings, {writers.OUTPUT: ["first"]}, "second") == ["first"]
    both = config("dev", security={"lifecycleWriters": [f"{ROLES}/b", f"{ROLES}/a"]}).settings
    assert writers.writers(both, {writers.OUTPUT: ["first"]}, "second") == [f"{ROLES}/a", f"{ROLES}/b"]
