"""Worker groups without accelerators on Slurm: their partition, what their nodes are told, their cost and quotas."""

import pytest

from components.common.names import Names
from components.estimates.cost import estimate
from components.estimates.quotas import needed
from components.nodes import provisioning
from tests.support import config

CPUS = {"name": "prepare", "instanceType": "ml.m7i.8xlarge", "count": 2}


@pytest.mark.parametrize(
    ("stack", "kind", "shared"),
    [("slurm-gpu", "ml.p5.48xlarge", "gpu"), ("slurm-trainium", "ml.trn1.32xlarge", "trainium")],
)
def test_their_nodes_are_in_a_partition_of_their_own_and_are_told_of_no_device(
    stack: str, kind: str, shared: str
) -> None:
    groups = [{"name": "workers", "instanceType": kind}, CPUS]
    told = provisioning.facts(config(stack, workers=groups), Names(cluster="c", region="us-west-2", digest="0a1b2c3d"))
    prepare, workers = told.groups["prepare"], told.groups["workers"]
    assert (workers.partition, prepare.partition) == (shared, "prepare")
    assert (prepare.role, prepare.gres, prepare.accelerators, prepare.efa_interfaces) == ("worker", "", 0, 0)
    assert prepare.features == ("ml.m7i.8xlarge", "usw2-az2")


def test_they_cost_and_need_quotas_as_their_type_does() -> None:
    stack = config("slurm-gpu", workers=[{"name": "workers", "instanceType": "ml.p5.48xlarge"}, CPUS])
    quotas = {quota.name: quota.needed for quota in needed(stack)}
    assert quotas["ml.m7i.8xlarge for cluster usage"] == 2
    assert quotas["Maximum number instances allowed per SageMaker HyperPod cluster"] == 5
    found = estimate(stack)
    assert "prepare (2 x ml.m7i.8xlarge)" in found.parts
    assert found.accelerator_hourly_usd == pytest.approx(2 * 66.048)
