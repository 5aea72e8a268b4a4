"""``remove``: the nodes that somebody names go, drained, and the counts in the configuration follow."""

from contextlib import nullcontext
from typing import Any

import pytest

from operations.aws import SERVED
from operations.cluster import draining, remove
from operations.cluster import nodes as cluster_nodes
from operations.failures import Exit, Failure
from tests.operations.aws import (
    LOGICAL,
    NODES,
    TO_COME,
    FakeKubernetes,
    StubbedAws,
    cluster,
    ended,
    ended_json,
    node,
    run,
    run_json,
    stack,
    with_nodes,
)
from tests.operations.small import Planning
from tests.operations.test_changes import PODS
from tests.operations.test_nodes import with_nodes_of_eks
from tests.operations.test_run_scripts import ONE, TWO, Slurm, answering
from tests.support import ROOT

DRAIN = "State=DRAIN Reason=hyperpod node remove"
GROUPS = (("controller", "ml.m5.2xlarge", 1), ("workers", "ml.g5.16xlarge", 1))
# Code and shape by the API's model (BatchDeleteClusterNodesError).
FAILED = {"NodeId": "i-workers2", "Code": "NodeIdInUse", "Message": "The node is in use by another operation."}


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch, aws: StubbedAws) -> Slurm:
    with_nodes(aws, *NODES, TO_COME)
    monkeypatch.setattr(remove, "_AGAIN_SECONDS", 0.0)
    return answering(monkeypatch)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Planning:
    found = Planning()
    monkeypatch.setattr("operations.commands.remove.open_engine", lambda *_, **__: nullcontext((found, None)))
    return found


def deleted(aws: StubbedAws, *there: dict[str, Any], count: int = 1, **answer: Any) -> None:
    """SageMaker's answer, the nodes that it lists then, and the count that it wants."""
    aws.answer("sagemaker", "batch_delete_cluster_nodes", answer)
    aws.answer("sagemaker", "list_cluster_nodes", {"ClusterNodeSummaries": [*NODES]})
    aws.answer("sagemaker", "list_cluster_nodes", {"ClusterNodeSummaries": list(there)})
    aws.answer("sagemaker", "describe_cluster", cluster(groups=(GROUPS[0], ("workers", "ml.g5.16xlarge", count))))


def test_named_workers_are_drained_then_deleted_and_the_count_follows(
    slurm: Slurm, engine: Planning, aws: StubbedAws
) -> None:
    slurm.jobs = ["7", "8"]
    deleted(aws, *NODES[:2], Successful=["i-workers2"])
    out, told = ended(Exit.GOOD, "node", "remove", "dev", "i-workers2", "--yes")
    assert "workers-2: ml.g5.16xlarge, i-workers2, ip-10-1-1-2" in told
    assert "7  llama  ann: ends first" in told
    assert "workers: 2 to 1 nodes, $11.37 to " in told
    assert slurm.did == ["squeue", f"NodeName={TWO} {DRAIN}", "squeue", "squeue"], "and it is not resumed"
    assert engine.did == ["configure {'hyperpod:workers[0].count': '1'}"]
    assert "Removed workers-2. Pulumi.dev.yaml has workers 1." in out
    aws.assert_all_asked()


def test_a_node_without_an_instance_is_removed_by_its_logical_id_and_nothing_is_drained(
    slurm: Slurm, engine: Planning, aws: StubbedAws
) -> None:
    aws.answer("sagemaker", "batch_delete_cluster_nodes", {"SuccessfulNodeLogicalIds": [LOGICAL]}, NodeIds=None)
    # It has got an instance meanwhile.
    aws.answer("sagemaker", "list_cluster_nodes", {"ClusterNodeSummaries": [{**TO_COME, "InstanceId": "i-new"}]})
    aws.answer("sagemaker", "list_cluster_nodes", {"ClusterNodeSummaries": [*NODES[:2]]})
    aws.answer("sagemaker", "describe_cluster", cluster(groups=GROUPS))
    code, found = run_json("node", "remove", "dev", LOGICAL, "--yes")
    assert (code, found["removed"], found["counts"]) == (Exit.GOOD, [LOGICAL], {"workers": 1})
    assert slurm.did == []
    aws.assert_all_asked()


def test_a_node_that_aws_refuses_stays_takes_jobs_again_and_counts(
    slurm: Slurm, engine: Planning, aws: StubbedAws
) -> None:
    deleted(aws, NODES[0], NODES[2], Successful=["i-workers1"], Failed=[FAILED])
    found = ended_json(Exit.FAILED, "node", "remove", "dev", "i-workers1", "i-workers2", "--yes")
    assert found["refused"] == {"workers-2": "NodeIdInUse: The node is in use by another operation."}
    assert (found["removed"], found["counts"]) == (["i-workers1"], {"workers": 1})
    assert slurm.did[-1] == f"NodeName={TWO} State=RESUME"
    assert engine.did[1:] == ["restore", "configure {'hyperpod:workers[0].count': '1'}"]


def test_where_aws_refuses_all_the_configuration_and_slurm_are_as_before(
    slurm: Slurm, engine: Planning, aws: StubbedAws
) -> None:
    # Developer Guide, "Scale down a SageMaker HyperPod cluster": 400 where all fail, or while the cluster changes.
    aws.refuse("sagemaker", "batch_delete_cluster_nodes", "ValidationException", "Cluster is in Updating state")
    _, told = ended(Exit.FAILED, "node", "remove", "dev", "i-workers1", "--yes")
    assert "Cluster is in Updating state" in told
    assert engine.did[-1] == "restore"
    assert slurm.did[-1] == f"NodeName={ONE} State=RESUME"


def test_a_scheduler_that_cannot_be_asked_stops_a_removal_and_not_one_now(
    slurm: Slurm, engine: Planning, aws: StubbedAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: object, **__: object) -> None:
        raise Failure("the controller does not answer")

    monkeypatch.setattr(draining, "drain_slurm", lost)
    code, _, told = run("node", "remove", "dev", "i-workers2", "--yes")
    assert (code, engine.did) == (Exit.FAILED, [])
    with_nodes(aws, *NODES, TO_COME)
    deleted(aws, *NODES[:2], Successful=["i-workers2"])
    code, out, told = run("node", "remove", "dev", "i-workers2", "--yes", "--now")
    assert (code, "Removed workers-2" in out) == (Exit.GOOD, True)
    assert "not drained: the controller does not answer" in told
    # A served rehearsal has no scheduler to ask.
    monkeypatch.setenv(SERVED, str(ROOT))
    with_nodes(aws, *NODES, TO_COME)
    deleted(aws, *NODES[:2], Successful=["i-workers2"])
    assert run("node", "remove", "dev", "i-workers2", "--yes")[0] == Exit.GOOD


def test_nothing_is_deleted_where_jobs_do_not_end_and_now_does_not_wait(
    slurm: Slurm, engine: Planning, aws: StubbedAws
) -> None:
    slurm.jobs = ["7"] * 9
    _, told = ended(Exit.FAILED, "node", "remove", "dev", "i-workers1", "--yes", "--timeout", "0")
    assert "did not end within 0 s" in told
    assert "--now" in told
    assert (slurm.did[-1], engine.did) == (f"NodeName={ONE} State=RESUME", [])
    with_nodes(aws)
    deleted(aws, NODES[0], NODES[2], Successful=["i-workers1"])
    _, told = ended(Exit.GOOD, "node", "remove", "dev", "i-workers1", "--yes", "--now")
    assert "nobody waits for the jobs" in told
    assert slurm.did[-1] == f"NodeName={ONE} {DRAIN}"


def test_a_count_that_did_not_fall_at_aws_is_said(slurm: Slurm, engine: Planning, aws: StubbedAws) -> None:
    deleted(aws, *NODES[:2], count=2, Successful=["i-workers2"])
    _, _, told = run("node", "remove", "dev", "i-workers2", "--yes")
    assert "SageMaker still wants more nodes in workers (2): hyperpod deploy dev" in told


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("i-workers1", "i-controller1"), "only workers can be removed: controller-1 is the controller"),
        (("workers-1",), "with --yes, give i-workers1"),
        (("workers",), 'no node "workers"'),
        (("wrokers-1",), "did you mean workers-1?"),
    ],
)
def test_a_wrong_node_is_refused_before_any_is_drained(names: tuple[str, ...], said: str, slurm: Slurm) -> None:
    code, _, told = run("node", "remove", "dev", *names, "--yes")
    assert (code, slurm.did) == (Exit.BAD_INPUT, [])
    assert said in told


def test_without_a_yes_no_node_goes(slurm: Slurm, engine: Planning, aws: StubbedAws) -> None:
    code, _, told = run("node", "remove", "dev", "workers-1", ONE)
    assert (code, slurm.did, engine.did) == (Exit.BAD_INPUT, ["squeue"], [])
    assert "Remove 1 nodes?" in told
    aws.assert_all_asked()


def test_a_count_that_is_not_deployed_yet_comes_first(aws: StubbedAws) -> None:
    with_nodes(aws)
    target = stack(aws, "dev", 'hyperpod:workers=[{"name": "workers", "instanceType": "ml.g5.16xlarge", "count": 5}]')
    found = cluster_nodes.list_nodes(target)
    with pytest.raises(Failure, match="workers has 5 nodes in the configuration, but the cluster's target is 2"):
        remove.chosen(target, found, ["workers-1"], yes=False)


def test_sagemaker_takes_99_nodes_at_once(aws: StubbedAws) -> None:
    """Developer Guide, "Scale down a SageMaker HyperPod cluster": at most 99 instances at a time."""
    with_nodes(aws, *(node("workers", 1) | {"InstanceId": f"i-{number}"} for number in range(100)))
    target = stack(aws)
    found = cluster_nodes.list_nodes(target)
    with pytest.raises(Failure, match="100 nodes at once"):
        remove.chosen(target, found, [one.instance_id for one in found], yes=True)


class Evicting(FakeKubernetes):
    """An API whose disruption budget lets a pod go at the second time."""

    def cordon(self, node: dict[str, Any], *, on: bool) -> None:
        self.did.append(f"{'cordon' if on else 'uncordon'} {node['metadata']['name']}")

    def evict(self, pod: dict[str, Any]) -> str:
        self.did.append(f"evict {pod['metadata']['name']}")
        if self.did.count(self.did[-1]) == 1:
            return "Cannot evict pod as it would violate the pod's disruption budget."
        self._pods.remove(pod)
        return ""


def test_pods_are_evicted_as_their_budgets_let_them_and_daemonsets_stay(
    aws: StubbedAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = Evicting(
        pods=list(PODS),
        nodes=[{"metadata": {"name": f"hyperpod-i-workers{n}"}, "spec": {"unschedulable": n == 2}} for n in (1, 2, 3)],
    )
    monkeypatch.setattr(cluster_nodes, "kubernetes", lambda target: api)
    monkeypatch.setattr(draining, "_AGAIN_SECONDS", 0.0)
    with_nodes_of_eks(aws)
    target = stack(aws, "eks-gpu")
    found = cluster_nodes.list_nodes(target)[:1]
    told: list[str] = []
    back = draining.drain(target, found, found, told.append, reason="", patience=60, hint="")
    assert api.did == ["cordon hyperpod-i-workers1", *["evict llama-worker-0", "evict alone"] * 2]
    assert "would violate the pod's disruption budget" in told[0]
    back(found)
    assert api.did[-1] == "uncordon hyperpod-i-workers1"


def test_a_node_that_cannot_be_emptied_takes_pods_again(aws: StubbedAws, monkeypatch: pytest.MonkeyPatch) -> None:
    api = Evicting(pods=list(PODS), nodes=[{"metadata": {"name": "hyperpod-i-workers1"}, "spec": {}}])
    monkeypatch.setattr(cluster_nodes, "kubernetes", lambda target: api)
    with_nodes_of_eks(aws)
    target = stack(aws, "eks-gpu")
    found = cluster_nodes.list_nodes(target)[:1]
    with pytest.raises(Failure, match=r"llama-worker-0 \(Cannot evict pod"):
        draining.drain(target, found, found, print, reason="", patience=0, hint="")
    assert api.did[-1] == "uncordon hyperpod-i-workers1"
