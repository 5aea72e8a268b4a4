"""Emulated nodes are like HyperPod's, as the catalogue describes them."""

import pytest

from components.catalogue.accelerators import CATALOGUE
from components.config import Config, parse
from rehearsal.kubernetes.nodes import device_resources, is_ready, names_of, nodes_of, on_demand, with_devices
from tests.support import config


def _config(instance_type: str, **more: object) -> Config:
    accelerator = "trainium" if "trn" in instance_type else "gpu"
    workers = [{"name": "workers", "instanceType": instance_type, "count": 3, **more}]
    if "taints" in more:
        workers.append({"name": "open", "instanceType": instance_type})
    return parse(
        {
            "aws:region": "us-west-2",
            "hyperpod:clusterName": "c",
            "hyperpod:orchestrator": "eks",
            "hyperpod:accelerator": accelerator,
            "hyperpod:workers": workers,
            "hyperpod:kubernetesApiCidrs": ["52.95.110.0/24"],
        }
    )


def test_every_instance_of_every_group_is_a_node_with_a_unique_name() -> None:
    nodes = nodes_of(_config("ml.p5.48xlarge"))
    assert len({node["metadata"]["name"] for node in nodes}) == 3
    assert {node["metadata"]["labels"]["node.kubernetes.io/instance-type"] for node in nodes} == {"ml.p5.48xlarge"}


def test_devices_are_not_there_before_their_plugins() -> None:
    capacity = nodes_of(_config("ml.p5.48xlarge"))[0]["status"]["capacity"]
    assert {"cpu", "memory", "hugepages-2Mi"} < set(capacity)
    assert not any("/" in name for name in capacity)


@pytest.mark.parametrize(
    ("instance_type", "devices"),
    [
        ("ml.p5.48xlarge", {"nvidia.com/gpu", "vpc.amazonaws.com/efa"}),
        ("ml.trn1.32xlarge", {"aws.amazon.com/neuron", "vpc.amazonaws.com/efa"}),
        # EC2 lists an interface, but HyperPod was measured without one, so nothing may rely on it.
        ("ml.g5.16xlarge", {"nvidia.com/gpu"}),
    ],
)
def test_plugins_are_expected_for_what_the_catalogue_is_sure_of(instance_type: str, devices: set[str]) -> None:
    assert device_resources(_config(instance_type)) == {"workers": devices}


def test_labels_and_taints_of_the_configuration_are_on_the_nodes() -> None:
    taint = {"key": "team", "value": "a", "effect": "NoSchedule"}
    node = nodes_of(_config("ml.p5.48xlarge", labels={"pool": "big"}, taints=[taint]))[0]
    assert node["metadata"]["labels"]["pool"] == "big"
    assert node["spec"]["taints"] == [taint]


def test_nodes_that_follow_demand_are_not_there_and_can_become_more_than_the_limit() -> None:
    system = {"name": "system", "instanceType": "ml.m5.xlarge", "count": 2}
    spare = {"name": "spare", "instanceType": "ml.p5.48xlarge", "count": 2, "scaling": "demand"}
    follows = config("eks-gpu", workers=[system, spare], autoscaling={"enabled": True})
    (node, _), spares = nodes_of(follows), on_demand(follows)
    assert list(spares) == ["spare"]
    assert len(spares["spare"]) > 2
    assert spares["spare"][0]["status"]["capacity"]["nvidia.com/gpu"] == "8"
    assert len(set(names_of(follows))) == 2 + len(spares["spare"])
    assert node["metadata"]["name"] in names_of(follows)


def test_a_group_of_several_types_has_nodes_of_each_with_what_that_type_has() -> None:
    made = _config("ml.p5.48xlarge", fallbackTypes=["ml.p5en.48xlarge"])
    nodes = [with_devices(made, node) for node in nodes_of(made)]
    kinds = [node["metadata"]["labels"]["node.kubernetes.io/instance-type"] for node in nodes]
    assert kinds == ["ml.p5.48xlarge", "ml.p5en.48xlarge", "ml.p5.48xlarge"]
    assert [node["status"]["capacity"]["vpc.amazonaws.com/efa"] for node in nodes] == ["32", "16", "32"]


def test_a_node_with_a_taint_of_nodes_that_are_not_ready_is_not_ready() -> None:
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    assert is_ready({"spec": {}, "status": ready})
    assert not is_ready({"spec": {"taints": [{"key": "node.kubernetes.io/not-ready"}]}, "status": ready})
    assert not is_ready({"spec": {}, "status": {}})


@pytest.mark.parametrize(
    ("instance_type", "pods"),
    [("ml.p5.48xlarge", 49), ("ml.trn1.32xlarge", 49), ("ml.g5.16xlarge", 29), ("ml.m5.xlarge", 14)],
)
def test_a_node_takes_as_many_pods_as_hyperpods_guide_says(instance_type: str, pods: int) -> None:
    assert CATALOGUE[instance_type].pods == pods
