"""A group that follows demand has a node pool like its nodes, and costs between nothing and all of them."""

from components.config import Config
from components.estimates import cost
from components.kubernetes.node_placement import GROUP_LABEL, system_group_names
from components.kubernetes.node_pools import pool_spec
from tests.support import config

SYSTEM = {"name": "system", "instanceType": "ml.m5.xlarge"}
GPUS = {"name": "GPUs", "instanceType": "ml.p5.48xlarge", "count": 4, "scaling": "demand"}
CPUS = {"name": "cpus", "instanceType": "ml.c5.4xlarge", "count": 3, "scaling": "demand"}


def demanding(*groups: object, **autoscaling: str) -> Config:
    return config("eks-gpu", workers=[SYSTEM, *groups], autoscaling={"enabled": True, **autoscaling})


def test_a_pool_has_the_groups_label_its_taint_and_its_limits() -> None:
    made = demanding(GPUS, CPUS)
    assert made.settings.autoscaling
    gpus, cpus = (pool_spec(group, made.settings.autoscaling) for group in made.worker_groups[1:])
    # A flavor of Kueue and the jobs select nodes by these: Karpenter adds none for a label that it does not know.
    healthy = {"sagemaker.amazonaws.com/node-health-status": "Schedulable"}
    assert gpus["template"]["metadata"]["labels"] == {GROUP_LABEL: "GPUs", **healthy}
    # Without it Karpenter would add GPUs for pods that cannot run there.
    assert gpus["template"]["spec"]["taints"] == [{"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}]
    assert gpus["limits"] == {"nodes": "4", "cpu": "768", "nvidia.com/gpu": "32"}
    assert cpus["limits"] == {"nodes": "3", "cpu": "48"}
    assert "taints" not in cpus["template"]["spec"]


def test_by_default_a_node_goes_only_once_it_is_empty() -> None:
    made = demanding(GPUS)
    assert made.settings.autoscaling
    disruption = pool_spec(made.worker_groups[1], made.settings.autoscaling)["disruption"]
    assert (disruption["consolidationPolicy"], disruption["consolidateAfter"]) == ("WhenEmpty", "10m")
    assert disruption["budgets"] == [{"nodes": "10%"}, {"nodes": "0", "reasons": ["Drifted"]}]


def test_nodes_that_come_and_go_do_not_count_for_the_clusters_own_pods() -> None:
    made = demanding(GPUS, CPUS)
    assert [group.least for group in made.worker_groups] == [3, 0, 0]
    assert [group.wanted(2) for group in made.worker_groups] == [3, 2, 2]
    assert made.worker_groups[2].wanted(9) == 3
    assert system_group_names(made.worker_groups) == ["system"]


def test_cost_says_both_ends() -> None:
    none = {**GPUS, "count": 0, "scaling": "fixed"}
    fixed, follows = config("eks-gpu", workers=[SYSTEM, none]), demanding(GPUS)
    idle, priced = cost.estimate(fixed), cost.estimate(follows)
    assert idle.hourly_usd == priced.whole.least
    assert priced.words == f"{idle.words} idle, at most ${priced.hourly_usd:,.2f} an hour"
    assert "idle" not in idle.words
