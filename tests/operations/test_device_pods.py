"""The test of GPUs on EKS: a pod with all of a node's GPUs, only where no job has any, and gone at the end."""

from collections.abc import Sequence
from typing import Any

import pytest

from operations.cluster import device_pods, device_tests
from operations.cluster import nodes as cluster_nodes
from operations.cluster.node import Node
from operations.failures import Failure
from operations.target import Target
from tests.dcgm import diagnosis
from tests.operations.aws import StubbedAws, stack

ID = "i-0123456789abcdef0"
NODE = Node(
    name="workers-1", group="workers", role="worker", instance_id=ID, instance_type="ml.p5.48xlarge", status="Running"
)
RUNS = {"phase": "Running"}
UNPLACED = {"type": "PodScheduled", "status": "False", "message": "0/5 nodes: 1 Insufficient nvidia.com/gpu"}


def holding(phase: str, name: str = f"hyperpod-{ID}") -> dict[str, Any]:
    """A pod of a job with a GPU of a node."""
    containers = [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}]
    metadata = {"name": "train-0", "namespace": "vision"}
    return {"metadata": metadata, "spec": {"nodeName": name, "containers": containers}, "status": {"phase": phase}}


class Api:
    """The API server, whose one pod goes through these states."""

    def __init__(self, states: Sequence[dict[str, Any] | None], pods: Sequence[dict[str, Any]] = ()) -> None:
        self.states, self._pods = list(states), list(pods)
        self.applied: list[dict[str, Any]] = []
        self.deleted: list[dict[str, Any]] = []

    def all_pods(self) -> list[dict[str, Any]]:
        return self._pods

    def apply(self, pod: dict[str, Any]) -> None:
        self.applied.append(pod)

    def get(self, pod: dict[str, Any]) -> dict[str, Any] | None:
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        return None if state is None else {**pod, "status": state}

    def log(self, _: dict[str, Any]) -> list[str]:
        said = ["Started host engine version 4.5.2", *diagnosis(*self.errors).splitlines()]
        return [f"2026-11-22T20:00:00Z {line}" for line in said]

    # As DCGM has them: error and severity.
    errors: Sequence[tuple[int, int]] = ()

    def delete(self, pod: dict[str, Any]) -> None:
        self.deleted.append(pod)


@pytest.fixture
def eks(aws: StubbedAws, monkeypatch: pytest.MonkeyPatch) -> Target:
    monkeypatch.setattr(device_pods, "_EVERY", 0.0)
    return stack(aws, "eks-gpu")


def outcome(eks: Target, api: Api, monkeypatch: pytest.MonkeyPatch) -> device_tests.DeviceTest:
    monkeypatch.setattr(cluster_nodes, "kubernetes", lambda target: api)
    return device_tests.run(eks, [NODE], NODE, 2)


def test_a_pod_with_all_gpus_of_the_one_node_runs_the_level_and_is_deleted(
    eks: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = Api(
        [{"phase": "Pending"}, RUNS, {"phase": "Succeeded"}],
        [holding("Running", "hyperpod-i-another"), holding("Succeeded")],
    )
    found = outcome(eks, api, monkeypatch)
    assert (found.result, found.detail) == ("PASS", "dcgmi diag -r 2 gave 3 results")
    assert found.output.startswith("Started host engine version 4.5.2\n{\n")
    (pod,) = api.applied
    assert api.deleted == [pod]
    (container,) = pod["spec"]["containers"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "8"}
    assert container["command"][-1].endswith("dcgmi diag -r 2 -j")
    assert f"hyperpod-{ID}" in str(pod["spec"]["affinity"])


@pytest.mark.parametrize(
    ("errors", "result", "said"),
    [
        # By dcgm_errors.c: DCGM_FR_PERSISTENCE_MODE, and DCGM_FR_ROW_REMAP_FAILURE.
        (((29, 5),), "PASS", "dcgmi diag -r 2 warns of: software"),
        (((29, 5), (80, 6)), "FAIL", "dcgmi diag -r 2 failed: software"),
    ],
)
def test_a_pod_that_failed_says_whether_dcgm_only_warns(
    eks: Target, monkeypatch: pytest.MonkeyPatch, errors: Sequence[tuple[int, int]], result: str, said: str
) -> None:
    """dcgmi ends with a status of its own for a warning, too (DCGM 4, Diag.cpp, GetFailureResult)."""
    api = Api([{"phase": "Failed"}])
    api.errors = errors
    found = outcome(eks, api, monkeypatch)
    assert (found.result, found.detail) == (result, said)


def test_a_node_with_a_job_is_not_tested(eks: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    api = Api([{"phase": "Succeeded"}], [holding("Running")])
    with pytest.raises(Failure, match=r"workers-1 runs vision/train-0, and the test needs idle GPUs"):
        outcome(eks, api, monkeypatch)
    assert api.applied == []


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ({"phase": "Pending", "conditions": [UNPLACED]}, "cannot start on workers-1: 0/5 nodes"),
        (
            {
                "phase": "Pending",
                "containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no route"}}}],
            },
            "cannot start on workers-1: no route",
        ),
        (None, "somebody has deleted the test of workers-1"),
    ],
)
def test_a_test_that_cannot_run_says_why_and_leaves_no_pod(
    eks: Target, monkeypatch: pytest.MonkeyPatch, state: dict[str, Any] | None, said: str
) -> None:
    monkeypatch.setattr(device_pods, "_PLACED", -1.0)
    api = Api([state])
    with pytest.raises(Failure, match=said):
        outcome(eks, api, monkeypatch)
    assert api.deleted == api.applied
