"""``validate`` looks at what is the stack's and runs, at all of it, and leaves nothing behind."""

import json
from typing import Any

import pytest

from components.common.names import CLUSTER_ID_TAG
from operations.cluster import sessions
from operations.cluster.node import Node
from operations.cluster.validate import Check, Validation, worst
from operations.failures import Exit
from operations.target import Target
from tests.operations.aws import FakeKubernetes, StubbedAws, node, stack, with_nodes

BROKEN = [{"name": name, "passed": False, "detail": "broken"} for name in ("boot", "transport")]


def test_only_running_nodes_are_queried_and_every_fault_of_one_is_reported(
    aws: StubbedAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def run_remote(target: Target, node: Node, line: str, timeout: float) -> sessions.Remote:
        asked.append(node.name)
        return sessions.Remote(code=0, output=json.dumps({"passed": False, "checks": BROKEN}))

    monkeypatch.setattr(sessions, "run_remote", run_remote)
    with_nodes(aws, node("workers", 1), node("workers", 2, "SystemUpdating"))
    found = list(Validation(stack(aws)).each_node())
    assert asked == ["workers-1"]
    assert [one.name for one in found] == ["workers-1: boot", "workers-1: transport"]


def test_another_stacks_file_system_is_not_taken_for_this_ones(aws: StubbedAws) -> None:
    theirs = {
        "FileSystemId": "fs-0fedcba987654321",
        "Lifecycle": "AVAILABLE",
        "Tags": [{"Key": CLUSTER_ID_TAG, "Value": "theirs"}],
    }
    aws.answer("fsx", "describe_file_systems", {"FileSystems": [theirs]})
    (found,) = Validation(stack(aws)).file_system()
    assert (found.result, "fs-0fed" in found.detail) == ("FAIL", False)


@pytest.mark.parametrize(
    ("results", "code"),
    [
        (("PASS", "PASS"), Exit.GOOD),
        (("PASS", "UNKNOWN"), Exit.CANNOT_KNOW),
        (("FAIL", "UNKNOWN"), Exit.FAILED),
    ],
)
def test_what_could_not_be_asked_is_not_taken_for_good(results: tuple[Any, ...], code: Exit) -> None:
    assert worst([Check(name="x", result=result, detail="") for result in results]) == code


def in_pods(aws: StubbedAws, *settings: str) -> list[Check]:
    return list(Validation(stack(aws, "eks-gpu", *settings), run_jobs=True).in_pods())


def test_a_group_without_nodes_has_no_pods_to_look_from(aws: StubbedAws) -> None:
    system = {"name": "system", "instanceType": "ml.m5.xlarge", "count": 3}
    workers = [{"name": "workers", "instanceType": "ml.p5.48xlarge", "count": 0}, system]
    assert in_pods(aws, f"hyperpod:workers={json.dumps(workers)}") == []


class Slow(FakeKubernetes):
    """A job of this one is there a while after it was deleted, as its pods end."""

    def __init__(self) -> None:
        super().__init__(log="PASS\nPASS")
        self.applied: list[Any] = []
        self.going = 0

    def apply(self, document: Any, *, dry_run: bool = False) -> None:
        assert dry_run or not self.going, "the job before is not gone yet"
        self.applied.append(document)
        super().apply(document, dry_run=dry_run)

    def delete(self, document: Any) -> None:
        super().delete(document)
        self.going = 3

    def get(self, document: Any) -> Any:
        if document["kind"] != "Namespace" and self.going:
            self.going -= 1
            return document
        return super().get(document)


def test_every_groups_job_begins_once_the_one_before_is_gone(aws: StubbedAws, monkeypatch: pytest.MonkeyPatch) -> None:
    api = Slow()
    monkeypatch.setattr("operations.cluster.nodes.kubernetes", lambda target: api)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    groups = [{"name": name, "instanceType": "ml.p5.48xlarge", "count": 2} for name in ("one", "two")]
    found = in_pods(aws, f"hyperpod:workers={json.dumps(groups)}")
    assert [(one.name, one.result) for one in found] == [
        ("device-check on one", "PASS"),
        ("device-check on two", "PASS"),
    ]
    # Kubernetes ends it later than validate does: else a job that only waited for nodes would read as a failure.
    assert {one["spec"]["activeDeadlineSeconds"] for one in api.applied if one["kind"] == "Job"} == {960}
