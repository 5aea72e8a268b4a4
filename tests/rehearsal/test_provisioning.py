"""A HyperPod cluster that does not get its instances, by SageMaker's guide on continuous provisioning."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import pytest

from operations.engine.state import HYPERPOD_CLUSTER
from rehearsal.account import Account, Live, Refused
from rehearsal.account.faults import parse_fault
from rehearsal.account.pod_nodes import open_nodes
from rehearsal.account.provisioning import arriving
from rehearsal.account.quotas import check_instances
from rehearsal.account.updates import check_groups
from rehearsal.existing import prepare
from tests.golden.stacks import account_of, deployed
from tests.support import config, one


@contextmanager
def another(stack: str, kind: str = "", lacks: str = "", **changes: Any) -> Iterator[tuple[Account, str]]:
    """The account of a stack, and a cluster like the stack's in it that was made with a fault, or while AWS lacks a
    type.
    """
    there = one(deployed(stack).state, "hyperpod-cluster")
    with account_of(stack) as account:
        faults = {f"probe={kind}": kind, f"{lacks}=capacity": lacks}
        account.faults = [parse_fault(text) for text, wanted in faults.items() if wanted]
        account.live[HYPERPOD_CLUSTER, there.id].inputs["clusterName"] = "elsewhere"
        made, _ = account.create(HYPERPOD_CLUSTER, "probe", {**there.inputs, **changes}, at=10_000, ready_at=10_000)
        yield account, made


@pytest.mark.parametrize("mode", [None, "Continuous"])
@pytest.mark.parametrize(
    ("stack", "short"),
    [("dev", "2 of 2 instances of workers"), ("eks-gpu", "2 of 2 instances of workers")],
)
def test_a_cluster_is_in_service_without_the_workers_that_aws_lacks(stack: str, short: str, mode: str | None) -> None:
    with another(stack, "capacity", nodeProvisioningMode=mode) as (account, made):
        assert account.read(HYPERPOD_CLUSTER, made)["clusterStatus"] == "InService"
        (said,) = account.awaited()
        assert said.startswith(f"probe is InService without {short}, which HyperPod keeps requesting: We currently")


def test_what_was_missing_comes_without_another_request_of_the_stacks() -> None:
    with another("dev", "capacity") as (account, _):
        assert not account.request_again()
        assert account.awaited()
        account.faults = []
        assert account.request_again()
        assert not account.awaited()
        assert not account.request_again()


@pytest.mark.parametrize(
    ("kind", "said"),
    [("controller-capacity", "do not have sufficient capacity"), ("lifecycle", "did not run successfully")],
)
def test_a_cluster_without_its_slurm_controller_fails(kind: str, said: str) -> None:
    with pytest.raises(Refused, match=said), another("dev", kind):
        pass


def test_nodes_on_eks_whose_scripts_fail_are_made_again_and_again() -> None:
    with another("eks-gpu", "lifecycle") as (account, made):
        assert account.read(HYPERPOD_CLUSTER, made)["clusterStatus"] == "InService"
        said = account.awaited()
        assert [re.findall(r"without (\d) of \1 instances of \w+", one) for one in said] == [["3"], ["2"]]
        assert all("Lifecycle scripts did not run successfully" in one for one in said)
        (first,) = account.failed_scripts()
        assert first.startswith(f"probe ({HYPERPOD_CLUSTER}): nodes of system, workers failed: ")
    with another("dev", "capacity") as (account, _):
        assert account.failed_scripts() == []


def test_no_pod_runs_on_nodes_that_have_not_come() -> None:
    with another("eks-gpu") as (account, _):
        account.now = 10_000
        whole = open_nodes(account)
    with another("eks-gpu", "lifecycle") as (account, _):
        account.now = 10_000
        assert open_nodes(account) == whole / 2


def test_several_controllers_are_refused_where_the_mode_is_asked_for() -> None:
    groups = one(deployed("dev").state, "hyperpod-cluster").inputs["instanceGroups"]
    two = [{**group, "instanceCount": 2} for group in groups]
    with (
        pytest.raises(Refused, match="multi-head node configuration is not supported"),
        another("dev", instanceGroups=two),
    ):
        pass
    # What the API says to those who ask for no mode is nowhere published.
    with another("dev", instanceGroups=two, nodeProvisioningMode=None):
        pass


def test_a_prepared_account_lacks_nothing() -> None:
    with Account("us-west-2") as account:
        prepare(account, config("dev"))
        assert account.awaited() == []


P5, P5E, P5EN = "ml.p5.48xlarge", "ml.p5e.48xlarge", "ml.p5en.48xlarge"


def flexible(*types: str) -> list[dict[str, Any]]:
    """The stack's groups, its workers of these types, in the order in which they are tried."""
    cluster = one(deployed("eks-gpu").state, "hyperpod-cluster")
    groups: list[dict[str, Any]] = deepcopy(cluster.inputs["instanceGroups"])
    for group in groups:
        if group["instanceGroupName"] == "workers":
            del group["instanceType"]
            group["instanceRequirements"] = {"instanceTypes": list(types)}
    return groups


def workers_of(account: Account, made: str) -> tuple[Live, Mapping[str, Any]]:
    live = account.live[HYPERPOD_CLUSTER, made]
    return live, next(one for one in live.inputs["instanceGroups"] if one["instanceGroupName"] == "workers")


def test_nodes_come_as_the_next_type_where_aws_lacks_the_first() -> None:
    with another("eks-gpu", instanceGroups=flexible(P5, P5E)) as (account, made):
        assert arriving(*workers_of(account, made)) == P5
        assert account.awaited() == []
    with another("eks-gpu", lacks=P5, instanceGroups=flexible(P5, P5E)) as (account, made):
        assert arriving(*workers_of(account, made)) == P5E
        assert account.awaited() == [f"probe has {P5E} in workers: AWS lacks {P5}, which is tried first"]
        assert not account.request_again()
    with another("eks-gpu", lacks=P5) as (account, made):
        assert arriving(*workers_of(account, made)) == ""
        (said,) = account.awaited()
        assert said.startswith("probe is InService without 2 of 2 instances of workers")


def test_without_any_accelerators_no_type_helps() -> None:
    with another("eks-gpu", "capacity", instanceGroups=flexible(P5, P5E)) as (account, made):
        assert arriving(*workers_of(account, made)) == ""
        (said,) = account.awaited()
        assert "without 2 of 2 instances of workers" in said


def test_the_quota_of_every_type_has_to_allow_all_nodes() -> None:
    with account_of("eks-gpu") as account:
        account.quotas[P5E] = 1
        with pytest.raises(Refused, match=f"'{P5E} for cluster usage' is 1"):
            check_instances(account, flexible(P5, P5E))


@pytest.mark.parametrize(
    ("stack", "changes", "said"),
    [
        ("eks-gpu", {"instanceGroups": flexible(P5, P5)}, "duplicates"),
        ("eks-gpu", {"instanceGroups": flexible(P5, P5E), "nodeProvisioningMode": None}, "needs NodeProvisioningMode"),
        ("eks-gpu", {"instanceGroups": [{**one, "instanceType": P5} for one in flexible(P5E)]}, "specify one of"),
        ("eks-gpu", {"instanceGroups": [{**one, "instanceType": None} for one in flexible(P5)]}, "specify one of"),
    ],
)
def test_aws_refuses_a_flexible_group_that_its_guide_excludes(stack: str, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(Refused, match=said), another(stack, **changes):
        pass


def test_slurm_has_no_flexible_groups() -> None:
    groups = deepcopy(one(deployed("dev").state, "hyperpod-cluster").inputs["instanceGroups"])
    groups[1]["instanceRequirements"] = {"instanceTypes": [groups[1].pop("instanceType")]}
    with pytest.raises(Refused, match="only supported on Amazon EKS"), another("dev", instanceGroups=groups):
        pass


def test_types_are_added_and_removed_but_not_while_their_nodes_run() -> None:
    with another("eks-gpu", lacks=P5, instanceGroups=flexible(P5, P5E)) as (account, made):
        live, _ = workers_of(account, made)
        check_groups(live, {**live.inputs, "instanceGroups": flexible(P5, P5EN, P5E)})
        check_groups(live, {**live.inputs, "instanceGroups": flexible(P5E)})
        with pytest.raises(Refused, match=f"{P5E} cannot be removed from workers"):
            check_groups(live, {**live.inputs, "instanceGroups": flexible(P5, P5EN)})
        fixed = one(deployed("eks-gpu").state, "hyperpod-cluster").inputs["instanceGroups"]
        with pytest.raises(Refused, match="cannot switch between"):
            check_groups(live, {**live.inputs, "instanceGroups": fixed})
