"""What collects metrics on EKS: settings, identity, and what it may do."""

import json
from typing import Any

import pytest

from components.kubernetes import metrics_addon
from operations.engine.state import ResourceState
from rehearsal.account.addon_settings import check_settings
from rehearsal.account.books import Refused
from tests.golden.stacks import state_of
from tests.support import config, one

WORKSPACE = "arn:aws:aps:us-west-2:123456789012:workspace/ws-1"


def addon(stack: str) -> ResourceState:
    return one(state_of(stack), f"eks-addons-{metrics_addon.ADDON}")


def levels(**settings: Any) -> dict[str, str]:
    made = config("eks-gpu", **settings)
    governed = made.settings.charts.queues == "task-governance"
    chosen, endpoint = made.settings.observability, "https://aps.example.com/ws-1/"
    text = metrics_addon.configuration(chosen, made.worker_groups, governed, WORKSPACE, endpoint)
    return {name: one["level"] for name, one in json.loads(text)["metricsProvider"].items()}


def test_its_role_writes_to_one_workspace_and_to_logs_only_where_they_are_wanted() -> None:
    actions = {}
    for stack in ("eks-teams", "eks-spot"):
        state = state_of(stack)
        statements = json.loads(one(state, "eks-addons-metrics", "RolePolicy").inputs["policy"])["Statement"]
        (write,) = [s for s in statements if s["Action"] == ["aps:RemoteWrite"]]
        assert write["Resource"] == [one(state, "observability-prometheus").outputs["arn"]]
        others = [s for s in statements if s is not write and not s["Action"][0].startswith("kms:")]
        assert all("/Clusters/" in arn for s in others for arn in s["Resource"])
        actions[stack] = {action.split(":")[0] for s in statements for action in s["Action"]}
    assert actions == {"eks-teams": {"aps", "logs"}, "eks-spot": {"aps", "kms"}}


def test_it_reads_networks_only_where_there_is_efa() -> None:
    kinds = {"ml.g5.xlarge": "DISABLED", "ml.g6.8xlarge": "BASIC"}
    for kind, level in kinds.items():
        assert levels(workers=[{"name": "workers", "instanceType": kind}])["networkMetrics"] == level


def test_metrics_of_efa_and_of_task_governance_are_on_where_there_is_any() -> None:
    assert levels()["networkMetrics"] == "BASIC"
    assert levels()["taskGovernanceMetrics"] == "DISABLED"
    assert levels(charts={"queues": "task-governance"})["taskGovernanceMetrics"] == "BASIC"
    assert (
        levels(observability={"prometheus": "create", "detail": "advanced"})["acceleratedComputeMetrics"] == "ADVANCED"
    )


def test_the_account_refuses_settings_that_are_not_in_the_addons_schema() -> None:
    check_settings(metrics_addon.ADDON, addon("eks-teams").inputs["configurationValues"])
    bad: list[Any] = [{"ampWorkspace": {"url": "x"}}, {"logging": {"enabled": "yes"}}, {"metricsProvider": {"gpu": {}}}]
    for wrong in bad:
        with pytest.raises(Refused):
            check_settings(metrics_addon.ADDON, json.dumps(wrong))
