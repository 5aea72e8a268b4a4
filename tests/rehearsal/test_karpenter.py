"""HyperPod's managed Karpenter: what the embedded account takes of it, and that updates keep the nodes it has added."""

from copy import deepcopy
from typing import Any

import pytest

from operations.engine.state import HYPERPOD_CLUSTER
from rehearsal.account import Account, Refused
from rehearsal.engines.deployment import up
from tests.golden.stacks import account_of, state_of
from tests.support import few_files, of_type, project

CLASS = "kubernetes:karpenter.sagemaker.amazonaws.com/v1:HyperpodNodeClass"
POOL = "kubernetes:karpenter.sh/v1:NodePool"
WORKERS = {"name": "workers", "instanceType": "ml.p5.48xlarge", "count": 2}
SYSTEM = {"name": "system", "instanceType": "ml.m5.xlarge"}
LATER = 1e6
SPARE = {**WORKERS, "name": "spare", "count": 8, "scaling": "demand"}


@pytest.fixture
def account() -> Account:
    return account_of("eks-teams")


def inputs(kind: str) -> dict[str, Any]:
    return deepcopy(of_type(state_of("eks-teams"), kind)[0].inputs)


def refusal(account: Account, kind: str, changed: dict[str, Any]) -> str:
    changed["metadata"] = {"name": "another"}
    with pytest.raises(Refused) as refused:
        account.create(kind, "another", changed, at=LATER)
    return str(refused.value)


@pytest.mark.parametrize(
    ("groups", "reason"),
    [
        ([], "0 items, 1 to 10"),
        ([f"g{number}" for number in range(11)], "11 items"),
        (["nobody"], "no instance group nobody"),
        (["fast"], "has onStartDeepHealthChecks"),
    ],
)
def test_a_node_class_names_groups_that_karpenter_can_scale(account: Account, groups: list[str], reason: str) -> None:
    assert reason in refusal(account, CLASS, {**inputs(CLASS), "spec": {"instanceGroups": groups}})


def test_a_node_pool_has_a_class_and_the_labels_of_the_guide(account: Account) -> None:
    other = inputs(POOL)
    other["spec"]["template"]["spec"]["nodeClassRef"]["name"] = "nobody"
    assert "no node class nobody" in refusal(account, POOL, other)
    odd = inputs(POOL)
    odd["spec"]["template"]["spec"]["requirements"] = [
        {"key": "karpenter.k8s.aws/instance-family", "operator": "Exists"}
    ]
    assert "instance-family is not supported" in refusal(account, POOL, odd)


def test_without_karpenter_nobody_knows_its_objects(account: Account) -> None:
    next(account.find(HYPERPOD_CLUSTER)).inputs["autoScaling"]["mode"] = "Disable"
    assert "no matches for kind NodePool" in refusal(account, POOL, inputs(POOL))


@pytest.mark.slow
def test_an_update_keeps_the_nodes_that_karpenter_has_added_and_what_karpenter_needs() -> None:
    """UpdateCluster terminates the nodes above a group's count."""
    demand = {"autoscaling": {"enabled": True}}
    with Account("us-west-2") as account, few_files():
        first = up(project("eks-gpu", workers=[WORKERS, SYSTEM, SPARE], **demand), account)
        assert counts(account) == {"workers": 2, "system": 3, "spare": 0}
        group = next(g for g in cluster_of(account).inputs["instanceGroups"] if g["instanceGroupName"] == "spare")
        group["instanceCount"] = 5
        labelled = {**WORKERS, "labels": {"a": "b"}}
        then = project("eks-gpu", workers=[labelled, SYSTEM, SPARE], **demand)
        second = up(then, account, old=first.state, old_outputs=first.outputs)
        assert not second.failure
        assert counts(account) == {"workers": 2, "system": 3, "spare": 5}
        refuses_without_what_the_guide_names(account)


def refuses_without_what_the_guide_names(account: Account) -> None:
    cluster = cluster_of(account)
    cases: dict[str, dict[str, Any]] = {
        "NodeProvisioningMode Continuous": {"nodeProvisioningMode": None},
        "NodeRecovery Automatic": {"nodeRecovery": "None"},
        "a ClusterRole": {"clusterRole": None},
        "cannot assume": {"clusterRole": cluster.inputs["instanceGroups"][0]["executionRole"]},
    }
    for reason, changes in cases.items():
        with pytest.raises(Refused, match=reason):
            account.update(HYPERPOD_CLUSTER, cluster.id, {**cluster.inputs, **changes}, at=LATER)
    policies = account.find("aws:iam/rolePolicy:RolePolicy")
    account.delete("aws:iam/rolePolicy:RolePolicy", next(p.id for p in policies if "karpenter" in p.inputs["role"]))
    with pytest.raises(Refused, match="may not sagemaker:BatchAddClusterNodes"):
        account.update(HYPERPOD_CLUSTER, cluster.id, cluster.inputs, at=LATER)


def cluster_of(account: Account) -> Any:
    return next(account.find(HYPERPOD_CLUSTER))


def counts(account: Account) -> dict[str, int]:
    return {g["instanceGroupName"]: int(g["instanceCount"]) for g in cluster_of(account).inputs["instanceGroups"]}
