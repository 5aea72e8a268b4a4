"""`hyperpod status`: what is there, is it healthy, what it costs, what happened last, and the next step."""

import json

import pytest

from operations import records
from operations.deployment.status import status
from operations.failures import Exit
from operations.spending import plans
from tests.operations.aws import StubbedAws, cluster, ended, node, run_json, stack, with_nodes


def test_a_healthy_stack_at_a_glance(aws: StubbedAws) -> None:
    with_nodes(aws, node("controller", 1), node("workers", 1), node("workers", 2))
    out, _ = ended(Exit.GOOD, "status", "dev")
    lines = out.splitlines()
    assert lines[:4] == [
        "dev: healthy, InService in us-west-2",
        "  controller  1 Running of 1 x ml.m5.2xlarge",
        "  workers     2 Running of 2 x ml.g5.16xlarge",
        "  cost   $11.37 an hour, as configured",
    ]
    assert lines[-1] == "Next: hyperpod validate dev, or hyperpod node connect dev"
    assert max(map(len, lines)) <= 80


def test_a_group_of_several_types_has_those_of_its_nodes(aws: StubbedAws) -> None:
    several = [{"name": "workers", "instanceType": "ml.g5.16xlarge", "fallbackTypes": ["ml.g5.8xlarge"], "count": 2}]
    chosen = stack(aws, "eks-gpu", f"hyperpod:workers={json.dumps(several)}")
    aws.answer("sagemaker", "describe_cluster", cluster())
    listed = [node("workers", 1), {**node("workers", 2), "InstanceType": "ml.g5.8xlarge"}]
    aws.answer("sagemaker", "list_cluster_nodes", {"ClusterNodeSummaries": listed})
    (group,) = status(chosen).groups
    assert group.instance_type == "ml.g5.16xlarge and ml.g5.8xlarge"
    aws.answer("sagemaker", "list_cluster_nodes", {"ClusterNodeSummaries": []})
    (group,) = status(chosen).groups
    assert group.instance_type == "ml.g5.16xlarge or ml.g5.8xlarge"


def test_what_will_take_nodes_away_is_said_before_the_next_step(
    aws: StubbedAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans, "endings", lambda _: iter(["the plan ends tomorrow"]))
    with_nodes(aws, node("controller", 1), node("workers", 1), node("workers", 2))
    out, _ = ended(Exit.GOOD, "status", "dev")
    assert out.splitlines()[-2] == "Warning: the plan ends tomorrow"


def test_a_node_that_failed_is_1_and_named(aws: StubbedAws) -> None:
    with_nodes(aws, node("controller", 1), node("workers", 1), node("workers", 2, "Failure"))
    code, found = run_json("status", "dev")
    assert (code, found["health"]) == (Exit.FAILED, "broken")
    assert found["groups"][1]["nodes"] == {"Running": 1, "Failure": 1}
    assert found["next_step"] == "hyperpod errors dev, or hyperpod node replace dev workers-2"


@pytest.mark.parametrize("status", ["Creating", "Updating", "InService"])
def test_what_is_not_all_there_is_changing(status: str, aws: StubbedAws) -> None:
    aws.answer("sagemaker", "describe_cluster", cluster(status))
    aws.answer("sagemaker", "list_cluster_nodes", {"ClusterNodeSummaries": [node("controller", 1)]})
    out, _ = ended(Exit.GOOD, "status", "dev")
    assert f"dev: changing, {status} in us-west-2" in out
    assert "workers     none yet of 2 x ml.g5.16xlarge" in out
    assert "Next: hyperpod watch dev" in out


def test_a_cluster_that_failed_says_why(aws: StubbedAws) -> None:
    aws.answer("sagemaker", "describe_cluster", cluster("Failed") | {"FailureMessage": "no capacity"})
    aws.answer("sagemaker", "list_cluster_nodes", {"ClusterNodeSummaries": []})
    out, _ = ended(Exit.FAILED, "status", "dev")
    assert "no capacity" in out
    assert "Next: hyperpod errors dev" in out


@pytest.mark.parametrize(
    ("succeeded", "expected"),
    [
        (True, "Next: hyperpod deploy dev --rehearse, then hyperpod deploy dev"),
        (False, "Next: hyperpod errors dev, then deploy again; what exists of it costs money"),
    ],
)
def test_a_stack_that_is_not_there_says_what_was_done_last(
    succeeded: bool, expected: str, aws: StubbedAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    cause = None if succeeded else {"resource": "hyperpod-cluster", "text": "no capacity"}
    told = {"time": "2026-11-20T10:00:00+00:00", "command": "up", "succeeded": succeeded, "cause": cause}
    monkeypatch.setattr(records, "read", lambda target, name: [told | {"command": "preview"}, told])
    aws.refuse("sagemaker", "describe_cluster", "ResourceNotFound")
    out, _ = ended(Exit.GOOD, "status", "dev")
    assert "dev: no cluster in us-west-2" in out
    assert f"up {'succeeded' if succeeded else 'failed'}, 2026-11-20" in out
    assert ("hyperpod-cluster: no capacity" in out) is not succeeded
    assert out.splitlines()[-1] == expected
