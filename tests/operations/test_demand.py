"""A group whose nodes Karpenter adds and removes is right with as many nodes as it has."""

import json

import pytest

from operations.cluster import nodes as cluster_nodes
from operations.cluster import remove
from operations.cluster.validate import Validation
from operations.commands import quotas
from operations.deployment import preconditions, status
from operations.failures import Failure
from operations.target import Target
from tests.operations.aws import StubbedAws, cluster, node, stack

SYSTEM = {"name": "system", "instanceType": "ml.m5.xlarge", "count": 2}
GPUS = {"name": "gpus", "instanceType": "ml.p5.48xlarge", "count": 8, "scaling": "demand"}
SETTINGS = (f"hyperpod:workers={json.dumps([SYSTEM, GPUS])}", 'hyperpod:autoscaling={"enabled": true}')


def demanding(aws: StubbedAws, gpus: int) -> Target:
    """A stack whose group of eight at most has so many nodes."""
    there = [
        node("system", 1),
        node("system", 2),
        *(node("gpus", number) for number in range(gpus)),
    ]
    aws.answer(
        "sagemaker",
        "describe_cluster",
        cluster(groups=(("system", "ml.m5.xlarge", 2), ("gpus", "ml.p5.48xlarge", gpus))),
    )
    aws.answer("sagemaker", "list_cluster_nodes", {"ClusterNodeSummaries": there})
    return stack(aws, "eks-gpu", *SETTINGS)


@pytest.mark.parametrize("gpus", [0, 3, 8])
def test_it_is_healthy_with_none_some_or_all_of_its_nodes(gpus: int, aws: StubbedAws) -> None:
    found = status.status(demanding(aws, gpus))
    assert [(group.name, group.wanted) for group in found.groups] == [("system", 2), ("gpus", gpus)]
    assert found.health == "healthy"
    assert " idle, at most $" in found.cost


@pytest.mark.parametrize(("gpus", "result"), [(0, "PASS"), (3, "PASS"), (9, "FAIL")])
def test_validate_counts_its_nodes_up_to_the_most(gpus: int, result: str, aws: StubbedAws) -> None:
    found = {one.name: one.result for one in Validation(demanding(aws, gpus)).counts()}
    assert found == {"worker nodes of system": "PASS", "worker nodes of gpus": result}


def test_validate_runs_no_job_that_would_make_all_its_nodes(aws: StubbedAws) -> None:
    (found,) = Validation(stack(aws, "eks-gpu", *SETTINGS), run_jobs=True).in_pods()
    assert (found.result, found.hint) == (
        "UNKNOWN",
        "Karpenter would add 8 nodes for it: hyperpod job run eks-gpu device-check --group gpus",
    )


def test_it_lacks_nothing_before_a_deployment_with_fewer_nodes(aws: StubbedAws) -> None:
    assert preconditions._complete(demanding(aws, 0))


def test_its_nodes_are_karpenters_to_remove(aws: StubbedAws) -> None:
    target = demanding(aws, 2)
    with pytest.raises(Failure, match="Karpenter adds and removes the nodes of gpus"):
        remove.chosen(target, cluster_nodes.list_nodes(target), ["i-gpus1"], yes=True)


def test_the_quotas_are_for_all_of_its_nodes_and_say_so(aws: StubbedAws, capsys: pytest.CaptureFixture[str]) -> None:
    quotas.note_demand(stack(aws, "eks-gpu", *SETTINGS))
    assert "Needed with all 8 nodes of gpus; idle it has none." in capsys.readouterr().err
