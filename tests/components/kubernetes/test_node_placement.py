"""What a Kubernetes cluster itself runs keeps off accelerators where it has other nodes; jobs train on those alone."""

import json
from typing import Any

import pytest

from components.config import Charts, Config
from components.estimates import cost, quotas
from components.kubernetes.addons import configuration
from components.kubernetes.charts import KUEUE
from components.kubernetes.node_placement import GROUP_LABEL
from components.kubernetes.pod_resources import node_capacity
from components.kubernetes.teams.queues import cluster_queue, flavor, kueue_values, shares
from operations.jobs.choices import Choices
from operations.jobs.render import render
from operations.jobs.requests import JobError
from tests.golden.stacks import state_of
from tests.support import config, of_type, one, plan

GPU = {"name": "workers", "instanceType": "ml.p5.48xlarge"}
SYSTEM = {"name": "system", "instanceType": "ml.m5.xlarge"}
OPEN: list[Any] = []


def groups(*workers: dict[str, Any], **more: Any) -> Config:
    return config("eks-gpu", workers=list(workers), **more)


def taints(settings: Config) -> dict[str, list[str]]:
    return {group.name: [taint.key for taint in group.taints] for group in settings.worker_groups}


@pytest.mark.parametrize(
    ("workers", "expected"),
    [
        pytest.param([GPU], {"workers": []}, id="no other nodes"),
        pytest.param([GPU, {**SYSTEM, "count": 0}], {"workers": [], "system": []}, id="none of them now"),
        pytest.param([{**GPU, "taints": OPEN}, SYSTEM], {"workers": [], "system": []}, id="said to have none"),
        pytest.param(
            [{**GPU, "deepHealthChecks": ["InstanceStress"]}, SYSTEM], {"workers": [], "system": []}, id="deep checks"
        ),
        pytest.param(
            [{**GPU, "taints": [{"key": "own", "effect": "NoExecute"}]}, SYSTEM],
            {"workers": ["own"], "system": []},
            id="taints of its own",
        ),
        pytest.param(
            [{**GPU, "count": 0}, SYSTEM], {"workers": ["nvidia.com/gpu"], "system": []}, id="parked accelerators"
        ),
    ],
)
def test_the_taint_is_there_only_where_everything_else_has_a_node(
    workers: list[dict[str, Any]], expected: dict[str, list[str]]
) -> None:
    assert taints(groups(*workers)) == expected


def test_a_group_without_accelerators_has_three_nodes_and_a_small_volume_whatever_the_size() -> None:
    system = groups(GPU, SYSTEM, size="large").worker_groups[1]
    assert (system.count, system.volume_gib) == (3, 200)
    assert "nvidia.com/gpu" not in node_capacity(system)


def test_what_can_be_told_prefers_the_system_groups_and_says_again_what_its_own_affinity_says() -> None:
    settings = groups(GPU, SYSTEM)
    there = {"matchExpressions": [{"key": GROUP_LABEL, "operator": "In", "values": ["system"]}]}
    for found, own in (
        (configuration("coredns", settings.worker_groups, Charts()), ("k8s-app", "kube-dns")),
        (
            configuration("aws-ebs-csi-driver", settings.worker_groups, Charts())["controller"],
            ("app", "ebs-csi-controller"),
        ),
    ):
        (preferred,) = found["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
        assert preferred["preference"] == there
        (apart,) = found["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
        (expression,) = apart["podAffinityTerm"]["labelSelector"]["matchExpressions"]
        assert (expression["key"], *expression["values"]) == own
    assert configuration("aws-fsx-csi-driver", settings.worker_groups, Charts()) == {}
    assert configuration("coredns", groups(GPU).worker_groups, Charts()) == {}


def test_the_operators_of_a_stack_prefer_them_too() -> None:
    charts = {"hyperpodTrainingOperator": True}
    chart = one(plan("eks-gpu", charts=charts).state, "eks-chart-release").inputs["values"]
    state = state_of("eks-gpu")
    assert "system" in json.dumps(chart["mpi-operator"]["mpiOperator"]["affinity"])
    for part in ("webhook", "cainjector"):
        assert "system" in json.dumps(chart["cert-manager"][part]["affinity"])
    kueue = next(r.inputs for r in of_type(state, "Release") if KUEUE.name in r.inputs["chart"])
    assert kueue["values"]["controllerManager"]["nodeSelector"] == {GROUP_LABEL: "system"}
    assert "nodeSelector" not in kueue_values(None, groups(GPU).worker_groups)["controllerManager"]
    addon = next(r.inputs for r in of_type(state, "Addon") if r.inputs["addonName"] == "coredns")
    assert "system" in addon["configurationValues"]


def test_a_queue_gives_jobs_the_toleration_that_kubernetes_would_and_asks_for_any_other() -> None:
    found = flavor(groups(GPU, SYSTEM).worker_groups[0])
    assert found["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    assert "nodeTaints" not in found
    assert set(flavor(groups(GPU, SYSTEM).worker_groups[1])) == {"nodeLabels"}


def test_queues_offer_nodes_without_accelerators_first_and_half_of_them() -> None:
    (group,) = cluster_queue("a", groups(GPU, SYSTEM).worker_groups, 1.0)["resourceGroups"]
    assert [one["name"] for one in group["flavors"]] == ["system", "workers"]
    quota = {r["name"]: r["nominalQuota"] for r in group["flavors"][0]["resources"]}
    # 3 nodes of 2 CPUs, one thread a core.
    assert (quota["cpu"], quota["memory"], quota["nvidia.com/gpu"]) == ("3", "24Gi", "0")


def test_parked_accelerators_leave_teams_an_equal_share_of_the_rest() -> None:
    assert shares({"a": 4, "b": None}, 0) == {"a": 0.5, "b": 0.5}
    parked = groups({**GPU, "count": 0}, SYSTEM, teams=[{"name": "a", "accelerators": 4}])
    assert parked.training_groups[0].count == 0


def test_jobs_train_only_on_groups_with_accelerators_in_any_order_of_groups() -> None:
    settings = groups(SYSTEM, GPU)
    selector = render("device-check", settings)[-1]["spec"]["template"]["spec"]["nodeSelector"]
    assert selector[GROUP_LABEL] == "workers"
    with pytest.raises(JobError, match="group system has no accelerators; the stack trains on workers"):
        render("device-check", settings, Choices(group="system"))
    with pytest.raises(JobError, match="group workers has no nodes now; hyperpod scale STACK workers NUMBER"):
        render("device-check", groups(SYSTEM, {**GPU, "count": 0}))


def test_cost_and_quotas_show_the_system_nodes_and_none_of_an_empty_group() -> None:
    estimate = cost.estimate(config("eks-gpu"))
    assert estimate.parts["system (3 x ml.m5.xlarge)"].most == pytest.approx(0.69)
    assert estimate.accelerator_hourly_usd == pytest.approx(2 * 66.048)
    names = {quota.name: quota.needed for quota in quotas.needed(config("eks-gpu"))}
    assert names["ml.m5.xlarge for cluster usage"] == 3
    parked = {quota.name: quota.needed for quota in quotas.needed(groups({**GPU, "count": 0}, SYSTEM))}
    assert "ml.p5.48xlarge for cluster usage" not in parked
    assert parked["Maximum size of EBS volume in GB for a SageMaker HyperPod cluster instance"] == 200
