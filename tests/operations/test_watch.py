"""``watch`` follows nodes until all run, or ends at the first that cannot, and is never silent for long."""

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from operations import records
from operations.deployment import watch
from operations.deployment.errors import DEPLOYMENTS
from operations.failures import Exit
from tests.operations.aws import CLUSTER_ID, NODES, StubbedAws, cluster, ended, node, run, run_json, stack
from tests.operations.test_boots import STEP, STREAM, event

BOOTS = (*NODES[:2], node("workers", 2, "Pending"))
FAILED = "Instance lifecycle script execution has Failed"


@pytest.fixture(autouse=True)
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Time passes only by sleeping; how long each sleep was."""
    found: list[float] = []
    monkeypatch.setattr(time, "sleep", found.append)
    monkeypatch.setattr(time, "monotonic", lambda: sum(found))
    monkeypatch.setattr(records, "read", lambda *_: [])
    return found


def look(
    aws: StubbedAws, *nodes: dict[str, Any], events: tuple[dict[str, Any], ...] = (), log: str | None = None
) -> None:
    """What AWS answers to one look; with a line the scripts of a worker have written it."""
    aws.answer("sagemaker", "describe_cluster", {**cluster(), "NodeProvisioningMode": "Continuous"})
    aws.answer("sagemaker", "list_cluster_nodes", {"ClusterNodeSummaries": list(nodes)})
    aws.answer("sagemaker", "list_cluster_events", {"Events": list(events)})
    for one in events:
        aws.answer("sagemaker", "describe_cluster_event", {"EventDetails": one})
    if log is not None:
        scripts(aws, log)


def scripts(aws: StubbedAws, line: str) -> None:
    group = f"/aws/sagemaker/Clusters/hyperpod-dev/{CLUSTER_ID}"
    aws.answer("logs", "describe_log_groups", {"logGroups": [{"logGroupName": group, "creationTime": 1}]})
    aws.answer("logs", "describe_log_streams", {"logStreams": [{"logStreamName": STREAM}]})
    aws.answer("logs", "get_log_events", {"events": [{"timestamp": 1, "message": line}]})


def test_each_change_is_told_and_the_end_is_good_when_all_nodes_run(aws: StubbedAws, slept: list[float]) -> None:
    look(aws, *NODES[:2], log="step fsx ... ok")
    look(aws, *BOOTS, events=(event(1, "No capacity", "Warn"),), log="step fsx ... ok")
    look(aws, *NODES)
    code, out, err = run("watch", "dev")
    assert (code, out.splitlines()) == (Exit.GOOD, ["dev: all 3 nodes run.", "Next: hyperpod validate dev"])
    lines = [line for line in err.splitlines() if " after " not in line]
    assert lines[-5:] == [
        f"{STREAM}: step fsx ... ok",
        "workers i-workers2: Pending",
        "Instance i-workers1: No capacity",
        "workers i-workers2: Pending -> Running",
    ]
    assert "controller 1 of 1, workers 1 of 2 after 0:05" in err
    assert max(slept) <= 5
    aws.assert_all_asked()


def test_the_first_script_that_fails_ends_it_with_step_log_and_next_step(aws: StubbedAws) -> None:
    look(aws, *BOOTS, events=(event(1, FAILED),), log=STEP)
    scripts(aws, STEP)
    code, document = run_json("watch", "dev")
    assert (code, document["exit_code"], document["complete"]) == (Exit.FAILED, Exit.FAILED, False)
    assert document["cause"]["text"] == f"Instance i-workers1: {FAILED}; {STREAM}: {STEP}"
    assert (document["code"], document["node_logs"][0]["lines"]) == ("HP015", [STEP])
    assert "names the step that failed" in document["next_step"]
    assert document["nodes"] == {"controller": [1, 1], "workers": [1, 2]}


def test_what_sagemaker_calls_failed_ends_it_too(aws: StubbedAws) -> None:
    look(aws, *NODES[:2], node("workers", 2, "Failure", "the EFA health checks did not run successfully"))
    scripts(aws, "step fsx ... ok")
    out, _ = ended(Exit.FAILED, "watch", "dev")
    assert "workers-2 i-workers2: the EFA health checks did not run successfully" in out
    assert "The end of" not in out


def test_after_the_time_limit_it_says_what_is_missing(aws: StubbedAws, slept: list[float]) -> None:
    look(aws, *BOOTS, log="step fsx ... ok")
    look(aws, *BOOTS, log="step fsx ... ok")
    code, out, _ = run("watch", "dev", "--timeout", "15")
    assert (code, sum(slept)) == (Exit.FAILED, 15)
    assert "not complete after 0:15: 1 of 1 controller, 1 of 2 workers" in out
    assert "hyperpod errors dev" in out


def test_aws_may_fail_to_answer_a_few_times(aws: StubbedAws) -> None:
    look(aws, *BOOTS, log="step fsx ... ok")
    for _ in range(watch._MOST_UNANSWERED - 1):
        aws.refuse("sagemaker", "describe_cluster", "ThrottlingException")
    look(aws, *BOOTS, log="step fsx ... ok")
    for _ in range(watch._MOST_UNANSWERED):
        aws.refuse("sagemaker", "describe_cluster", "ThrottlingException")
    _, err = ended(Exit.CANNOT_KNOW, "watch", "dev")
    assert err.count("AWS did not answer: throttled") == 2 * (watch._MOST_UNANSWERED - 1)
    aws.assert_all_asked()


def test_failures_from_before_the_last_update_are_not_its_own(aws: StubbedAws, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = datetime(2026, 11, 20, 10, tzinfo=UTC)
    kept = [{"command": "up", "time": ended.isoformat(), "seconds": 600.0}, {"command": "refresh"}]
    monkeypatch.setattr(records, "read", lambda _, name: kept if name == DEPLOYMENTS else [])
    assert watch.begun(stack(aws)) == ended - timedelta(minutes=11)
    del kept[0]
    assert timedelta(minutes=59) < datetime.now(UTC) - watch.begun(stack(aws)) < timedelta(minutes=61)
