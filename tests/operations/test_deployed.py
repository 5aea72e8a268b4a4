"""A deployment ends with the nodes that are still to come."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from operations.commands import deployed
from operations.engine.pulumi_cli import CommandRun, _note_change
from operations.failures import Exit
from operations.target import Target
from tests.operations.aws import NODES, StubbedAws, cluster, ended, node, run, stack
from tests.operations.small import Planning

MISSING = "nodes of workers that have no instance yet: {}. HyperPod keeps requesting them"


@pytest.fixture
def real(aws: StubbedAws, monkeypatch: pytest.MonkeyPatch) -> Target:
    """A real stack, whose engine does what it is told."""
    chosen = stack(aws)
    monkeypatch.setattr("operations.target.load", lambda *_, **__: chosen)
    for verbs in ("deploy", "changes"):
        monkeypatch.setattr(
            f"operations.commands.{verbs}.open_engine", lambda *_, **__: nullcontext((Planning(), None))
        )
    for module in ("operations.deployment.deploy.keep", "operations.commands.deploy.deploy.require_kept"):
        monkeypatch.setattr(module, lambda *_, **__: None)
    return chosen


def answers(aws: StubbedAws, *nodes: dict[str, object]) -> None:
    aws.answer("sagemaker", "describe_cluster", cluster())
    aws.answer("sagemaker", "list_cluster_nodes", {"ClusterNodeSummaries": list(nodes)})


@pytest.mark.parametrize("verb", [("deploy", "dev"), ("scale", "dev", "workers", "4")])
def test_nodes_without_an_instance_are_told_of_after_an_update(
    verb: tuple[str, ...], real: Target, aws: StubbedAws
) -> None:
    answers(aws, node("controller", 1), node("workers", 1))
    out, err = ended(Exit.GOOD, *verb, "--yes")
    said = " ".join((out + err).split())
    assert MISSING.format(1) in said
    assert "Next: hyperpod watch dev" in said


@pytest.mark.parametrize("eks", [False, True])
def test_who_adds_a_group_to_a_living_slurm_cluster_is_told_what_its_controller_needs(
    eks: bool, real: Target, aws: StubbedAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Target, "on_eks", eks)
    workers: dict[str, object] = {"instanceGroupName": "workers", "instanceCount": 2}
    old: dict[str, object] = {"instanceGroupName": "old"}
    told = CommandRun()
    urn = "urn:pulumi:dev::p::aws-native:sagemaker:Cluster::hyperpod-cluster"

    def note(*before: dict[str, object]) -> None:
        states = [SimpleNamespace(inputs={"instanceGroups": list(one)}, parent="") for one in (before, [workers])]
        _note_change(told, SimpleNamespace(urn=urn, op="update", old=states[0], new=states[1], diffs=None))

    engine = Planning(inputs=told.inputs)
    monkeypatch.setattr("operations.commands.deploy.open_engine", lambda *_, **__: nullcontext((engine, None)))
    monkeypatch.setattr("operations.commands.deploy.preflight.require_aws_cli", lambda: None)
    note({**workers, "instanceCount": 1}, old)
    assert "run-scripts" not in "".join(run("preview", "dev")[1:])
    note(old)
    _, out, _ = run("preview", "dev")
    assert ("Next: once it is deployed: hyperpod node run-scripts dev controller" in " ".join(out.split())) is not eks
    answers(aws, node("controller", 1), node("workers", 1))
    _, out, asked = run("deploy", "dev", "--yes")
    # Both before the question and at the end.
    for said in (out, asked):
        assert ("workers: Slurm's controller makes no partition of that name" in " ".join(said.split())) is not eks
    first = "" if eks else "hyperpod node run-scripts dev controller, then "
    assert f"Next: {first}hyperpod watch dev" in " ".join(out.split())


def test_the_cluster_is_asked_for_again_after_an_update(real: Target, aws: StubbedAws) -> None:
    aws.answer("sagemaker", "describe_cluster", cluster(groups=(("workers", "ml.g5.16xlarge", 0),)))
    assert real.cluster["InstanceGroups"][0]["TargetCount"] == 0
    answers(aws, node("controller", 1))
    (said,) = deployed.still_to_come(real)
    assert said.startswith(MISSING.format(2))


def test_nodes_that_boot_are_still_to_come(real: Target, aws: StubbedAws) -> None:
    answers(aws, *NODES[:2], node("workers", 2, "Pending"))
    assert deployed.still_to_come(real) == ["nodes of workers not running yet: 1"]


def test_a_cluster_with_all_of_its_nodes_has_nothing_to_tell(real: Target, aws: StubbedAws) -> None:
    answers(aws, *NODES)
    assert deployed.still_to_come(real) == []


def test_what_cannot_be_asked_is_no_failure_of_the_deployment(real: Target, aws: StubbedAws) -> None:
    aws.refuse("sagemaker", "describe_cluster", "AccessDeniedException", "not you")
    (said,) = deployed.still_to_come(real)
    assert said.startswith("which nodes are there is unknown: ")
