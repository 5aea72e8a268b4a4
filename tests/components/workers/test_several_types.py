"""A group with several instance types: what pods may count on, and what every type needs beforehand."""

from typing import Any

from components.alerts.rule_groups import namespace
from components.common.documents import load
from components.config import Config, InstanceGroup
from components.estimates import cost, quotas
from components.estimates.limits import reaches
from components.kubernetes.helm import HyperPodChartArgs, chart_values
from components.kubernetes.node_pools import pool_spec
from components.kubernetes.pod_environment import pod_variables
from components.kubernetes.pod_resources import node_capacity, pod_request
from tests.lifecycle.rig import facts
from tests.support import ROOT, config, one, plan

SYSTEM = {"name": "system", "instanceType": "ml.m5.xlarge", "count": 3}
# By preference; the second one has half the EFA interfaces, the third an eighth, and half of the CPUs and memory.
TYPES = ["ml.p5.48xlarge", "ml.p5en.48xlarge", "ml.p4d.24xlarge"]
SEVERAL = {"name": "several", "instanceType": TYPES[0], "fallbackTypes": TYPES[1:], "count": 2}


def several(**changes: Any) -> Config:
    return config("eks-gpu", workers=[{**SEVERAL, **changes}, SYSTEM])


def single(kind: str) -> Config:
    return config("eks-gpu", workers=[{"name": "several", "instanceType": kind, "count": 2}, SYSTEM])


def group(made: Config) -> InstanceGroup:
    return made.worker_groups[0]


def test_hyperpod_is_given_the_types_in_the_order_of_preference() -> None:
    groups = one(plan("eks-gpu", workers=[SEVERAL, SYSTEM]).state, "hyperpod-cluster").inputs["instanceGroups"]
    assert groups[0]["instanceRequirements"] == {"instanceTypes": TYPES}
    assert "instanceType" not in groups[0]
    assert (groups[1]["instanceType"], groups[1].get("instanceRequirements")) == ("ml.m5.xlarge", None)


def test_a_pod_asks_for_no_more_than_the_smallest_type_has() -> None:
    found, least = group(several()), group(single(TYPES[2]))
    assert node_capacity(found) == node_capacity(least)
    assert pod_request(found) == pod_request(least)
    assert pod_variables(found) == pod_variables(least)
    assert found.type.network_gbps == 400
    assert found.type.name == TYPES[0]


def test_only_labels_that_every_type_has_count() -> None:
    assert group(several()).type.network_labels
    assert not group(several(fallbackTypes=["ml.p6-b200.48xlarge"])).type.network_labels


def test_every_types_quota_must_allow_all_nodes_and_the_cluster_counts_them_once() -> None:
    found = {one.name: one.needed for one in quotas.needed(several())}
    assert [found[f"{name} for cluster usage"] for name in TYPES] == [2, 2, 2]
    assert found["Total number of instances allowed across SageMaker HyperPod clusters"] == 5


def test_addresses_and_interfaces_suffice_for_the_largest_type() -> None:
    made, largest = several(instanceType=TYPES[2], fallbackTypes=[TYPES[0]]), single(TYPES[0])
    assert made.settings.addresses == largest.settings.addresses > single(TYPES[2]).settings.addresses
    assert quotas.interfaces_needed(made) == quotas.interfaces_needed(largest)
    by_name = [{one.limit.name: one.nodes for one in reaches(of, "several", 9)} for of in (made, largest)]
    assert by_name[0]["address-usage"] == by_name[1]["address-usage"]


def test_cost_says_both_ends_and_each_type_in_its_order() -> None:
    found = cost.estimate(several())
    cheapest, dearest = (cost.estimate(single(kind)).whole.most for kind in (TYPES[2], TYPES[1]))
    assert found.words == f"${cheapest:,.2f} to ${dearest:,.2f} an hour"
    assert (found.whole.least, found.hourly_usd) == (cheapest, dearest)
    said = "several: ml.p5.48xlarge for 132.10, then ml.p5en.48xlarge for 151.91, then ml.p4d.24xlarge for 51.82"
    assert f"{said}; USD an hour for 2 nodes" in found.notes
    assert found.within(dearest or 0.0)
    assert found.within((dearest or 0.0) - 1) is None
    assert f"`{found.words}`" in (ROOT / "docs/saving.md").read_text()
    assert "several (2 x ml.p5.48xlarge or ml.p5en.48xlarge or ml.p4d.24xlarge)" in found.parts


def test_a_type_without_a_price_leaves_the_sum_open_and_is_named() -> None:
    found = cost.estimate(several(fallbackTypes=["ml.p5e.48xlarge"]))
    assert found.hourly_usd is None
    assert "price of 2 x ml.p5.48xlarge or ml.p5e.48xlarge unknown" in found.words
    (warning,) = [one for one in found.warnings if "HyperPod's price" in one]
    assert warning.startswith("HyperPod's price of 2 x ml.p5e.48xlarge is unknown")


def test_nodes_that_follow_demand_are_of_the_type_that_karpenter_finds_cheapest() -> None:
    workers = [{**SEVERAL, "scaling": "demand"}, SYSTEM]
    made = config("eks-gpu", workers=workers, autoscaling={"enabled": True})
    assert made.settings.autoscaling
    spec = pool_spec(group(made), made.settings.autoscaling)
    (wanted,) = spec["template"]["spec"]["requirements"]
    assert wanted["values"] == TYPES
    assert spec["limits"] == {"nodes": "2", "cpu": "384", "nvidia.com/gpu": "16"}
    found = cost.estimate(made)
    assert found.words == "$1.34 an hour idle, at most $153.44 an hour"
    assert any("ml.p5.48xlarge for 132.10, or ml.p5en.48xlarge" in note for note in found.notes)


def test_the_efa_plugin_runs_on_nodes_of_every_type() -> None:
    made = several()
    args = HyperPodChartArgs(
        accelerator="gpu", charts=made.settings.charts, region=made.region, groups=made.worker_groups
    )
    values = chart_values(args)["aws-efa-k8s-device-plugin"]["supportedInstanceLabels"]["values"]
    assert values == sorted(TYPES)


def test_each_type_has_the_efa_interfaces_that_alerts_expect_of_it() -> None:
    found = load(namespace("one", "eks", "gpu", several().worker_groups, 1))
    rules = [rule for of in found["groups"] for rule in of["rules"] if rule.get("record", "").endswith("_expected")]
    expected = {
        rule["expr"].split("instance_type=")[1].split('"')[1]: rule["expr"].rsplit(" ", 1)[1]
        for rule in rules
        if rule["record"] == "hyperpod_efa_interfaces_expected"
    }
    assert expected == {TYPES[0]: "32", TYPES[1]: "16", TYPES[2]: "4"}


def test_nodes_get_the_facts_of_every_type() -> None:
    workers = [SEVERAL, SYSTEM]
    found = facts(TYPES[0], f'{{"orchestrator": "eks", "workers": {workers!r}}}'.replace("'", '"'))
    assert [(one.name, one.instance_type, one.efa_interfaces) for one in found.instance_groups] == [
        ("several", TYPES[0], 32),
        ("system", "ml.m5.xlarge", 0),
    ]
    assert [(one.name, one.instance_type, one.efa_interfaces) for one in found.fallback_groups] == [
        ("several", TYPES[1], 16),
        ("several", TYPES[2], 4),
    ]


def test_what_a_type_lacks_is_said_of_each() -> None:
    made = several(instanceType="ml.g5.xlarge", fallbackTypes=["ml.g6.xlarge"])
    assert [note.split(" has no EFA")[0] for note in made.notes] == ["ml.g5.xlarge", "ml.g6.xlarge"]
