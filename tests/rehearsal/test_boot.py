"""A cluster whose nodes could not boot is refused, whatever the order of its requests."""

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest

from operations.engine.state import State
from rehearsal.account import Account
from tests.golden.stacks import account_of, state_of

CLUSTER = "aws-native:sagemaker:Cluster"


@pytest.fixture(scope="module")
def deployed() -> Iterator[tuple[Account, State]]:
    with account_of("dev") as account:
        yield account, state_of("dev")


@pytest.fixture(scope="module")
def deployed_eks() -> Iterator[tuple[Account, State]]:
    with account_of("eks-gpu") as account:
        yield account, state_of("eks-gpu")


def refusal(account: Account, state: State, at: float, named: str = "elsewhere", **changes: Any) -> str:
    """The account's refusal of a cluster like this one at a virtual second. This one is renamed to ``named`` first."""
    cluster = next(r for r in state.values() if r.type == CLUSTER)
    from rehearsal.account import Refused

    # Its roles are for a cluster of that name, which must be unique.
    here = account.live[CLUSTER, cluster.id]
    with pytest.raises(Refused) as refused, patch.dict(here.inputs, clusterName=named):
        account.create(CLUSTER, "probe", {**cluster.inputs, **changes}, at=at)
    return str(refused.value)


@pytest.mark.parametrize(
    ("at", "reason"),
    [
        (1, "it does not exist yet"),
        (3, "may s3:GetObject"),
        (100, "reach neither a NAT gateway nor"),
        (132, "reach neither a NAT gateway nor"),
    ],
)
def test_asked_for_too_early_it_says_what_is_not_ready(deployed: tuple[Account, State], at: float, reason: str) -> None:
    assert reason in refusal(*deployed, at)


def test_a_script_that_is_not_there_is_named(deployed: tuple[Account, State]) -> None:
    account, state = deployed
    groups = groups_of(state)
    config = {**groups[0]["lifeCycleConfig"], "onCreate": "other.sh"}
    said = refusal(account, state, 2000, instanceGroups=[{**groups[0], "lifeCycleConfig": config}, *groups[1:]])
    assert "/other.sh is not there when instances start" in said


def test_a_bucket_of_another_name_is_refused(deployed: tuple[Account, State]) -> None:
    account, state = deployed
    account.create("aws:s3/bucket:Bucket", "other", {"bucket": "my-scripts"})
    cluster = next(r for r in state.values() if r.type == CLUSTER)
    groups = [
        {**g, "lifeCycleConfig": {"sourceS3Uri": "s3://my-scripts/x", "onCreate": "on_create.sh"}}
        for g in cluster.inputs["instanceGroups"]
    ]
    assert "must start with s3://sagemaker-" in refusal(account, state, 2000, instanceGroups=groups)


def test_a_group_without_a_rule_to_itself_fails_the_fabric_check(deployed: tuple[Account, State]) -> None:
    account, state = deployed
    storage = next(r for r in state.values() if r.name == "security-storage")
    cluster = next(r for r in state.values() if r.type == CLUSTER)
    vpc = {**cluster.inputs["vpcConfig"], "securityGroupIds": [storage.id]}
    assert "EFA health checks did not run successfully" in refusal(account, state, 2000, vpcConfig=vpc)


def groups_of(state: State, **changes: Any) -> list[dict[str, Any]]:
    """The cluster's groups, with changes to the first one's Slurm configuration."""
    cluster = next(r for r in state.values() if r.type == CLUSTER)
    first, *rest = cluster.inputs["instanceGroups"]
    return [{**first, "slurmConfig": {**first["slurmConfig"], **changes}}, *rest]


@pytest.mark.parametrize("mode", [{}, {"nodeProvisioningMode": "Continuous"}])
def test_a_strategy_for_slurm_conf_is_refused_with_and_without_a_mode_of_provisioning(
    deployed: tuple[Account, State], mode: dict[str, Any]
) -> None:
    account, state = deployed
    said = refusal(account, state, 2000, orchestrator={"slurm": {"slurmConfigStrategy": "Merge"}}, **mode)
    assert "SlurmConfigStrategy is not supported with Continuous" in said


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"nodeType": "Login"}, "has no InstanceGroup with Controller node type"),
        ({"partitionNames": ["gpu"]}, "Partitions can only be assigned to Compute node types"),
    ],
)
def test_slurm_node_types_that_make_no_cluster_are_refused(
    deployed: tuple[Account, State], changes: dict[str, Any], said: str
) -> None:
    account, state = deployed
    assert said in refusal(account, state, 2000, instanceGroups=groups_of(state, **changes))


def test_two_controller_groups_are_refused(deployed: tuple[Account, State]) -> None:
    account, state = deployed
    first, *rest = groups_of(state)
    groups = [first, {**first, "instanceGroupName": "second"}, *rest]
    assert "2 Controller Groups found" in refusal(account, state, 2000, instanceGroups=groups)


def test_slurm_configured_in_the_bucket_and_in_the_request_is_refused(deployed: tuple[Account, State]) -> None:
    account, state = deployed
    group = groups_of(state)[0]
    bucket, _, prefix = group["lifeCycleConfig"]["sourceS3Uri"].removeprefix("s3://").partition("/")
    file = "aws:s3/bucketObjectv2:BucketObjectv2"
    inputs = {"bucket": bucket, "key": f"{prefix}/provisioning_parameters.json", "content": "{}"}
    account.adopt(file, "legacy", f"{bucket}/{inputs['key']}", inputs)
    said = refusal(account, state, 2000)
    del account.live[file, f"{bucket}/{inputs['key']}"]
    assert "cannot include both a SLURM Orchestrator Config and a provisioning_parameters.json" in said


def test_a_second_cluster_of_one_name_is_refused(deployed: tuple[Account, State]) -> None:
    account, state = deployed
    assert "already exists" in refusal(account, state, 2000, named="hyperpod-dev")


def test_an_invalid_group_is_refused_by_the_published_schema(deployed: tuple[Account, State]) -> None:
    account, state = deployed
    cluster = next(r for r in state.values() if r.type == CLUSTER)
    groups = [{**g, "threadsPerCore": 3} for g in cluster.inputs["instanceGroups"]]
    assert "ThreadsPerCore" in refusal(account, state, 2000, instanceGroups=groups)


@pytest.mark.parametrize(("at", "reason"), [(580, "is not active"), (600, "dependencies are not installed")])
def test_eks_and_its_charts_must_be_there_first(deployed_eks: tuple[Account, State], at: float, reason: str) -> None:
    assert reason in refusal(*deployed_eks, at)


def test_a_control_plane_does_not_reach_addresses_that_its_vpc_got_later(deployed_eks: tuple[Account, State]) -> None:
    account, state = deployed_eks
    block = next(account.find("aws:ec2/vpcIpv4CidrBlockAssociation:VpcIpv4CidrBlockAssociation"))
    ready, block.ready_at = block.ready_at, 700.0
    try:
        assert "does not reach 10.1.0.0/16 yet" in refusal(account, state, 2000)
    finally:
        block.ready_at = ready


# By how groups are set up: LifeCycleConfig of the first one, and what AWS says of it.
MODES = {
    "both scripts": (
        {"onCreate": "on_create.sh", "onInitComplete": "on_create.sh"},
        "OnCreate and OnInitComplete in LifeCycleConfig are mutually exclusive",
    ),
    "no script": ({}, "LifeCycleConfig for instance group controller is incomplete"),
    "a script that is not there": ({"onInitComplete": "other.sh"}, "/other.sh is not there when instances start"),
}


@pytest.mark.parametrize("mode", MODES)
def test_a_group_is_set_up_in_one_mode(deployed: tuple[Account, State], mode: str) -> None:
    account, state = deployed
    first, *rest = groups_of(state)
    given, said = MODES[mode]
    config = {"sourceS3Uri": first["lifeCycleConfig"]["sourceS3Uri"], **given}
    assert said in refusal(account, state, 2000, instanceGroups=[{**first, "lifeCycleConfig": config}, *rest])


def test_eks_needs_the_script_that_does_everything(deployed_eks: tuple[Account, State]) -> None:
    account, state = deployed_eks
    first, *rest = groups_of_eks(state)
    config = {"sourceS3Uri": first["lifeCycleConfig"]["sourceS3Uri"], "onInitComplete": "on_create.sh"}
    said = refusal(account, state, 2000, instanceGroups=[{**first, "lifeCycleConfig": config}, *rest])
    assert "LifeCycleConfig is required for instance group" in said


@pytest.mark.parametrize("percent", [19, 100])
def test_checkpoints_in_memory_take_a_fifth_of_it_or_more(deployed_eks: tuple[Account, State], percent: int) -> None:
    tiers = {"mode": "Enable", "instanceMemoryAllocationPercentage": percent}
    said = refusal(*deployed_eks, 580, tieredStorageConfig=tiers)
    assert ("19 is not in 20 to 100" in said) == (percent == 19)


def test_slurm_has_no_checkpoints_in_memory(deployed: tuple[Account, State]) -> None:
    said = refusal(*deployed, 2000, tieredStorageConfig={"mode": "Enable"})
    assert "only supported for clusters orchestrated by EKS" in said


def groups_of_eks(state: State) -> list[dict[str, Any]]:
    return list(next(r for r in state.values() if r.type == CLUSTER).inputs["instanceGroups"])


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["fs-0123456789abcdef0.fsx.us-west-2.amazonaws.com"], "is not there when instances mount it"),
        (["fs-0123456789abcdef0.fsx.us-west-2.amazonaws.com"] * 2, "has more than one fsxLustreConfig"),
    ],
)
def test_file_systems_that_instances_mount_are_there_before(
    deployed: tuple[Account, State], names: list[str], said: str
) -> None:
    account, state = deployed
    first, *rest = groups_of(state)
    mounts = [{"fsxLustreConfig": {"dnsName": name, "mountName": "abcdefgh"}} for name in names]
    group = {**first, "instanceStorageConfigs": [*first["instanceStorageConfigs"], *mounts]}
    assert said in refusal(account, state, 2000, instanceGroups=[group, *rest])


def test_a_database_of_ones_own_needs_continuous_provisioning_and_a_role_that_reads_its_secret() -> None:
    with account_of("slurm-image") as account:
        state = state_of("slurm-image")
        cluster = next(r for r in state.values() if r.type == CLUSTER)
        assert "only supported for clusters using Continuous" in refusal(
            account, state, 9000, nodeProvisioningMode=None
        )
        policy = next(r for r in state.values() if r.name == "accounting-password")
        account.live[policy.type, policy.id].inputs["policy"] = '{"Statement": []}'
        assert "may not read the secret" in refusal(account, state, 9000)
        database = cluster.inputs["orchestrator"]["slurm"]["accountingDatabase"]
        assert database["name"] == "slurm_acct_db"
