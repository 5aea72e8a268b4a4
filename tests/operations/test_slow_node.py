"""``find-slow-node``: pairs of workers on Slurm and Kubernetes, and the node that is slow in the verbs' own words."""

import json
import subprocess
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hyperpod_commands import pairs
from hyperpod_commands.pairs import Pair

from operations.cluster import sessions, slow_node
from operations.cluster.sessions import Remote
from operations.failures import Exit, Failure
from operations.jobs.render import render
from tests.operations.aws import FakeKubernetes, StubbedAws, cluster, ended, node, run_json, stack, with_nodes
from tests.support import config

WORKERS = [node("controller", 1), *(node("workers", number) for number in (1, 2))]


def printed(*tested: Pair) -> str:
    """What hyperpod-find-slow-node --json prints, after its progress."""
    findings = pairs.judge(tested, None, {}).record()
    document = {"test": "nccl", "tested": [], "pairs": [asdict(pair) for pair in tested], **findings}
    return "round 1 of 3\n" + json.dumps(document, indent=2)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, float]]:
    """The commands that were run on nodes, whose output is that of a slow ip-10-1-1-2."""
    found: list[tuple[str, float]] = []
    fast, slow = Pair(("ip-10-1-1-1", "ip-10-1-1-3"), 40.0), 12.0
    text = printed(fast, Pair(("ip-10-1-1-1", "ip-10-1-1-2"), slow), Pair(("ip-10-1-1-2", "ip-10-1-1-3"), slow))

    def run_remote(target: object, where: object, line: str, timeout: float) -> Remote:
        found.append((line, timeout))
        return Remote(code=1, output=text)

    monkeypatch.setattr(sessions, "run_remote", run_remote)
    return found


def test_slurm_names_the_slow_node_as_the_verbs_do_and_what_to_do_with_it(
    asked: list[tuple[str, float]], aws: StubbedAws
) -> None:
    with_nodes(aws, *WORKERS)
    aws.answer("sagemaker", "list_cluster_nodes", {"ClusterNodeSummaries": WORKERS})
    out, _ = ended(Exit.FAILED, "node", "find-slow", "dev", "--timeout", "60")
    assert "slow node: workers-2, in most of its pairs" in out
    assert "hyperpod node replace dev workers-2" in out
    ((line, seconds),) = asked
    assert line == "sudo -n /opt/hyperpod/bin/hyperpod-find-slow-node 2 --json --timeout 60"
    assert seconds == 60 + 120, "one round of one pair, and the queue"


def test_machines_get_every_pair(asked: list[tuple[str, float]], aws: StubbedAws) -> None:
    with_nodes(aws, *WORKERS)
    aws.answer("sagemaker", "list_cluster_nodes", {"ClusterNodeSummaries": WORKERS})
    code, found = run_json("node", "find-slow", "dev")
    assert (code, found["passed"], found["nodes"]) == (Exit.FAILED, False, ["workers-2"])
    assert found["pairs"][0] == {"nodes": ["workers-1", "ip-10-1-1-3"], "busbw": 40.0, "reason": ""}


@pytest.mark.parametrize(
    ("words", "said"),
    [(("dev", "--nodes", "3"), "from 2 to 2"), (("dev", "--nodes", "1"), "greater than or equal to 2")],
)
def test_a_number_that_makes_no_pair_is_bad_input(words: tuple[str, ...], said: str, aws: StubbedAws) -> None:
    _, err = ended(Exit.BAD_INPUT, "node", "find-slow", *words)
    assert said in err


def _row(busbw: float) -> str:
    return f"1073741824 268435456 float sum -1 1.0 1.0 {busbw} 0"


THREE = 'workers=[{"name":"workers","instanceType":"ml.p5.48xlarge","count":3}]'


def test_kubernetes_names_the_slow_node_by_its_pods_place(
    aws: StubbedAws, kubernetes: Callable[..., FakeKubernetes], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = [f"0 1| {_row(380.0)}", f"0 2| {_row(90.0)}", "1 2| mpirun: no route to host"]
    names = [f"hyperpod-i-workers{number}" for number in (1, 2, 3)]
    api = kubernetes(log="\n".join(log), nodes=[{"metadata": {"name": name, "labels": {}}} for name in names])
    launcher = api.pods

    def pods(*words: Any) -> list[Any]:
        place = "training.kubeflow.org/replica-index"
        workers = [
            {
                "metadata": {"name": f"find-slow-node-worker-{number}", "uid": name, "labels": {place: str(number)}},
                "spec": {"nodeName": name},
                "status": {"phase": "Running"},
            }
            for number, name in enumerate(names)
        ]
        return [*launcher(*words), *workers]

    monkeypatch.setattr(api, "pods", pods)
    chosen = stack(aws, "eks-gpu", THREE)
    aws.answer("sagemaker", "describe_cluster", cluster())
    aws.answer("sagemaker", "list_cluster_nodes", {"ClusterNodeSummaries": [node("workers", n) for n in (1, 2, 3)]})
    found = slow_node.in_the_verbs_terms(slow_node.run(chosen, None, 5))
    assert found.findings.nodes == ("workers-3",)
    assert [(pair.nodes, pair.busbw) for pair in found.pairs] == [
        (("workers-1", "workers-2"), 380.0),
        (("workers-1", "workers-3"), 90.0),
        (("workers-2", "workers-3"), None),
    ]
    # 70 % of p5's 3,200 Gbit/s, or 80 % of the fastest pair.
    assert found.findings.limit == pytest.approx(0.8 * 380)
    assert api.did[-2:] == ["delete MPIJob", "delete ConfigMap"]


def test_a_job_that_tests_no_pair_says_why(aws: StubbedAws, kubernetes: Callable[..., FakeKubernetes]) -> None:
    kubernetes(log="no address of find-slow-node-worker-1").ends = "Failed"
    with pytest.raises(Failure, match="the job failed: no address of find-slow-node-worker-1"):
        slow_node.run(stack(aws, "eks-gpu", THREE), None, 5)


def test_the_jobs_script_tests_every_pair_of_every_round_between_its_two_hosts(tmp_path: Path) -> None:
    """The rendered script runs, with a hostfile and an mpirun of ours."""
    workers = [{"name": "workers", "instanceType": "ml.p5.48xlarge", "count": 5}]
    _, job = render("find-slow-node", config("eks-gpu", workers=workers))
    launcher = job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]
    script = launcher["command"][-1].replace("/etc/mpi/hostfile", str(tmp_path / "hostfile"))
    script = script.replace("/opt/amazon/openmpi/bin/mpirun", str(tmp_path / "mpirun"))
    (tmp_path / "hostfile").write_text("".join(f"host-{place} slots=8\n" for place in range(5)))
    (tmp_path / "mpirun").write_text('#!/bin/sh\necho "$@"\n[ "${2}" = 16 ] || exit 1\n')
    (tmp_path / "mpirun").chmod(0o755)
    done = subprocess.run([*launcher["command"][:-1], script], capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 0, done.stderr
    schedule = [pair for members in pairs.rounds([str(place) for place in range(5)]) for pair in members]
    said = {tuple(line.split("|")[0].split()): line for line in done.stdout.splitlines()}
    assert set(said) == set(schedule)
    for one, other in schedule:
        assert f"--host host-{one}:8,host-{other}:8" in said[one, other]
