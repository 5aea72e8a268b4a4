"""``watch``: nodes that come after the cluster, until all run, one fails, or the time is over."""

from __future__ import annotations

from typing import Any

import pytest

from operations.deployment import arrivals, boots
from stack.commands import Cause
from stack.failures import Exit
from tests.operations.aws import StubbedAws, cluster, node, run, run_json

GROUPS = (("controller", "ml.m5.2xlarge", 1), ("workers", "ml.g5.16xlarge", 2))


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch, on: Any, aws: StubbedAws) -> None:
    on(aws)
    monkeypatch.setattr(arrivals, "_LOOK", 0.0)
    monkeypatch.setattr(boots, "first", lambda *_: None)


def looks(aws: StubbedAws, *states: list[dict[str, Any]], status: str = "InService", message: str = "") -> None:
    """What SageMaker says, look after look."""
    for found in states:
        aws.answer("sagemaker", "describe_cluster", cluster(status, groups=GROUPS) | {"FailureMessage": message})
        aws.answer("sagemaker", "list_cluster_nodes", {"ClusterNodeSummaries": found})


def test_every_change_of_a_node_is_a_line_and_the_last_node_ends_it(
    aws: StubbedAws, capsys: pytest.CaptureFixture[str]
) -> None:
    head, one, two = node("controller", 1), node("workers", 1), node("workers", 2)
    looks(aws, [head], [head, node("workers", 1, "Pending")], [head, one], [head, one, two])
    code, out, err = run(capsys, "watch", "dev")
    assert code == Exit.GOOD
    said = [line for line in err.splitlines() if "(i-" in line]
    assert said == [
        "controller-1 (i-controller1): Running",
        "workers-1 (i-workers1): Pending",
        "workers-1 (i-workers1): Running",
        "workers-2 (i-workers2): Running",
    ]
    assert out == "cluster InService, running nodes: 3: all of them are there.\n"
    aws.assert_all_asked()


def test_the_first_script_that_fails_ends_it_with_its_step(
    aws: StubbedAws, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks(aws, [node("controller", 1)])
    said = "Instance i-workers1: Instance lifecycle script execution has Failed; workers/i-workers1: step fsx failed"
    monkeypatch.setattr(boots, "first", lambda *_: Cause(text=said, resource="hyperpod-dev"))
    code, document = run_json(capsys, "watch", "dev")
    assert code == Exit.FAILED
    assert said in document["error"]
    assert document["code"] == "HP015"
    assert document["hint"]


def test_a_watch_that_lasts_too_long_says_what_is_missing(aws: StubbedAws, capsys: pytest.CaptureFixture[str]) -> None:
    looks(aws, [node("controller", 1), node("workers", 1, "Pending")])
    code, _, err = run(capsys, "watch", "dev", "--timeout", "0")
    assert code == Exit.FAILED
    assert "not every node came within 0 s: cluster InService, running nodes: 1, " in err
    assert "1 of workers without an instance, starting: 1" in err
    assert "hyperpod errors dev" in err


def test_a_cluster_that_has_failed_ends_it_with_awss_reason(
    aws: StubbedAws, capsys: pytest.CaptureFixture[str]
) -> None:
    why = "Cluster creation failed: controller and login nodes did not become ready within the expected time"
    looks(aws, [node("controller", 1, "Failure")], status="Failed", message=why)
    code, _, err = run(capsys, "watch", "dev")
    assert code == Exit.FAILED
    assert why in err
