"""``replace``, ``reboot``, ``scale`` and ``update-software``: jobs are named first, and only what was asked is done."""

import re
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from operations.cluster import changes, nodes, sessions
from operations.cluster.node import Node
from operations.failures import Exit, Failure
from tests.operations.aws import (
    LOGICAL,
    NODES,
    TO_COME,
    FakeKubernetes,
    StubbedAws,
    command,
    ended,
    ended_json,
    node,
    run,
    run_json,
    stack,
    with_nodes,
    with_session,
)
from tests.operations.small import Planning
from tests.operations.test_nodes import with_nodes_of_eks

# What ends a name is in the question, as squeue does it (its opts.c: a type, a colon, and a suffix).
SQUEUE = (
    'end=$(grep -o ",Name:[^ ]*" <<< "$*"); end=${end#,Name:}; echo "7|ann|1|llama$end"; echo "8|ben|0|notebook$end"'
)


def on_controller(plugin: Path, squeue: str, known: str = "ip-10-1-1-1 ip-10-1-1-2") -> None:
    """What Slurm's commands do on the controller: sinfo has a line for each node and partition."""
    command(plugin, "squeue", squeue)
    command(plugin, "sinfo", f"printf '%s\\n' {known}")


@pytest.mark.parametrize("verb", ["replace", "reboot"])
def test_the_jobs_on_a_node_are_named_before_it_goes(verb: str, aws: StubbedAws, plugin: Path) -> None:
    on_controller(plugin, SQUEUE)
    with_nodes(aws)
    with_session(aws)
    operation = f"batch_{verb}_cluster_nodes"
    aws.answer(
        "sagemaker", operation, {"Successful": ["i-workers2"]}, NodeIds=["i-workers2"], ClusterName="hyperpod-dev"
    )
    out, err = ended(Exit.GOOD, "node", verb, "dev", "i-workers2", "--yes")
    assert "7  llama  ann: returns to the queue" in err
    assert "8  notebook  ben: is lost" in err
    assert "/fsx stays" in err
    assert "accepted" in out
    aws.assert_all_asked()


@pytest.mark.parametrize("verb", ["replace", "reboot"])
def test_a_node_without_an_instance_is_named_by_its_logical_id(verb: str, aws: StubbedAws) -> None:
    with_nodes(aws, *NODES, TO_COME)
    answer = {"SuccessfulNodeLogicalIds": [LOGICAL]}
    aws.answer("sagemaker", f"batch_{verb}_cluster_nodes", answer, NodeLogicalIds=[LOGICAL], NodeIds=None)
    with_nodes(aws, *NODES, TO_COME)
    failed = {"NodeLogicalId": LOGICAL, "ErrorCode": "InvalidInstanceStatus", "Message": "it is being made"}
    aws.answer("sagemaker", f"batch_{verb}_cluster_nodes", {"FailedNodeLogicalIds": [failed]})
    code, found = run_json("node", verb, "dev", LOGICAL, "--yes")
    assert (code, found["accepted"], found["jobs"]) == (Exit.GOOD, [LOGICAL], [])
    _, err = ended(Exit.FAILED, "node", verb, "dev", LOGICAL, "--yes")
    assert f"{LOGICAL}: InvalidInstanceStatus: it is being made" in err


def test_the_jobs_are_listed_though_slurm_does_not_know_each_node(aws: StubbedAws, plugin: Path) -> None:
    # squeue's opts.c ends with "Invalid node name" for one that is not in slurm.conf, and lists nothing.
    unknown = 'echo "squeue: error: Invalid node name" >&2; exit 1'
    squeue = f"[[ ${{*: -1}} == --nodelist=ip-10-1-1-1 ]] || {{ {unknown}; }}; {SQUEUE}"
    on_controller(plugin, squeue, "ip-10-1-1-1 ip-10-1-1-1 ip-10-1-1-12")
    with_nodes(aws)
    with_session(aws)
    target = stack(aws)
    found = nodes.list_nodes(target)
    workers = [node for node in found if node.role == "worker"]
    plan = changes.plan(target, "scale", found, [*workers, replace(workers[0], hostname="", instance_id="i-new")])
    assert (plan.unknown, [job.id for job in plan.jobs]) == ("", ["7", "8"])


def test_without_a_yes_nothing_happens(aws: StubbedAws, plugin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    on_controller(plugin, SQUEUE)
    with_nodes(aws)
    with_session(aws)
    _, err = ended(Exit.BAD_INPUT, "node", "replace", "dev", "workers-2")
    assert "--yes" in err
    assert "Replace workers-2 (i-workers2, ip-10-1-1-2, 10.1.1.2)?" in err
    aws.assert_all_asked()


# SageMaker Developer Guide, "Manually replace or reboot a node using Slurm": a node "is recovered with the same host
# name", which is made of its address.
@pytest.mark.parametrize("name", ["workers-1", "ip-10-1-1-1", "10.1.1.1"])
@pytest.mark.parametrize("verb", ["replace", "reboot"])
def test_a_name_that_a_replacement_gets_too_needs_a_person_to_look(verb: str, name: str, aws: StubbedAws) -> None:
    with_nodes(aws)
    _, err = ended(Exit.BAD_INPUT, "node", verb, "dev", name, "--yes")
    assert f"{name} may name another instance after a replacement" in err
    assert "with --yes, give i-workers1" in err
    aws.assert_all_asked()


def test_a_refused_node_is_a_failure_with_sagemakers_reason(aws: StubbedAws, plugin: Path) -> None:
    on_controller(plugin, "true")
    with_nodes(aws)
    with_session(aws)
    failed = {"NodeId": "i-workers1", "ErrorCode": "InvalidInstanceStatus", "Message": "it is being replaced"}
    aws.answer("sagemaker", "batch_replace_cluster_nodes", {"Failed": [failed]})
    _, err = ended(Exit.FAILED, "node", "replace", "dev", "i-workers1", "-y")
    assert "workers-1: InvalidInstanceStatus: it is being replaced" in err


def test_the_slurm_controller_is_not_replaced_and_nobody_is_asked(aws: StubbedAws) -> None:
    with_nodes(aws)
    _, err = ended(Exit.BAD_INPUT, "node", "replace", "dev", "i-controller1", "-y")
    assert "controller-1 is the Slurm controller, which SageMaker does not replace" in err
    assert "hyperpod node reboot" in err
    aws.assert_all_asked()


def test_a_groups_name_is_not_taken_for_its_first_node_here(aws: StubbedAws) -> None:
    with_nodes(aws)
    _, err = ended(Exit.BAD_INPUT, "node", "replace", "dev", "workers", "-y")
    assert 'no node "workers"' in err


def test_a_node_can_be_replaced_while_slurm_cannot_be_asked(aws: StubbedAws, plugin: Path) -> None:
    on_controller(plugin, "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1")
    with_nodes(aws)
    with_session(aws)
    aws.answer("sagemaker", "batch_replace_cluster_nodes", {"Successful": ["i-workers1"]})
    document = ended_json(Exit.GOOD, "node", "replace", "dev", "i-workers1", "-y")
    assert "Unable to contact slurm controller" in document["unknown"]


def on_slurm(monkeypatch: pytest.MonkeyPatch, *answers: str) -> list[str]:
    """Sessions answer with these jobs; what was asked is in the list."""
    asked: list[str] = []

    def run_remote(target: object, node: object, line: str, timeout: float) -> sessions.Remote:
        asked.append(line)
        end = line.partition(",Name:")[2].partition("'")[0]
        return sessions.Remote(code=0, output="".join(f"{answer}{end}\n" for answer in answers))

    monkeypatch.setattr(sessions, "run_remote", run_remote)
    return asked


@pytest.mark.parametrize(
    ("affected", "asked"),
    [
        (("workers-1",), ["ip-10-1-1-1"]),
        (("login-1", "workers-2"), ["ip-10-1-1-2"]),
        (("workers-1", "workers-2"), ["ip-10-1-1-1", "ip-10-1-1-2"]),
        (("login-1",), None),
        (("controller-1",), []),
        (("controller-1", "workers-1"), []),
    ],
)
def test_the_scheduler_is_asked_for_the_jobs_of_workers_and_for_all_of_a_controllers(
    affected: tuple[str, ...], asked: list[str] | None, aws: StubbedAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = on_slurm(monkeypatch, "7|ann|1|llama")
    with_nodes(aws, *NODES, node("login", 1))
    target = stack(aws, "dev", 'hyperpod:login={"instanceType": "ml.m5.large"}')
    found = nodes.list_nodes(target)
    plan = changes.plan(target, "reboot", found, [one for one in found if one.name in affected])
    assert len(plan.jobs) == len(lines) == (asked is not None)
    for line in lines:
        # A job that begins or ends now is on its nodes as well.
        assert "--states=RUNNING,COMPLETING,CONFIGURING " in line
        assert re.findall(r"-e (\S+)", line) == asked
        assert ("--nodelist" in line) == bool(asked)
    assert ("Slurm controller" in " ".join(plan.effects)) is ("controller-1" in affected)
    # AWS promises the instance store of a rebooted node to nobody (awsome-distributed-ai, hyperpod-mental-model.md).
    assert "may empty /opt/dlami/nvme" in " ".join(plan.effects)


@pytest.mark.parametrize(("count", "said"), [("1", True), ("3", False)])
def test_the_jobs_that_fewer_nodes_may_end_are_named_first(
    count: str, said: bool, aws: StubbedAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_slurm(monkeypatch, "7|ann|1|llama")
    engine = Planning()
    monkeypatch.setattr("operations.commands.changes.open_engine", lambda *_, **__: nullcontext((engine, None)))
    if said:
        with_nodes(aws)
    _, err = ended(Exit.GOOD, "scale", "dev", "workers", count, "--yes")
    assert ("1 jobs may be affected: AWS chooses the nodes" in err) is said
    assert engine.did == [f"configure {{'hyperpod:workers[0].count': '{count}'}}", "preview", "up"]


@pytest.mark.parametrize(
    ("count", "jobs", "done"), [("1", ["7|ann|1|llama"], False), ("1", [], True), ("3", ["7|ann|1|llama"], True)]
)
def test_a_timer_removes_no_node_while_a_job_runs(
    count: str, jobs: list[str], done: bool, aws: StubbedAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_slurm(monkeypatch, *jobs)
    engine = Planning()
    monkeypatch.setattr("operations.commands.changes.open_engine", lambda *_, **__: nullcontext((engine, None)))
    with_nodes(aws)
    aws.answer("sagemaker", "list_cluster_nodes", {"ClusterNodeSummaries": NODES})
    code, _, err = run("scale", "dev", "workers", count, "--if-idle", "--yes")
    assert (code, bool(engine.did)) == ((Exit.GOOD, True) if done else (Exit.FAILED, False))
    assert ("nothing was changed: 1 jobs run there" in err) is not done


def test_no_node_gets_new_software_without_a_yes(aws: StubbedAws, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    on_slurm(monkeypatch)
    with_nodes(aws)
    _, err = ended(Exit.BAD_INPUT, "node", "update-software", "dev")
    assert "Update the software of 3 nodes?" in err
    aws.assert_all_asked()


def test_the_queue_goes_with_the_root_volume_of_a_controller_that_gets_new_software(
    aws: StubbedAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Developer Guide, "Update the SageMaker HyperPod platform software of a cluster": back up slurmctld's folder."""
    on_slurm(monkeypatch, "7|ann|1|llama")
    with_nodes(aws)
    found = nodes.list_nodes(stack(aws))

    def planned(verb: changes.Verb, *settings: str) -> tuple[str, list[str]]:
        plan = changes.plan(stack(aws, "dev", *settings), verb, found, found)
        return plan.effects[-1], [job.survives for job in plan.jobs]

    effect, jobs = planned("update-software")
    assert "the queue is on its root volume" in effect
    assert jobs == ["is lost with the queue"]
    for verb, kept in (("update-software", ['hyperpod:slurm={"sharedQueue": true}']), ("reboot", [])):
        effect, jobs = planned(verb, *kept)  # type: ignore[arg-type]
        assert "running jobs continue" in effect
        assert jobs == ["returns to the queue"]


def test_so_many_nodes_at_a_time_is_for_eks(aws: StubbedAws) -> None:
    """Developer Guide, "Update your AMI version in your SageMaker HyperPod cluster": batches only with EKS."""
    _, err = ended(Exit.BAD_INPUT, "node", "update-software", "dev", "--group", "workers", "--batch", "2", "--yes")
    assert "all nodes of a Slurm group at once" in err


def test_software_is_updated_group_by_group_and_so_many_nodes_at_a_time(
    aws: StubbedAws, kubernetes: Callable[..., FakeKubernetes]
) -> None:
    kubernetes(pods=[])
    with_nodes_of_eks(aws)
    arn = "arn:aws:sagemaker:us-west-2:123456789012:cluster/abcdef123456"
    aws.answer(
        "sagemaker",
        "update_cluster_software",
        {"ClusterArn": arn},
        InstanceGroups=[{"InstanceGroupName": "workers"}],
        DeploymentConfig={"RollingUpdatePolicy": {"MaximumBatchSize": {"Type": "INSTANCE_COUNT", "Value": 1}}},
    )
    code, document = run_json("node", "update-software", "eks-gpu", "--group", "workers", "--batch", "1", "--yes")
    assert (code, document["cluster"]) == (Exit.GOOD, arn)
    code, _, err = run("node", "update-software", "dev", "--group", "wrokers")
    assert code == Exit.BAD_INPUT, "the name is checked before anything is asked"
    assert "groups here: controller, workers" in err


PODS: list[dict[str, Any]] = [
    {
        "metadata": {"name": name, "namespace": "training", "ownerReferences": [{"kind": kind}] if kind else []},
        "spec": {"nodeName": f"hyperpod-i-workers{number}"},
        "status": {"phase": "Running"},
    }
    for name, kind, number in (
        ("llama-worker-0", "PyTorchJob", 1),
        ("device-plugin", "DaemonSet", 1),
        ("alone", "", 1),
        ("elsewhere", "PyTorchJob", 2),
    )
]
PODS.append({**PODS[0], "metadata": {**PODS[0]["metadata"], "name": "done"}, "status": {"phase": "Succeeded"}})


def test_pods_are_named_with_what_becomes_of_them(aws: StubbedAws, kubernetes: Callable[..., FakeKubernetes]) -> None:
    kubernetes(pods=PODS)
    with_nodes_of_eks(aws)
    target = stack(aws, "eks-gpu")
    found = nodes.list_nodes(target)
    plan = changes.plan(target, "replace", found, found[:1])
    assert [(job.name, job.survives) for job in plan.jobs] == [
        ("llama-worker-0", "is recreated by its PyTorchJob"),
        ("alone", "is lost: nothing recreates it"),
    ]


@pytest.mark.parametrize("number", [0, 26])
def test_sagemaker_takes_1_to_25_nodes_at_once(number: int, aws: StubbedAws) -> None:
    node = Node(
        name="w", group="workers", role="worker", instance_id="i-1", instance_type="ml.g5.16xlarge", status="Running"
    )
    for change in (changes.replace_nodes, changes.reboot_nodes):
        with pytest.raises(Failure, match=rf"^{number} nodes at once") as refused:
            change(stack(aws), [node] * number)
        assert refused.value.code == Exit.BAD_INPUT
