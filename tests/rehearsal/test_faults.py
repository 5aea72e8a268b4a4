"""Whatever fails, the error names the resource and the cause, and a later destroy leaves nothing."""

import os
import pickle
import signal
import traceback
from collections.abc import Callable
from multiprocessing import connection
from typing import NamedTuple

import pytest

from operations.engine.events import Event
from operations.engine.state import ResourceState
from rehearsal.account import RETRIES, Account, Fault, Refused
from rehearsal.account.faults import NO_CAPACITY, SCRIPTS_FAILED, parse_fault
from rehearsal.engines.deployment import destroy, up
from rehearsal.engines.embedded import DeploymentError, Engine
from tests.support import METRICS, few_files, plan, project


def _kinds(stack: str) -> dict[tuple[str, str], ResourceState]:
    """One resource of each type in each component, by both types."""
    state = plan(stack, observability=METRICS).state
    return {(r.type, state[r.parent].type): r for r in state.values() if r.in_account}


@pytest.mark.slow
@pytest.mark.parametrize("orchestrator", ["slurm", "eks"])
def test_gpu_and_trainium_stacks_have_the_same_kinds_of_resources(orchestrator: str) -> None:
    assert _kinds(f"{orchestrator}-gpu").keys() == _kinds(f"{orchestrator}-trainium").keys()


@pytest.mark.slow
@pytest.mark.parametrize("stack", ["slurm-gpu", "eks-gpu"])
def test_a_failure_of_each_kind_of_resource_in_each_component_is_named_and_leaves_nothing_after_destroy(
    stack: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One deployment: before each resource is created, a fork of the process tries what follows its failure."""
    found: dict[tuple[str, str], Aftermath] = {}
    step = Engine._step

    def step_after_its_failure(engine: Engine, resource: ResourceState) -> None:
        # Resources of one type in one component fail alike, so one is enough.
        if resource.in_account and (kind := (resource.type, engine.state[resource.parent].type)) not in found:
            found[kind] = in_a_fork(lambda: aftermath(engine, resource, lambda: step(engine, resource)))
        step(engine, resource)

    monkeypatch.setattr(Engine, "_step", step_after_its_failure)
    loaded = project(stack, observability=METRICS)
    with Account(loaded.config["aws:region"]) as account, few_files():
        assert not up(loaded, account).failure
    assert found.keys() == _kinds(stack).keys()
    for (type_token, _), after in found.items():
        cause = f"{after.name} ({type_token}): create failed: {Fault().error()}"
        assert after.failure.startswith(cause)
        assert (after.kept, after.leftovers) == ([], []), f"after a failure of {after.name}"


class Aftermath(NamedTuple):
    """A failure, and what a destroy of the rest could not delete and left in the account."""

    name: str
    failure: str
    kept: list[str]
    leftovers: list[str]


def aftermath(engine: Engine, resource: ResourceState, make: Callable[[], None]) -> Aftermath:
    account = engine.account
    account.faults = [Fault(target=f"{resource.type}::{resource.name}")]
    with pytest.raises(DeploymentError) as failed:
        make()
    return Aftermath(resource.name, str(failed.value), destroy(engine.state, account), account.leftovers())


def in_a_fork(look: Callable[[], Aftermath]) -> Aftermath:
    """Run a function in a fork of this process, and return its result."""
    reading, writing = os.pipe()
    if not (child := os.fork()):
        try:
            answer: Aftermath | str = look()
        except BaseException:
            answer = traceback.format_exc()
        os.write(writing, pickle.dumps(answer))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        heard = connection.wait([reading], 60)
        if not heard:
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert heard, "nothing heard from a fork in a minute"
        found = pickle.load(pipe)
    assert isinstance(found, Aftermath), found
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["controller-capacity", pytest.param("lifecycle", marks=pytest.mark.slow)])
def test_a_failed_cluster_says_why_and_destroy_leaves_nothing(kind: str) -> None:
    with Account("us-west-2", faults=[parse_fault(f"hyperpod-cluster={kind}")]) as account, few_files():
        failed = up(project(), account)
        expected = {
            "error": "InternalFailure",
            "controller-capacity": NO_CAPACITY,
            "lifecycle": SCRIPTS_FAILED,
        }[kind]
        assert failed.failure.startswith("hyperpod-cluster (aws-native:sagemaker:Cluster): create failed: ")
        assert expected in failed.failure
        assert destroy(failed.state, account) == []
        assert account.leftovers() == []


@pytest.mark.slow
def test_throttling_is_retried_and_does_no_harm() -> None:
    with Account("us-west-2", faults=[parse_fault("aws:ec2/vpc:Vpc=throttling")]) as account, few_files():
        assert not up(project(), account).failure
        assert account.faults[0].hits == 2


@pytest.mark.slow
def test_a_second_up_after_a_failure_finishes_what_the_first_began() -> None:
    with Account("us-west-2", faults=[Fault(target="hyperpod-cluster", count=1)]) as account, few_files():
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
        pytest.param({"lustre-file-systems": 0}, "storage-lustre", "ServiceLimitExceeded", marks=pytest.mark.slow),
        pytest.param({"elastic-ips": 0}, "network-nat", "AddressLimitExceeded", marks=pytest.mark.slow),
    ],
)
def test_a_quota_that_is_too_small_is_named(quota: dict[str, int], resource: str, code: str) -> None:
    with Account("us-west-2", quotas=quota) as account, few_files():
        failed = up(project(), account)
        assert failed.failure.startswith(f"{resource} ")
        assert code in failed.failure
        assert destroy(failed.state, account) == []
        assert account.leftovers() == []


def test_the_nth_create_can_be_made_to_fail_and_fails_at_once() -> None:
    events: list[Event] = []
    with Account("us-west-2", faults=[parse_fault("#1")]) as account, few_files():
        assert "InternalFailure" in up(project(), account, on_event=events.append).failure
    (failed,) = (event.resource for event in events if event.phase == "failed")
    assert failed.finish == failed.start


def test_what_is_gone_already_is_deleted_and_kept_without_complaint() -> None:
    with Account("us-west-2") as account:
        account.delete("aws:iam/role:Role", "gone")
        account.keep("aws:iam/role:Role", "gone")
        assert account.leftovers() == []


def test_faults_strike_deletions_and_expired_credentials_every_call() -> None:
    token = "aws:s3/bucket:Bucket"
    with Account("us-west-2", faults=[Fault(token, "throttling", RETRIES, call="delete")]) as account:
        bucket, _ = account.create(token, "one", {"bucket": "sagemaker-one"})
        with pytest.raises(Refused, match="Rate exceeded"):
            account.delete(token, bucket)
        account.faults = [Fault(kind="expired", nth=account.creates + 1)]
        account.update(token, bucket, {"bucket": "sagemaker-one", "tags": {}})
        with pytest.raises(Refused, match="ExpiredToken"):
            account.create(token, "two", {"bucket": "sagemaker-two"})
        with pytest.raises(Refused, match="ExpiredToken"):
            account.delete(token, bucket)
        account.faults.clear()
        account.delete(token, bucket)
        assert account.leftovers() == []
