"""The limits of a larger stack: what they say is what the configuration's checks and AWS's own model refuse."""

import json

import botocore.session
import pytest

from components.config import ConfigError, parse
from components.estimates.limits import LIMITS, Reach, grown, reaches
from components.workers.keys import MAX_COUNT
from operations.project.loading import load_project
from tests.support import ROOT


def _reaches(stack: str, count: int, *values: str) -> dict[str, Reach]:
    config = parse(load_project(ROOT, stack, list(values)).config)
    return {reach.limit.name: reach for reach in reaches(config, "workers", count)}


@pytest.mark.parametrize(("stack", "block"), [("slurm-gpu", "10.1.0.0/24"), ("eks-gpu", "10.1.0.0/23")])
def test_the_subnet_is_enough_for_as_many_nodes_as_it_says_and_no_more(stack: str, block: str) -> None:
    network = f'hyperpod:network={{"secondaryCidr": "{block}"}}'
    nodes = _reaches(stack, 2, network)["addresses"].nodes
    assert nodes > 1

    def check(count: int) -> None:
        project = load_project(ROOT, stack, [network])
        workers = json.loads(project.config["hyperpod:workers"])
        workers[0]["count"] = count
        parse({**project.config, "hyperpod:workers": json.dumps(workers)})

    check(nodes)
    with pytest.raises(ConfigError, match="a larger block"):
        check(nodes + 1)


def test_a_group_has_as_many_instances_as_the_api_takes() -> None:
    shape = botocore.session.get_session().get_service_model("sagemaker").shape_for("ClusterInstanceGroupSpecification")
    assert LIMITS["group-instances"].limit == MAX_COUNT == shape.members["InstanceCount"].metadata["max"]


@pytest.mark.parametrize(
    ("stack", "first", "nodes"),
    [
        # 10 interfaces of the stack and the controller's, and 32 of each p5.48xlarge: (5,000 - 11) / 32.
        ("slurm-gpu", "network-interfaces", 155),
        # Ten of the stack and three system nodes' of 1 each.
        ("eks-gpu", "network-interfaces", 155),
        # A g5 without EFA has one interface; Slurm's guide begins at 1,024 nodes, the controller among them.
        ("dev", "slurm-nodes", 1023),
    ],
)
def test_the_first_limit_of_a_growing_group_is_named_first(stack: str, first: str, nodes: int) -> None:
    found = _reaches(stack, 1000)
    assert next(iter(found)) == first
    assert found[first].nodes == nodes
    assert found[first].exceeded is (nodes < 1000)


def test_each_address_and_each_further_interface_counts_as_address_usage() -> None:
    """64,000 units; a p5 on EKS has 81 addresses and 31 further interfaces by the VPC User Guide."""
    # Three system nodes have 50 units each, and four endpoints and the NAT gateway 6: (64,000 - 150 - 30) / 112.
    assert _reaches("eks-gpu", 1)["address-usage"].nodes == 569


def test_an_existing_network_has_no_room_that_the_stack_knows() -> None:
    network = {
        "vpcId": "vpc-0123456789abcdef0",
        "privateSubnetId": "subnet-0123456789abcdef0",
        "securityGroupIds": ["sg-0123456789abcdef0"],
    }
    found = _reaches("dev", 10, f"hyperpod:network={json.dumps(network)}")
    assert not {"addresses", "address-usage"} & found.keys()


def test_metrics_limits_concern_stacks_that_write_metrics() -> None:
    plain = _reaches("slurm-gpu", 10)
    full = _reaches(
        "slurm-gpu",
        10,
        'hyperpod:observability={"prometheus": "create"}',
        'hyperpod:alerts={"email": "ops@example.com"}',
    )
    assert full.keys() - plain.keys() == {"prometheus-series", "active-alerts"}
    # An 8-GPU node with 32 EFA interfaces and 192 vCPUs: 1,920 of its cores, 1,120 of EFA, some 300 of its GPUs.
    assert 3500 < full["prometheus-series"].used / 10 < 5000


def test_a_larger_configuration_keeps_the_other_groups() -> None:
    config = parse(load_project(ROOT, "eks-gpu", []).config)
    assert {group.name: group.count for group in grown(config, "workers", 7).instance_groups} == {
        "workers": 7,
        "system": 3,
    }
