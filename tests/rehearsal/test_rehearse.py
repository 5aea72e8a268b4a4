"""Whole rehearsals: every ready-made stack and option comes up, a second run changes nothing, and nothing is left."""

from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import pytest

from components.config import parse
from components.config.checks import MAX_TAGS
from operations.engine.state import SECRET, critical_path
from rehearsal.account import Account
from rehearsal.engines.deployment import Deployment, destroy, refresh, up
from rehearsal.existing import prepare
from rehearsal.outcome import Outcome, _describe, rehearse
from tests.shared import made_once
from tests.support import METRICS, READY_STACKS, few_files, project

VPC = {
    "vpcId": "vpc-0123456789abcdef0",
    "privateSubnetId": "subnet-0123456789abcdef0",
    "securityGroupIds": ["sg-0123456789abcdef0"],
}
PLAN = "arn:aws:sagemaker:us-west-2:123456789012:training-plan/p5-week"
# Each deploys and destroys once, and has several options that do not touch each other. With a deployer's own policies
# the golden stacks come up and go, too (tests/operations/test_policy.py).
OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "two worker groups of different types, one block": (
        "slurm-gpu",
        {
            "workers": [
                {"name": "a", "instanceType": "ml.p5.48xlarge"},
                {"name": "b", "instanceType": "ml.g5.8xlarge"},
            ],
            "network": {"cidr": "10.0.0.0/20", "secondaryCidr": ""},
        },
    ),
    "eu-central-1, linked bucket": (
        "dev",
        {"region": "eu-central-1", "availabilityZoneId": "euc1-az1", "fsx": {"linkedBucket": "training-data"}},
    ),
    "eu-central-1 with EKS, spot": (
        "eks-gpu",
        {
            "region": "eu-central-1",
            "availabilityZoneId": "euc1-az1",
            "workers": [{"name": "w", "instanceType": "ml.p4d.24xlarge", "capacity": "spot", "minCount": 1}],
        },
    ),
    "ap-southeast-1": ("slurm-trainium", {"region": "ap-southeast-1", "availabilityZoneId": "apse1-az2"}),
    "us-gov-west-1 with EKS": ("eks-gpu", {"region": "us-gov-west-1", "availabilityZoneId": "usgw1-az1"}),
    "training plan, benchmarks, metrics, key and as many tags as there may be": (
        "slurm-gpu",
        {
            "workers": [{"name": "w", "instanceType": "ml.p5.48xlarge", "trainingPlanArn": PLAN}],
            "benchmarks": True,
            "observability": METRICS,
            "sshPublicKey": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ4M2V1Q3bP8yQ0hCq7rT9p0e1k2l3m4n5o6p7q8r9s0 me",
            "tags": {f"tag-{number}": "x" for number in range(MAX_TAGS)},
        },
    ),
    "training plans with EKS, aws-auth ConfigMap too, SageMaker's own operators": (
        "eks-gpu",
        {
            "workers": [
                {"name": "w", "instanceType": "ml.p5.48xlarge", "trainingPlanArn": PLAN},
                {"name": "r", "instanceType": "ml.p4d.24xlarge", "count": 4, "trainingPlanArn": PLAN},
            ],
            "authenticationMode": "API_AND_CONFIG_MAP",
            "charts": {"hyperpodTrainingOperator": True, "queues": "task-governance"},
        },
    ),
    "Neuron's scheduler, nothing queued, large": (
        "eks-trainium",
        {"charts": {"neuronScheduler": True, "queues": "none", "mpiOperator": False}, "size": "large"},
    ),
}


def run(stack: str, **settings: Any) -> Outcome:
    loaded = project(stack, **settings)
    checked = parse(loaded.config)
    with Account(checked.region.name) as account, few_files():
        return rehearse(loaded, checked, account)


@dataclass
class Rehearsed:
    """A ready-made stack: deployed, deployed again, refreshed, previewed, and destroyed."""

    outcome: Outcome
    again: Deployment
    drift: dict[str, Any]
    refreshed: Deployment
    refusals: list[str]
    leftovers: list[str]


@cache
def rehearsed(stack: str) -> Rehearsed:
    """Done once for all tests, because they only read it."""
    return made_once(f"rehearsed {stack}", lambda: _rehearse(stack))


def _rehearse(stack: str) -> Rehearsed:
    loaded = project(stack)
    found = Outcome(parse(loaded.config), loaded)
    with Account(loaded.config["aws:region"]) as account:
        first = up(loaded, account)
        _describe(found, first)
        again = up(loaded, account, old=first.state)
        drift = refresh(again.state, account)
        refreshed = up(loaded, account, old=again.state, preview=True)
        gone = destroy(dict(again.state), account)
        return Rehearsed(found, again, drift, refreshed, gone, account.leftovers())


@pytest.mark.parametrize(
    "stack", [pytest.param(s, marks=[] if s == "dev" else [pytest.mark.slow]) for s in READY_STACKS]
)
def test_a_ready_stack_comes_up_stays_unchanged_and_leaves_nothing(stack: str) -> None:
    found = rehearsed(stack)
    assert found.outcome.failures == []
    assert not found.again.failure
    assert found.again.changes == {}
    assert (found.drift, found.refreshed.changes) == ({}, {})
    assert (found.refusals, found.leftovers) == ([], [])


@pytest.mark.slow
@pytest.mark.parametrize("option", OPTIONS)
def test_comes_up_and_leaves_nothing(option: str) -> None:
    stack, settings = OPTIONS[option]
    outcome = run(stack, **settings)
    assert outcome.failures == []
    assert outcome.leftovers == []
    assert outcome.destroyed == outcome.created > 20


# AWS's minimum, by the durations table: VPC, subnet, NAT gateway, route, HyperPod; VPC, its second address block,
# EKS, chart, HyperPod.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("stack", "limit"),
    [
        ("dev", 1093),
        *(
            pytest.param(stack, limit, marks=pytest.mark.slow)
            for stack, limit in (
                ("slurm-gpu", 1093),
                ("slurm-trainium", 1093),
                ("eks-gpu", 1629),
                ("eks-trainium", 1629),
            )
        ),
    ],
)
def test_the_critical_path_is_within_5_percent_of_what_aws_imposes(stack: str, limit: int) -> None:
    outcome = rehearsed(stack).outcome
    found = outcome.as_json()
    assert limit * 0.95 <= found["cluster"]["seconds"] <= limit
    assert found["cluster"]["critical_path"][0] == "network-vpc"
    assert found["cluster"]["critical_path"][-1] == "hyperpod-cluster"
    # Kueue's pods run on the nodes, so it can only come after them, and what is in its queues after it.
    after = found["after_cluster"]
    # Nor may anything use volumes before they can be detached again.
    assert all(name.startswith(("training-", "hyperpod-volumes")) for name in after["critical_path"])
    assert bool(after["critical_path"]) is bool(after["seconds"]) is stack.startswith("eks")
    assert found["cluster"]["critical_path"] + after["critical_path"] == found["critical_path"]
    assert found["cluster"]["seconds"] + after["seconds"] == found["total_seconds"]
    times = [(step.start, step.finish) for step in outcome.critical_path]
    assert all(before[1] == after[0] for before, after in pairwise(times))


@pytest.mark.slow
def test_destroy_empties_the_bucket_including_versions_and_delete_markers_of_other_objects() -> None:
    loaded = project()
    with Account("us-west-2") as account:
        deployment = up(loaded, account)
        bucket, s3 = deployment.outputs["lifecycleBucket"], account.client("s3")
        for body in (b"one", b"two"):
            s3.put_object(Bucket=bucket, Key="notes.txt", Body=body)
        s3.delete_object(Bucket=bucket, Key="notes.txt")
        listed = s3.list_object_versions(Bucket=bucket, Prefix="notes")
        assert (len(listed["Versions"]), len(listed["DeleteMarkers"])) == (2, 1)
        assert destroy(deployment.state, account) == []
        assert account.leftovers() == []


@pytest.mark.slow
def test_a_protected_stack_refuses_destroy_and_keeps_everything() -> None:
    with Account("us-west-2") as account, few_files():
        deployment = up(project(protect=True), account)
        count = len(deployment.state)
        refusals = destroy(deployment.state, account)
        assert [r.split(" ")[0] for r in refusals] == ["storage-lustre", "hyperpod-cluster"]
        assert len(deployment.state) == count
        unprotected = up(project(protect=False), account, old=deployment.state)
        assert destroy(unprotected.state, account) == []
        assert account.leftovers() == []


@pytest.mark.slow
def test_a_retained_file_system_stays_and_is_no_leftover() -> None:
    outcome = run("dev", network=VPC, fsx={"retainOnDelete": True})
    assert outcome.failures == []
    assert outcome.leftovers == []
    assert [kept.split(" ")[0] for kept in outcome.retained] == ["storage-lustre"]


@pytest.mark.slow
def test_a_kept_file_system_serves_the_next_stack_which_neither_changes_nor_deletes_it() -> None:
    token, alerts = "aws:fsx/lustreFileSystem:LustreFileSystem", {"email": "ops@example.com"}
    first = project(network=VPC, fsx={"retainOnDelete": True, "storageGiB": 4800, "throughput": 500})
    with Account("us-west-2") as account, few_files():
        prepare(account, parse(first.config))
        made = up(first, account)
        ((_, kept),) = [key for key in account.live if key[0] == token]
        assert destroy(made.state, account) == []
        inputs = dict(account.live[token, kept].inputs)

        fsx = {"fileSystemId": kept, "linkedBucket": "training-data"}
        second = project("slurm-gpu", network=VPC, fsx=fsx, alerts=alerts)
        prepare(account, parse(second.config))
        taken = up(second, account)
        assert taken.failure == ""
        assert taken.outputs["fsxId"] == kept
        assert taken.outputs["fsxMountName"] == account.live[token, kept].outputs["mountName"]
        (link,) = account.find("aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation", fileSystemId=kept)
        (full,) = [one for one in taken.state.values() if one.name == "alerts-fsx-capacity"]
        assert full.inputs["threshold"] == 4800 * 2**30 // 10
        again = up(second, account, old=taken.state, old_outputs=taken.outputs)
        assert (again.failure, again.changes) == ("", {})
        without = project("slurm-gpu", network=VPC, fsx={"fileSystemId": kept}, alerts=alerts)
        changed = up(without, account, old=again.state, old_outputs=again.outputs)
        assert [account.live.get((link.type, link.id)), changed.failure] == [None, ""]
        assert destroy(changed.state, account) == []
        # HyperPod mounts it by name where its image sets Slurm up. It has been there since before this command.
        account.live[token, kept].ready_at = 0.0
        by_image = up(project("slurm-gpu", network=VPC, fsx={"fileSystemId": kept}, slurm={"setup": "image"}), account)
        (cluster,) = [one for one in by_image.state.values() if one.type == "aws-native:sagemaker:Cluster"]
        mounts = [group["instanceStorageConfigs"][-1] for group in cluster.inputs["instanceGroups"]]
        name = account.live[token, kept].outputs["dnsName"]
        assert {mount["fsxLustreConfig"]["dnsName"] for mount in mounts} == {name}
        assert destroy(by_image.state, account) == []
        assert account.live[token, kept].inputs == inputs
        assert account.leftovers() == []


@pytest.mark.slow
def test_secrets_are_hidden_from_every_printed_form() -> None:
    found = rehearsed("eks-gpu").outcome.as_json()
    assert found["outputs"]["kubeconfig"] == SECRET
    assert "get-token" not in str(found)


def test_what_exists_before_is_untouched_and_its_loss_is_reported() -> None:
    loaded = project(network=VPC)
    checked = parse(loaded.config)
    with Account("us-west-2") as account:
        prepare(account, checked)
        assert account.leftovers() == []
        account.client("ec2").revoke_security_group_egress(
            GroupId=VPC["securityGroupIds"][0],
            IpPermissions=[{"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": VPC["securityGroupIds"][0]}]}],
        )
        account.client("ec2").delete_security_group(GroupId=VPC["securityGroupIds"][0])
        assert account.leftovers() == [f"ec2 security-groups {VPC['securityGroupIds'][0]} is gone, which was not ours"]


def test_critical_path_of_nothing_is_empty() -> None:
    assert critical_path({}) == []
