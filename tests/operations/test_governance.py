"""Task governance becomes what the configuration says: created, changed, left alone, taken away."""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import Any

import pytest

from operations import target
from operations.commands import deploy as commands
from operations.deployment import deploy
from operations.deployment.leftovers import Audit
from operations.kubernetes import governance
from operations.target import Target
from stack.failures import Exit, Failure
from tests.operations.aws import StubbedAws, run, stack

ARN = "arn:aws:sagemaker:us-west-2:123456789012:cluster/abcdef123456"
QUEUES = 'hyperpod:charts={"queues": "task-governance"}'
TEAMS = 'hyperpod:teams=[{"name": "vision", "accelerators": 4}, {"name": "speech"}]'
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


def created(aws: StubbedAws, kind: str, made: dict[str, Any], **expected: Any) -> None:
    keys = {k: v for k, v in made.items() if k.endswith(("Arn", "Id"))}
    aws.answer("sagemaker", f"create_{kind}", keys, **expected)
    aws.answer("sagemaker", f"describe_{kind}", made)


def test_teams_get_the_devices_they_were_promised_and_may_lend_and_borrow(aws: StubbedAws) -> None:
    chosen = stack(aws, "eks-gpu", QUEUES, TEAMS)
    found = {name: configuration for kind, name, configuration, _ in governance.wanted(chosen.config)}
    assert list(found) == ["eks-gpu-policy", "eks-gpu-vision", "eks-gpu-speech"]
    devices = {name: one["ComputeQuotaResources"] for name, one in found.items() if "ComputeQuotaResources" in one}
    assert devices == {
        "eks-gpu-vision": [{"InstanceType": "ml.p5.48xlarge", "Accelerators": 4}],
        "eks-gpu-speech": [{"InstanceType": "ml.p5.48xlarge", "Accelerators": 12}],
    }


def test_the_first_run_creates_the_policy_then_each_quota(aws: StubbedAws) -> None:
    chosen = governed(aws)
    listed(aws, "compute_quotas")
    listed(aws, "cluster_scheduler_configs")
    created(aws, "cluster_scheduler_config", policy(), Name="eks-gpu-policy", ClusterArn=ARN)
    listed(aws, "compute_quotas")
    created(aws, "compute_quota", quota(), ComputeQuotaTarget={"TeamName": "training", "FairShareWeight": 50})
    changes = governance.apply(chosen, pause=0)
    assert [change.done for change in changes] == ["created", "created"]
    aws.assert_all_asked()


def test_a_second_run_changes_only_what_differs(aws: StubbedAws) -> None:
    chosen = governed(aws)
    same = {"PriorityClasses": CLASSES, "FairShare": "Enabled", "IdleResourceSharing": "Enabled"}
    listed(aws, "compute_quotas", quota())
    listed(aws, "cluster_scheduler_configs", policy())
    aws.answer("sagemaker", "describe_cluster_scheduler_config", policy(SchedulerConfig=same))
    listed(aws, "compute_quotas", quota())
    fewer = {"ComputeQuotaResources": [{"InstanceType": "ml.p5.48xlarge", "Accelerators": 8}]}
    aws.answer("sagemaker", "describe_compute_quota", quota(ComputeQuotaConfig=fewer))
    answer = {"ComputeQuotaArn": quota()["ComputeQuotaArn"], "ComputeQuotaVersion": 4}
    aws.answer("sagemaker", "update_compute_quota", answer, TargetVersion=3, ComputeQuotaId="quotaid12345")
    aws.answer("sagemaker", "describe_compute_quota", quota("Updated"))
    changes = governance.apply(chosen, pause=0)
    assert [change.done for change in changes] == ["unchanged", "updated"]
    aws.assert_all_asked()


def test_what_sagemaker_could_not_bring_into_the_cluster_is_said_with_its_reason(aws: StubbedAws) -> None:
    chosen = governed(aws)
    listed(aws, "compute_quotas")
    listed(aws, "cluster_scheduler_configs")
    created(aws, "cluster_scheduler_config", policy("CreateFailed", FailureReason="no Kueue"))
    with pytest.raises(Failure, match="no Kueue") as failed:
        governance.apply(chosen, pause=0)
    assert "taskgovernance" in failed.value.hint


def test_remove_takes_the_quotas_first_and_waits_for_each(aws: StubbedAws) -> None:
    chosen = governed(aws)
    listed(aws, "compute_quotas", quota())
    listed(aws, "compute_quotas", quota())
    aws.answer("sagemaker", "delete_compute_quota", {})
    for status in ("Deleting", "Deleting", "Deleted"):
        listed(aws, "compute_quotas", quota(status))
    # Somebody else has asked for it.
    listed(aws, "cluster_scheduler_configs", policy("Deleting"))
    listed(aws, "cluster_scheduler_configs")
    done = [change.what for change in governance.remove(chosen, pause=0)]
    assert done == ["quota eks-gpu-training", "policy eks-gpu-policy"]
    aws.assert_all_asked()


def test_what_cannot_be_deleted_is_said(aws: StubbedAws) -> None:
    chosen = governed(aws)
    listed(aws, "compute_quotas", quota())
    listed(aws, "compute_quotas", quota())
    aws.answer("sagemaker", "delete_compute_quota", {})
    listed(aws, "compute_quotas", quota("DeleteFailed"))
    with pytest.raises(Failure, match="quota eks-gpu-training: DeleteFailed"):
        governance.remove(chosen, pause=0)


def test_a_destroy_removes_them_first_where_there_may_be_any(
    aws: StubbedAws, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    did: list[str] = []
    change = governance.Change(what="quota eks-gpu-training", done="deleted")

    def remove(chosen: Target) -> list[governance.Change]:
        did.append("remove")
        return [change]

    def destroy(chosen: Target, engine: Any, **more: Any) -> deploy.Report:
        did.append("destroy")
        return REPORT

    monkeypatch.setattr(governance, "remove", remove)
    monkeypatch.setattr(deploy, "destroy", destroy)
    monkeypatch.setattr(commands, "open_engine", lambda *all_of_it, **more: nullcontext((None, None)))
    chosen = governed(aws)
    monkeypatch.setattr(target, "load", lambda name, overrides=None: chosen)
    code, _, err = run(capsys, "destroy", "eks-gpu", "--yes")
    assert (code, did) == (Exit.GOOD, ["remove", "destroy"])
    assert "quota eks-gpu-training: deleted" in err


def test_without_a_cluster_or_task_governance_a_destroy_has_nothing_to_remove(aws: StubbedAws) -> None:
    aws.refuse("sagemaker", "describe_cluster", "ResourceNotFound", "Cluster with name eks-gpu not found")
    assert governance.end(stack(aws, "eks-gpu", QUEUES)) == []
    aws.assert_all_asked()
    assert governance.end(stack(aws, "eks-gpu")) == governance.end(stack(aws, "dev")) == []


@pytest.mark.parametrize("name", ["dev", "eks-gpu"])
def test_a_stack_without_it_is_told_the_key(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "governance", name)
    assert code == Exit.BAD_INPUT
    assert "hyperpod:charts.queues" in err


def test_teams_lend_borrow_and_give_way_to_more_urgent_tasks(aws: StubbedAws) -> None:
    ((_, _, quota_of_the_team, more),) = list(governance.wanted(stack(aws, "eks-gpu", QUEUES).config))[1:]
    # CreateComputeQuota, ComputeQuotaConfigInput: limits in percent of the team's own.
    assert quota_of_the_team["ResourceSharingConfig"] == {"Strategy": "LendAndBorrow", "BorrowLimit": 500}
    assert quota_of_the_team["PreemptTeamTasks"] == "LowerPriority"
    assert more == {"ComputeQuotaTarget": {"TeamName": "training", "FairShareWeight": 50}}


def test_groups_of_one_type_count_together_and_no_device_is_lost_in_a_fraction(aws: StubbedAws) -> None:
    groups = [{"name": name, "instanceType": "ml.p5.48xlarge", "count": n} for name, n in (("a", 5), ("b", 6))]
    teams = 'hyperpod:teams=[{"name": "vision", "accelerators": 15}, {"name": "speech"}]'
    chosen = stack(aws, "eks-gpu", QUEUES, teams, f"hyperpod:workers={json.dumps(groups)}")
    quotas = [one["ComputeQuotaResources"] for _, _, one, _ in list(governance.wanted(chosen.config))[1:]]
    assert quotas == [[{"InstanceType": "ml.p5.48xlarge", "Accelerators": n}] for n in (15, 73)]


def test_deleted_resources_are_recreated_and_extra_ones_are_removed(aws: StubbedAws) -> None:
    chosen = governed(aws)
    listed(aws, "compute_quotas", quota())
    listed(aws, "cluster_scheduler_configs", policy("Deleted"))
    created(aws, "cluster_scheduler_config", policy(), Name="eks-gpu-policy")
    listed(aws, "compute_quotas", quota())
    (_, _, wanted, _) = list(governance.wanted(chosen.config))[1]
    old = [{"InstanceType": "ml.p4d.24xlarge", "Accelerators": 8}]
    more = {**wanted, "ComputeQuotaResources": [*wanted["ComputeQuotaResources"], *old]}
    aws.answer("sagemaker", "describe_compute_quota", quota(ComputeQuotaConfig=more))
    answer = {"ComputeQuotaArn": quota()["ComputeQuotaArn"], "ComputeQuotaVersion": 4}
    aws.answer("sagemaker", "update_compute_quota", answer, ComputeQuotaConfig=wanted)
    aws.answer("sagemaker", "describe_compute_quota", quota("Updated"))
    assert [change.done for change in governance.apply(chosen, pause=0)] == ["created", "updated"]
    aws.assert_all_asked()


@pytest.mark.parametrize("status", ["CreateFailed", "CreateRollbackFailed", "UpdateRollbackFailed", "DeleteFailed"])
def test_what_failed_for_good_is_deleted_and_made_again(aws: StubbedAws, status: str) -> None:
    """SageMaker Developer Guide, HyperPod task governance, "Troubleshoot", Policies."""
    chosen = governed(aws)
    listed(aws, "compute_quotas", quota())
    listed(aws, "cluster_scheduler_configs", policy(status))
    aws.answer("sagemaker", "delete_cluster_scheduler_config", {}, ClusterSchedulerConfigId="policyid1234")
    listed(aws, "cluster_scheduler_configs", policy("Deleting"))
    listed(aws, "cluster_scheduler_configs", policy("Deleted"))
    created(aws, "cluster_scheduler_config", policy(), Name="eks-gpu-policy")
    listed(aws, "compute_quotas", quota())
    (_, _, same, _) = list(governance.wanted(chosen.config))[1]
    aws.answer("sagemaker", "describe_compute_quota", quota(ComputeQuotaConfig=same))
    assert [change.done for change in governance.apply(chosen, pause=0)] == ["created", "unchanged"]
    aws.assert_all_asked()


def test_an_update_that_failed_is_tried_again_and_one_under_way_is_waited_for(aws: StubbedAws) -> None:
    chosen = governed(aws)
    listed(aws, "compute_quotas", quota("UpdateFailed"))
    (_, _, scheduler, _), (_, _, same, _) = governance.wanted(chosen.config)
    listed(aws, "cluster_scheduler_configs", policy("Updating"))
    listed(aws, "cluster_scheduler_configs", policy("Updated"))
    aws.answer("sagemaker", "describe_cluster_scheduler_config", policy("Updated", SchedulerConfig=scheduler))
    listed(aws, "compute_quotas", quota("UpdateFailed"))
    aws.answer("sagemaker", "describe_compute_quota", quota("UpdateFailed", ComputeQuotaConfig=same))
    answer = {"ComputeQuotaArn": quota()["ComputeQuotaArn"], "ComputeQuotaVersion": 4}
    aws.answer("sagemaker", "update_compute_quota", answer, TargetVersion=3, ComputeQuotaConfig=same)
    aws.answer("sagemaker", "describe_compute_quota", quota("Updated"))
    assert [change.done for change in governance.apply(chosen, pause=0)] == ["unchanged", "updated"]
    aws.assert_all_asked()


def test_a_quota_goes_with_its_team_and_those_of_other_names_stay(aws: StubbedAws) -> None:
    """The same page: a cluster with quotas cannot be deleted."""
    chosen = governed(aws)
    by_hand = quota(team="astronomy", Name="made-by-hand")
    listed(aws, "compute_quotas", quota(), quota(team="gone", ComputeQuotaId="quotaid67890"), by_hand)
    aws.answer("sagemaker", "delete_compute_quota", {}, ComputeQuotaId="quotaid67890")
    listed(aws, "compute_quotas")
    listed(aws, "compute_quotas", quota())
    aws.answer("sagemaker", "delete_compute_quota", {}, ComputeQuotaId="quotaid12345")
    listed(aws, "compute_quotas")
    listed(aws, "cluster_scheduler_configs")
    done = [(change.what, change.done) for change in governance.remove(chosen, pause=0)]
    assert done == [("quota eks-gpu-gone", "deleted"), ("quota eks-gpu-training", "deleted")]
    aws.assert_all_asked()
