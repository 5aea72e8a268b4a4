"""The first lifecycle script that fails is said while a deployment waits, and is its first cause."""

import os
import pty
import threading
from datetime import UTC, datetime
from typing import Any

import pytest

from operations.deployment import boots, deploy
from operations.deployment.engines import PulumiEngine
from operations.engine.pulumi_cli import Cause, Command, CommandRun
from operations.engine.state import HYPERPOD_CLUSTER
from operations.failures import Exit
from operations.failures.advice import about
from operations.terminal import console
from operations.terminal.output_options import OPTIONS
from tests.operations.aws import ACCOUNT, CLUSTER_ID, StubbedAws, cluster, stack

SINCE = datetime(2026, 11, 20, 10, tzinfo=UTC)
STREAM = "LifecycleConfig/workers/i-workers1"
STEP = "step fsx failed: no answer"


def event(number: int, description: str, level: str = "Error") -> dict[str, Any]:
    return {
        "EventId": f"{number:036}",
        "ClusterArn": f"arn:aws:sagemaker:us-west-2:{ACCOUNT}:cluster/{CLUSTER_ID}",
        "ClusterName": "hyperpod-eks-gpu",
        "InstanceGroupName": "workers",
        "InstanceId": f"i-workers{number}",
        "ResourceType": "Instance",
        "EventTime": datetime(2026, 11, 20, 10, number, tzinfo=UTC),
        "EventLevel": level,
        "Description": description,
    }


def test_the_first_script_that_failed_is_named_with_its_step(aws: StubbedAws) -> None:
    failed = "Instance lifecycle script execution has Failed"
    events = [event(3, failed), event(2, failed), event(1, "Instance creation failed")]
    aws.answer("sagemaker", "describe_cluster", {**cluster(), "NodeProvisioningMode": "Continuous"})
    aws.answer("sagemaker", "list_cluster_events", {"Events": events})
    for _ in events:
        aws.answer("sagemaker", "describe_cluster_event", {"EventDetails": event(1, "")})
    group = f"/aws/sagemaker/Clusters/hyperpod-eks-gpu/{CLUSTER_ID}"
    aws.answer("logs", "describe_log_groups", {"logGroups": [{"logGroupName": group, "creationTime": 1}]})
    aws.answer("logs", "describe_log_streams", {"logStreams": [{"logStreamName": STREAM}]})
    aws.answer("logs", "get_log_events", {"events": [{"timestamp": 1, "message": STEP}]})
    found = boots.first(stack(aws, "eks-gpu"), SINCE)
    assert found is not None
    assert found.text == f"Instance i-workers2: {failed}; {STREAM}: {STEP}"
    assert (found.type, about(found.text).code) == (HYPERPOD_CLUSTER, "HP015")
    aws.assert_all_asked()


def test_no_script_failed_where_events_are_about_something_else(aws: StubbedAws) -> None:
    aws.answer("sagemaker", "describe_cluster", {**cluster(), "NodeProvisioningMode": "Continuous"})
    aws.answer("sagemaker", "list_cluster_events", {"Events": [event(1, "Instance creation failed")]})
    aws.answer("sagemaker", "describe_cluster_event", {"EventDetails": event(1, "")})
    assert boots.first(stack(aws, "eks-gpu"), SINCE) is None


def test_of_more_events_than_are_described_the_script_is_still_found(aws: StubbedAws) -> None:
    failed = [event(one, "Instance lifecycle script execution has Failed") for one in range(30, 0, -1)]
    aws.answer("sagemaker", "describe_cluster", {**cluster(), "NodeProvisioningMode": "Continuous"})
    aws.answer("sagemaker", "list_cluster_events", {"Events": failed})
    for one in failed[:20]:
        aws.answer("sagemaker", "describe_cluster_event", {"EventDetails": one})
    aws.answer("logs", "describe_log_groups", {"logGroups": []})
    found = boots.first(stack(aws, "eks-gpu"), SINCE)
    assert found is not None
    assert found.text.startswith("Instance i-workers11: Instance lifecycle")


class Waiting(PulumiEngine):
    """An engine that waits for pods until somebody has told of the nodes, and then times out."""

    def __init__(self, told: threading.Event) -> None:
        self.title, self._told = "test", told

    def execute(self, _command: Command, _on_event: object) -> CommandRun:
        assert self._told.wait(5) or not self.on_aws
        return CommandRun(failed=True, causes=[Cause(text="timed out waiting for Kueue", resource="kueue")])

    def unsure(self) -> list[str]:
        return []


@pytest.mark.parametrize("on_aws", [True, False])
def test_what_the_engine_never_hears_of_is_said_at_once_and_becomes_the_first_cause(
    aws: StubbedAws, on_aws: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, said = threading.Event(), list[str]()
    scripts = Cause(text="LifecycleScriptFailed: fsx", resource="hyperpod-eks-gpu", type="a cluster")

    def note(line: str, _: str) -> None:
        said.append(line)
        told.set()

    monkeypatch.setattr(boots, "_SECONDS", 0.0)
    monkeypatch.setattr(boots, "first", lambda *_: scripts)
    monkeypatch.setattr(deploy, "note", note)
    engine = Waiting(told)
    monkeypatch.setattr(engine, "on_aws", on_aws)
    if not on_aws:
        told.set()
    report = deploy.run(stack(aws, "eks-gpu"), engine, "up")
    causes = [report.cause, *report.others]
    assert [cause.resource for cause in causes if cause] == ["hyperpod-eks-gpu", "kueue"][not on_aws :]
    assert [line.split(" (")[0] for line in said] == ["hyperpod-eks-gpu"] * on_aws


class Stoppable(Waiting):
    """An engine that ends when a person has answered, or while the question is open."""

    cancelled = False

    def cancel(self) -> None:
        self.cancelled = True
        self._told.set()

    def execute(self, _command: Command, _on_event: object) -> CommandRun:
        assert self._told.wait(5)
        causes = [] if self.cancelled else [Cause(text="timed out waiting for Kueue", resource="kueue")]
        return CommandRun(failed=True, cancelled=self.cancelled, causes=causes)


@pytest.mark.parametrize(("typed", "stopped"), [("y", True), ("n", False), ("", False)])
def test_a_person_at_a_terminal_may_stop_at_the_first_script_that_fails(
    aws: StubbedAws,
    typed: str,
    stopped: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    keyboard, terminal = pty.openpty()
    monkeypatch.setattr(boots, "_SECONDS", 0.0)
    scripts = Cause(text="lifecycle scripts fail: fsx", resource="hyperpod-eks-gpu", type=HYPERPOD_CLUSTER)
    monkeypatch.setattr(boots, "first", lambda *_: scripts)
    monkeypatch.setattr(deploy, "lifecycle_logs", lambda *_: [])
    told, answered = threading.Event(), console.answered

    def ask(question: str, pointless: threading.Event) -> bool:
        if not typed:
            told.set()
        found = answered(question, pointless)
        if not found:
            told.set()
        return found

    monkeypatch.setattr(console, "answered", ask)
    with os.fdopen(terminal) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        # Nothing typed: the deployment ends while the question is open.
        if typed:
            os.write(keyboard, f"{typed}\n".encode())
        report = deploy.run(stack(aws, "eks-gpu"), Stoppable(told), "up", offer=True)
    os.close(keyboard)
    assert (
        "Stop the deployment? Pulumi finishes what is in progress; what is made stays. [y/N]" in capsys.readouterr().err
    )
    assert (report.cancelled, report.code) == (stopped, Exit.CANCELLED if stopped else Exit.FAILED)
    assert report.cause == scripts
    assert ("run the same command to continue" in report.next_step) == stopped
    assert ("HyperPod keeps creating nodes that fail" in report.next_step) == stopped


@pytest.mark.parametrize("instead", ["no terminal", "CI", "-q", ""])
def test_nobody_is_offered_anything_where_nobody_can_answer(instead: str, monkeypatch: pytest.MonkeyPatch) -> None:
    keyboard, terminal = pty.openpty()
    with (
        os.fdopen(terminal) as stdin,
        os.fdopen(os.dup(keyboard) if instead != "no terminal" else os.open(os.devnull, os.O_WRONLY), "w") as stderr,
    ):
        monkeypatch.setattr("sys.stdin", stdin)
        monkeypatch.setattr("sys.stderr", stderr)
        monkeypatch.setattr(OPTIONS, "quiet", instead == "-q")
        monkeypatch.setenv("CI", "true" if instead == "CI" else "")
        assert console.can_ask() == (not instead)
    os.close(keyboard)
