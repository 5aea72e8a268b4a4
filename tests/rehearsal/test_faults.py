"""Whatever fails, the error names the resource and the cause, and destroy afterwards leaves nothing."""

from __future__ import annotations

import pytest

from rehearsal.account import Account, Fault
from rehearsal.account.faults import parse_fault
from rehearsal.engines.deployment import destroy, up
from stack.state import ResourceState
from tests.support import plan, project

PARTS = 3


def _kinds(stack: str) -> dict[tuple[str, str], ResourceState]:
    """One resource of each type in each component, by the two types."""
    state = plan(stack, observability=True).state
    return {(r.type, state[r.parent].type): r for r in state.values() if r.in_account}


@pytest.mark.slow
@pytest.mark.parametrize("orchestrator", ["slurm", "eks"])
def test_gpu_and_trainium_stacks_have_the_same_kinds_of_resources(orchestrator: str) -> None:
    assert _kinds(f"{orchestrator}-gpu").keys() == _kinds(f"{orchestrator}-trainium").keys()


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("stack", ["slurm-gpu", "eks-gpu"])
@pytest.mark.parametrize("part", range(PARTS))
def test_a_failure_of_each_kind_of_resource_in_each_component_is_named_and_leaves_nothing_after_destroy(
    stack: str, part: int
) -> None:
    loaded = project(stack, observability=True)
    # Resources of one type in one component fail alike: one speaks for all of them.
    targets = sorted((r.type, r.name) for r in _kinds(stack).values())[part::PARTS]
    assert len(targets) > 40 / PARTS
    with Account(loaded.config["aws:region"]) as account:
        for type_token, name in targets:
            account.faults = [Fault(target=f"{type_token}::{name}")]
            failed = up(loaded, account)
            assert failed.failure.startswith(f"{name} ({type_token}): create failed: InternalFailure: injected failure")
            assert destroy(failed.state, account) == []
            assert account.leftovers() == [], f"after a failure of {name}"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["capacity", pytest.param("lifecycle", marks=pytest.mark.slow)])
def test_a_failed_cluster_says_why_and_destroy_leaves_nothing(kind: str) -> None:
    with Account("us-west-2", faults=[parse_fault(f"hyperpod-cluster={kind}")]) as account:
        failed = up(project(), account)
        expected = {
            "error": "InternalFailure",
            "capacity": "InsufficientInstanceCapacity",
            "lifecycle": "LifecycleConfig/",
        }[kind]
        assert failed.failure.startswith("hyperpod-cluster (aws-native:sagemaker:Cluster): create failed: ")
        assert expected in failed.failure
        assert destroy(failed.state, account) == []
        assert account.leftovers() == []


@pytest.mark.slow
def test_throttling_is_retried_and_does_no_harm() -> None:
    with Account("us-west-2", faults=[parse_fault("aws:ec2/vpc:Vpc=throttling")]) as account:
        assert not up(project(), account).failure
        assert account.faults[0].hits == 2


@pytest.mark.slow
def test_a_second_up_after_a_failure_finishes_what_the_first_began() -> None:
    with Account("us-west-2", faults=[Fault(target="hyperpod-cluster", count=1)]) as account:
        failed = up(project(), account)
        assert failed.failure
        second = up(project(), account, old=failed.state)
        assert not second.failure
        assert {urn.rsplit("::", 1)[1] for urn in second.changes} >= {"hyperpod-cluster"}
        assert "update" not in second.changes.values()
        assert destroy(second.state, account) == []
        assert account.leftovers() == []


@pytest.mark.parametrize(
    ("quota", "resource", "code"),
    [
        pytest.param({"ml.g5.16xlarge": 0}, "hyperpod-cluster", "ResourceLimitExceeded", marks=pytest.mark.slow),
        ({"vpcs": 0}, "network-vpc", "VpcLimitExceeded"),
        pytest.param({"elastic-ips": 0}, "network-nat", "AddressLimitExceeded", marks=pytest.mark.slow),
    ],
)
def test_a_quota_that_is_too_small_is_named(quota: dict[str, int], resource: str, code: str) -> None:
    with Account("us-west-2", quotas=quota) as account:
        failed = up(project(), account)
        assert failed.failure.startswith(f"{resource} ")
        assert code in failed.failure
        assert destroy(failed.state, account) == []
        assert account.leftovers() == []


def test_the_nth_create_can_be_made_to_fail() -> None:
    with Account("us-west-2", faults=[parse_fault("#1")]) as account:
        assert "injected failure" in up(project(), account).failure


def test_an_unknown_kind_of_failure_is_refused() -> None:
    with pytest.raises(ValueError, match="one of error, throttling, capacity, lifecycle"):
        parse_fault("network-vpc=explosion")
