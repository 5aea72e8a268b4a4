"""``health``: the results of the nodes' own checks, as the nodes leave them."""

import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from operations import target
from operations.cluster import deep_checks, health, jobs_on_nodes, nodes, sessions
from operations.cluster.node import Node
from operations.cluster.sessions import Remote
from operations.failures import Exit, cannot_know
from tests.operations.aws import (
    CLUSTER_ID,
    NODES,
    StubbedAws,
    cluster,
    command,
    ended,
    ended_json,
    node,
    run,
    stack,
    with_nodes,
    with_session,
)
from tests.operations.test_changes import SQUEUE, on_controller

NOW = 1_800_000_000


def results(**changes: Any) -> dict[str, Any]:
    """What hyperpod-health files."""
    return {
        "time": NOW - 40,
        "done": "drained",
        "checks": {
            "ecc": {"status": "bad", "detail": "GPU 3: row remap failed"},
            "clock": {"status": "ok", "detail": ""},
            "nvlink": {"status": "unknown", "detail": "command not found: nvidia-smi"},
        },
        **changes,
    }


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The nodes' answers by name, to change; and, under their command lines, who was asked what."""
    well = results(checks={"clock": {"status": "ok", "detail": ""}}, done="nothing to do")
    said = {"workers-1": f"{NOW}\n{json.dumps(well)}\n", "workers-2": f"{NOW}\n{json.dumps(results(), indent=2)}\n"}

    def run_remote(target: object, node: Node, line: str, timeout: float) -> Remote:
        if line.startswith("sinfo"):
            return Remote(code=0, output="ip-10-1-1-1|idle|none\nip-10-1-1-2|drained|hyperpod-health: ecc\n")
        said[f"{node.name} ran"] = line
        if said[node.name] == "gone":
            raise cannot_know("the session ended")
        return Remote(code=0, output=said[node.name])

    monkeypatch.setattr(sessions, "run_remote", run_remote)
    return said


def test_a_table_shows_each_worker_what_is_bad_and_what_was_done(asked: dict[str, str], aws: StubbedAws) -> None:
    with_nodes(aws)
    out, _ = ended(Exit.FAILED, "node", "health", "dev")
    rows = {line.split()[1]: line.split() for line in out.splitlines()[2:4]}
    assert rows["workers-1"] == ["PASS", "workers-1", "idle", "1", "40", "s", "well"]
    assert rows["workers-2"] == ["FAIL", "workers-2", "drained", "3", "40", "s", "ecc"]
    assert "workers-2: ecc: GPU 3: row remap failed" in out
    assert "workers-2: drained" in out
    assert "controller" not in out, "head nodes are HyperPod's to look after"
    assert asked["workers-1 ran"].endswith("cat /run/hyperpod-health/results.json")
    assert "bin/hyperpod-health" not in asked["workers-1 ran"]


def test_machines_get_every_check_and_now_runs_them_first(asked: dict[str, str], aws: StubbedAws) -> None:
    with_nodes(aws)
    found = ended_json(Exit.FAILED, "node", "health", "dev", "--now")
    assert found[1]["bad"] == {"ecc": "GPU 3: row remap failed"}
    assert found[1]["unknown"] == {"nvlink": "command not found: nvidia-smi"}
    assert (found[0]["state"], found[0]["status"]) == ("idle", "PASS")
    assert asked["workers-1 ran"].startswith("sudo -n /opt/hyperpod/bin/hyperpod-health")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("gone", "the session ended"),
        (f"{NOW}\ncat: /run/hyperpod-health/results.json: No such file or directory\n", "no results yet: cat:"),
        (f"{NOW}\n{json.dumps(results(time=NOW - 3600, checks={}))}\n", "last ran 60 minutes ago"),
        (f"{NOW}\n[]\n", "no results yet"),
    ],
)
def test_a_node_that_says_nothing_of_use_is_unknown_and_never_well(
    answer: str, said: str, asked: dict[str, str], aws: StubbedAws
) -> None:
    asked["workers-2"] = answer
    with_nodes(aws)
    out, _ = ended(Exit.CANNOT_KNOW, "node", "health", "dev")
    assert said in out


ARN = {"ClusterArn": f"arn:aws:sagemaker:us-west-2:123456789012:cluster/{CLUSTER_ID}"}


def checked(group: str, *checks: str, **more: Any) -> dict[str, Any]:
    return {"InstanceGroupName": group, "DeepHealthChecks": list(checks), **more}


# SageMaker API Reference, InstanceGroupHealthCheckConfiguration: without InstanceIds it is the entire group.
@pytest.mark.parametrize(
    ("words", "request_"),
    [
        ((), checked("workers", "InstanceStress")),
        (("workers-2",), checked("workers", "InstanceStress", InstanceIds=["i-workers2"])),
        (("i-workers1", "workers", "--check", "InstanceConnectivity"), checked("workers", "InstanceConnectivity")),
    ],
)
def test_hyperpods_own_checks_start_on_nodes_or_groups_after_their_jobs_are_named(
    words: tuple[str, ...], request_: dict[str, Any], aws: StubbedAws, plugin: Path
) -> None:
    on_controller(plugin, SQUEUE)
    with_nodes(aws, *NODES[:2], {**NODES[2], "ImageVersionStatus": "UpdateAvailable"})
    with_session(aws)
    aws.answer(
        "sagemaker",
        "start_cluster_health_check",
        ARN,
        ClusterName="hyperpod-dev",
        DeepHealthCheckConfigurations=[request_],
    )
    out, err = ended(Exit.GOOD, "node", "deep-check", "dev", *words, "--yes")
    assert "7  llama  ann: goes on; after 10 minutes its node is left out" in err
    assert "need the newest image, and workers-2 has none" in err
    assert "Follow it: hyperpod node list dev --watch" in out
    aws.assert_all_asked()


def slurm_says(plugin: Path, first: str, second: str) -> None:
    """The states of both workers by sinfo, and no job."""
    states = f"ip-10-1-1-1 {first}' 'ip-10-1-1-1 {first}' 'ip-10-1-1-2 {second}"
    known = "ip-10-1-1-1 ip-10-1-1-2"
    command(plugin, "sinfo", f"case $* in *%T*) printf '%s\\n' '{states}';; *) printf '%s\\n' {known};; esac")
    command(plugin, "squeue", "true")


def test_a_node_with_a_job_is_left_out_by_idle(aws: StubbedAws, plugin: Path) -> None:
    slurm_says(plugin, "mixed", "idle")
    with_nodes(aws)
    with_session(aws)
    with_session(aws)
    asked = [checked("workers", "InstanceStress", InstanceIds=["i-workers2"])]
    aws.answer("sagemaker", "start_cluster_health_check", ARN, DeepHealthCheckConfigurations=asked)
    code, out, _ = run("node", "deep-check", "dev", "--idle", "--yes")
    assert (code, "HyperPod checks 1 nodes" in out) == (Exit.GOOD, True)
    aws.assert_all_asked()


# sinfo(1), NODE STATE CODES: such a node takes no job.
@pytest.mark.parametrize("state", ["drained", "idle*", "allocated", "maint"])
def test_without_an_idle_node_nothing_is_started_and_nothing_has_failed(
    state: str, aws: StubbedAws, plugin: Path
) -> None:
    slurm_says(plugin, state, state)
    with_nodes(aws)
    with_session(aws)
    code, out, _ = run("node", "deep-check", "dev", "--idle", "--at-most", "1", "--yes")
    assert (code, out) == (Exit.GOOD, "No node is idle. Nothing was started.\n")


def test_each_node_has_its_turn_within_as_many_days_as_it_takes() -> None:
    nodes: list[Any] = list(range(7))
    days = [date.fromordinal(739_000 + day) for day in range(4)]
    turns = [deep_checks.in_turn(nodes, 2, day) for day in days]
    assert {len(turn) for turn in turns} == {2}
    assert {node for turn in turns for node in turn} == set(nodes)
    assert deep_checks.in_turn(nodes, None, days[0]) == deep_checks.in_turn(nodes, 9, days[0]) == nodes


@pytest.mark.parametrize(
    ("stack", "device"),
    [
        ("eks-gpu", "nvidia.com/gpu"),
        ("eks-trainium", "aws.amazon.com/neuron"),
        ("eks-trainium", "aws.amazon.com/neuroncore"),
    ],
)
@pytest.mark.parametrize(
    ("phase", "limit", "idle"),
    [
        ("Running", "", False),
        ("Pending", "", False),
        ("Succeeded", "", True),
        ("Failed", "", True),
        ("Running", "cpu", True),
    ],
)
def test_a_pod_with_devices_keeps_its_node_from_being_idle_until_it_has_ended(
    phase: str, limit: str, idle: bool, stack: str, device: str, kubernetes: Callable[..., Any]
) -> None:
    """A pod that has a node and is Pending pulls its image: its job has begun."""
    containers = [{"resources": {"limits": {limit or device: "1"}}}]
    spec = {"nodeName": "hyperpod-i-workers1", "containers": containers}
    kubernetes(pods=[{"spec": spec, "status": {"phase": phase}}])
    worker: Any = SimpleNamespace(kubernetes_name="hyperpod-i-workers1")
    assert bool(jobs_on_nodes.idle(target.load(stack), [worker], [worker])) is idle


# SageMaker Developer Guide, "Deep health checks" of Slurm clusters: workers with GPUs, and two of the three checks.
@pytest.mark.parametrize(
    ("stack", "words", "said"),
    [
        ("dev", ("controller",), "controller-1: no accelerators to check"),
        ("dev", ("--check", "MultiNodeTrainingValidation"), "on Slurm, HyperPod has no MultiNodeTrainingValidation"),
        ("slurm-trainium", (), "on Slurm, HyperPod has deep health checks only for GPUs"),
    ],
)
def test_what_hyperpod_does_not_check_is_refused_before_it_is_asked(
    stack: str, words: tuple[str, ...], said: str, aws: StubbedAws
) -> None:
    aws.answer("sagemaker", "describe_cluster", cluster())
    aws.answer("sagemaker", "list_cluster_nodes", {"ClusterNodeSummaries": [*NODES]})
    _, err = ended(Exit.BAD_INPUT, "node", "deep-check", stack, *words, "--yes")
    assert said in err
    aws.assert_all_asked()


def condition(status: str, message: str, minutes: int = 2) -> dict[str, str]:
    """What node-problem-detector writes."""
    said = datetime.now(UTC) - timedelta(minutes=minutes)
    return {"type": "HyperPodUnhealthy", "status": status, "message": message, "lastHeartbeatTime": said.isoformat()}


def test_many_nodes_of_eks_are_asked_in_one_call_and_those_without_a_condition_by_session(
    asked: dict[str, str],
    aws: StubbedAws,
    kubernetes: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = {
        1: condition("False", "all checks pass"),
        3: condition("True", "ecc: GPU 3: row remap failed;efa: 31 of 32 EFA devices;"),
        4: condition("Unknown", "the checks run no more"),
    }
    kubernetes(
        nodes=[
            {"metadata": {"name": f"hyperpod-i-workers{number}"}, "spec": {}, "status": {"conditions": [one]}}
            for number, one in said.items()
        ]
    )
    summaries = [node("workers", number) for number in (1, 2, 3, 4)]
    aws.answer("sagemaker", "describe_cluster", cluster(groups=(("workers", "ml.p5.48xlarge", 4),)))
    aws.answer("sagemaker", "list_cluster_nodes", {"ClusterNodeSummaries": summaries})
    target = stack(aws, "eks-gpu")
    monkeypatch.setattr(sessions, "AT_ONCE", 3)
    first, second, third, fourth = health.ask(target, nodes.list_nodes(target), now=False)
    assert [one for one in asked if one.endswith(" ran")] == ["workers-2 ran"], "it has no condition"
    assert (first.status, round(first.age_seconds or 0)) == ("PASS", 120)
    assert second.bad == {"ecc": "GPU 3: row remap failed"}
    assert third.bad == {"ecc": "GPU 3: row remap failed", "efa": "31 of 32 EFA devices"}
    assert (fourth.status, fourth.trouble) == ("UNKNOWN", "the checks run no more")
