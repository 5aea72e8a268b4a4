"""A HyperPod cluster that does not get its instances, by SageMaker's guide on continuous provisioning."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from operations.engine.state import HYPERPOD_CLUSTER
from rehearsal.account import Account, Refused
from rehearsal.account.faults import parse_fault
from rehearsal.account.pod_nodes import open_nodes
from rehearsal.existing import prepare
from tests.golden.stacks import account_of, deployed
from tests.support import config, one


@contextmanager
def another(stack: str, kind: str = "", **changes: Any) -> Iterator[tuple[Account, str]]:
    """The account of a stack, and a cluster like the stack's in it that was made with a fault."""
    there = one(deployed(stack).state, "hyperpod-cluster")
    with account_of(stack) as account:
        account.faults = [parse_fault(f"probe={kind}")] if kind else []
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
