"""The policy of task governance becomes what the program says: created, changed, left alone, taken away."""

from contextlib import nullcontext
from typing import Any

import pytest

from components.kubernetes.teams.compute_quotas import DESCRIPTION
from operations import target
from operations.commands import deploy as commands
from operations.deployment import deploy
from operations.deployment.leftovers import Audit
from operations.failures import Exit, Failure
from operations.kubernetes import governance
from operations.outcome import Outcome
from operations.target import Target
from tests.operations.aws import StubbedAws, ended, run, stack

ARN = "arn:aws:sagemaker:us-west-2:123456789012:cluster/abcdef123456"
QUEUES = 'hyperpod:charts={"queues": "task-governance"}'
SCHEDULER = f"{ARN.replace('cluster/', 'cluster-scheduler-config/')}-1"
REPORT = deploy.Report(stack="eks-gpu", command="destroy", engine="any", succeeded=True, audit=Audit())
CLASSES = [{"Name": name, "Weight": weight} for name, weight in governance.PRIORITIES.items()]


def governed(aws: StubbedAws, *settings: str) -> Target:
    aws.answer(
        "sagemaker",
        "describe_cluster",
        {"ClusterArn": ARN, "ClusterName": "eks-gpu", "ClusterStatus": "InService", "InstanceGroups": []},
    )
    return stack(aws, "eks-gpu", QUEUES, *settings)


def listed(aws: StubbedAws, kind: str, *summaries: dict[str, Any]) -> None:
    key = {"cluster_scheduler_configs": "ClusterSchedulerConfigSummaries", "compute_quotas": "ComputeQuotaSummaries"}
    aws.answer("sagemaker", f"list_{kind}", {key[kind]: list(summaries)})


def policy(status: str = "Created", **more: Any) -> dict[str, Any]:
    return {
        "ClusterSchedulerConfigArn": SCHEDULER,
        "ClusterSchedulerConfigId": "policyid1234",
        "Name": "eks-gpu-policy",
        "ClusterSchedulerConfigVersion": 1,
        "Status": status,
        "CreationTime": 1,
        **more,
    }


def quota(status: str = "Created", team: str = "training", **more: Any) -> dict[str, Any]:
    return {
        "ComputeQuotaArn": ARN.replace("cluster/", "compute-quota/"),
        "ComputeQuotaId": "quotaid12345",
        "Name": f"eks-gpu-{team}",
        "ComputeQuotaVersion": 3,
        "Status": status,
        "CreationTime": 1,
        "ComputeQuotaTarget": {"TeamName": team},
        **more,
    }


def test_the_first_run_creates_the_policy(aws: StubbedAws) -> None:
    chosen = governed(aws)
    listed(aws, "cluster_scheduler_configs")
    made = policy()
    keys = {key: made[key] for key in ("ClusterSchedulerConfigArn", "ClusterSchedulerConfigId")}
    expected = {"PriorityClasses": CLASSES, "FairShare": "Enabled"}
    asked = {"Name": "eks-gpu-policy", "ClusterArn": ARN, "SchedulerConfig": expected}
    aws.answer("sagemaker", "create_cluster_scheduler_config", keys, **asked)
    aws.answer("sagemaker", "describe_cluster_scheduler_config", made)
    assert governance.apply(chosen, False, pause=0).changes == ["create policy eks-gpu-policy"]
    aws.assert_all_asked()


def test_a_second_run_changes_nothing_that_is_as_it_should_be(aws: StubbedAws) -> None:
    chosen = governed(aws)
    same = {"PriorityClasses": CLASSES, "FairShare": "Enabled", "IdleResourceSharing": "Enabled"}
    listed(aws, "cluster_scheduler_configs", policy())
    aws.answer("sagemaker", "describe_cluster_scheduler_config", policy(SchedulerConfig=same))
    assert governance.apply(chosen, False, pause=0) == Outcome()
    aws.assert_all_asked()


@pytest.mark.parametrize("status", ["Created", "UpdateFailed"])
def test_what_differs_or_could_not_be_updated_is_updated(aws: StubbedAws, status: str) -> None:
    chosen = governed(aws)
    there = {"PriorityClasses": CLASSES[:1] if status == "Created" else CLASSES, "FairShare": "Enabled"}
    listed(aws, "cluster_scheduler_configs", policy("Updating"))
    listed(aws, "cluster_scheduler_configs", policy(status))
    aws.answer("sagemaker", "describe_cluster_scheduler_config", policy(status, SchedulerConfig=there))
    answer = {"ClusterSchedulerConfigArn": SCHEDULER, "ClusterSchedulerConfigVersion": 2}
    asked = {"TargetVersion": 1, "ClusterSchedulerConfigId": "policyid1234", "SchedulerConfig": governance.wanted()}
    aws.answer("sagemaker", "update_cluster_scheduler_config", answer, **asked)
    aws.answer("sagemaker", "describe_cluster_scheduler_config", policy("Updated"))
    assert governance.apply(chosen, False, pause=0).changes == ["update policy eks-gpu-policy"]
    aws.assert_all_asked()


@pytest.mark.parametrize("there", [[], [{}], [{"SchedulerConfig": governance.wanted()}]])
def test_a_dry_run_says_what_it_would_do_and_changes_nothing(aws: StubbedAws, there: list[dict[str, Any]]) -> None:
    chosen = governed(aws)
    listed(aws, "cluster_scheduler_configs", *(policy() for _ in there))
    for one in there:
        aws.answer("sagemaker", "describe_cluster_scheduler_config", policy(**one))
    expected = [[], ["update policy eks-gpu-policy"], ["create policy eks-gpu-policy"]]
    configured = any("SchedulerConfig" in one for one in there)
    assert governance.apply(chosen, True).changes == (() if configured else expected[1 if there else 2])
    aws.assert_all_asked()


def test_what_sagemaker_could_not_bring_into_the_cluster_is_said_with_its_reason(aws: StubbedAws) -> None:
    chosen = governed(aws)
    listed(aws, "cluster_scheduler_configs")
    made = policy("CreateFailed", FailureReason="no Kueue")
    keys = {key: made[key] for key in ("ClusterSchedulerConfigArn", "ClusterSchedulerConfigId")}
    aws.answer("sagemaker", "create_cluster_scheduler_config", keys)
    aws.answer("sagemaker", "describe_cluster_scheduler_config", made)
    with pytest.raises(Failure, match="no Kueue") as failed:
        governance.apply(chosen, False, pause=0)
    assert "taskgovernance" in failed.value.hint


def test_remove_leaves_the_quotas_of_the_stack_and_of_others_and_takes_those_that_it_made_before(
    aws: StubbedAws,
) -> None:
    chosen = governed(aws)
    by_hand = quota(team="astronomy", Name="made-by-hand")
    before = quota("Deleting", team="speech", ComputeQuotaId="quotaid67890")
    listed(aws, "compute_quotas", quota(), by_hand, before, quota("Deleted", team="gone"))
    aws.answer("sagemaker", "describe_compute_quota", quota(Description=DESCRIPTION), ComputeQuotaId="quotaid12345")
    aws.answer("sagemaker", "describe_compute_quota", before, ComputeQuotaId="quotaid67890")
    listed(aws, "cluster_scheduler_configs", policy())
    for status in ("Deleting", "Deleting", "Deleted"):
        listed(aws, "compute_quotas", quota(status, team="speech"))
    aws.answer("sagemaker", "delete_cluster_scheduler_config", {}, ClusterSchedulerConfigId="policyid1234")
    listed(aws, "cluster_scheduler_configs")
    assert governance.remove(chosen, pause=0) == ["quota eks-gpu-speech", "policy eks-gpu-policy"]
    aws.assert_all_asked()


def test_what_cannot_be_deleted_is_said(aws: StubbedAws) -> None:
    chosen = governed(aws)
    listed(aws, "compute_quotas")
    listed(aws, "cluster_scheduler_configs", policy())
    aws.answer("sagemaker", "delete_cluster_scheduler_config", {})
    listed(aws, "cluster_scheduler_configs", policy("DeleteFailed"))
    with pytest.raises(Failure, match="policy eks-gpu-policy: DeleteFailed"):
        governance.remove(chosen, pause=0)


@pytest.mark.parametrize("description", ["", DESCRIPTION])
def test_a_deploy_stops_at_quotas_that_it_would_make_a_second_time(aws: StubbedAws, description: str) -> None:
    chosen = governed(aws)
    listed(aws, "compute_quotas", quota())
    aws.answer("sagemaker", "describe_compute_quota", quota(Description=description))
    if description:
        governance.begin(chosen)
    else:
        with pytest.raises(Failure, match="made eks-gpu-training") as refused:
            governance.begin(chosen)
        assert "apply eks-gpu --remove-policy" in refused.value.hint
    aws.assert_all_asked()


def test_a_deploy_begins_with_that(aws: StubbedAws, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def begin(chosen: Target) -> None:
        asked.append(chosen.stack)
        raise Failure("stop here")

    monkeypatch.setattr(governance, "begin", begin)
    chosen = stack(aws, "eks-gpu", QUEUES)
    monkeypatch.setattr(target, "load", lambda name, overrides=None: chosen)
    with pytest.raises(Failure, match="stop here"):
        commands.deploy_command("eks-gpu", yes=True)
    assert asked == ["eks-gpu"]


def test_a_destroy_removes_the_policy_first_where_there_may_be_any(
    aws: StubbedAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    did: list[str] = []

    def remove(chosen: Target) -> list[str]:
        did.append("remove")
        return ["policy eks-gpu-policy"]

    def destroy(chosen: Target, engine: Any, **more: Any) -> deploy.Report:
        did.append("destroy")
        return REPORT

    monkeypatch.setattr(governance, "remove", remove)
    monkeypatch.setattr(deploy, "destroy", destroy)
    monkeypatch.setattr(commands, "open_engine", lambda *all_of_it, **more: nullcontext((None, None)))
    chosen = governed(aws)
    monkeypatch.setattr(target, "load", lambda name, overrides=None: chosen)
    code, _, err = run("destroy", "eks-gpu", "--yes")
    assert (code, did) == (Exit.GOOD, ["remove", "destroy"])
    assert "policy eks-gpu-policy: deleted" in err


def test_without_a_cluster_or_task_governance_a_destroy_has_nothing_to_remove(aws: StubbedAws) -> None:
    aws.refuse("sagemaker", "describe_cluster", "ResourceNotFound", "Cluster with name eks-gpu not found")
    assert governance.end(stack(aws, "eks-gpu", QUEUES)) == []
    aws.assert_all_asked()
    assert governance.end(stack(aws, "eks-gpu")) == governance.end(stack(aws, "dev")) == []


@pytest.mark.parametrize("name", ["dev", "eks-gpu"])
def test_a_stack_without_it_is_told_the_key(name: str) -> None:
    _, err = ended(Exit.BAD_INPUT, "apply", name, "--part", "governance")
    assert "hyperpod:charts.queues" in err


@pytest.mark.parametrize("status", ["CreateFailed", "CreateRollbackFailed", "UpdateRollbackFailed", "DeleteFailed"])
def test_what_failed_for_good_is_deleted_and_made_again(aws: StubbedAws, status: str) -> None:
    """SageMaker Developer Guide, HyperPod task governance, "Troubleshoot", Policies."""
    chosen = governed(aws)
    listed(aws, "cluster_scheduler_configs", policy(status))
    aws.answer("sagemaker", "delete_cluster_scheduler_config", {}, ClusterSchedulerConfigId="policyid1234")
    listed(aws, "cluster_scheduler_configs", policy("Deleting"))
    listed(aws, "cluster_scheduler_configs", policy("Deleted"))
    keys = {key: policy()[key] for key in ("ClusterSchedulerConfigArn", "ClusterSchedulerConfigId")}
    aws.answer("sagemaker", "create_cluster_scheduler_config", keys, Name="eks-gpu-policy")
    aws.answer("sagemaker", "describe_cluster_scheduler_config", policy())
    assert governance.apply(chosen, False, pause=0).changes == ["create policy eks-gpu-policy"]
    aws.assert_all_asked()
