"""Elastic jobs, and jobs of SageMaker's training operator: what they are made of, and where they are refused."""

import re
from typing import Any

import pytest

from operations.jobs import run as job_run
from operations.jobs.batch import submission
from operations.jobs.choices import Choices
from operations.jobs.render import render, standing
from operations.jobs.requests import JobError, jobs_of
from operations.jobs.specs import JOBS, own_job
from tests.operations.test_job_run import FakeApi
from tests.operations.test_jobs import pods, refusal
from tests.support import config

P5 = [{"name": "hopper", "instanceType": "ml.p5.48xlarge", "count": 16}]
OPERATED: dict[str, Any] = {"workers": P5, "charts": {"hyperpodTrainingOperator": True}}
HYPERPOD: dict[str, Any] = {"operator": "hyperpod", "image": "registry.example/agent:1"}


def elastic(name: str = "nanogpt", **more: Any) -> list[dict[str, Any]]:
    return render(name, config("eks-gpu", **OPERATED), Choices(nodes=16, min_nodes=12, **more))


def operated(name: str, **more: Any) -> dict[str, Any]:
    return render(name, config("eks-gpu", **OPERATED), Choices(**HYPERPOD, **more))[-1]


@pytest.mark.parametrize("name", ["nanogpt", "fsdp-llama"])
def test_an_elastic_job_waits_for_its_fewest_nodes_and_each_further_one_is_a_job_of_its_own(name: str) -> None:
    files, *further, job = elastic(name)
    assert (files["kind"], [one["kind"] for one in further], job["kind"]) == ("ConfigMap", ["Job"] * 4, "PyTorchJob")
    assert job["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] == 12
    assert len({one["metadata"]["name"] for one in further}) == 4
    # The fewest come first, and the others go first, by the priorities of the stack's queues.
    priorities = [one["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] for one in (*further, job)]
    assert priorities == ["low"] * 4 + ["normal"]
    assert {one["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] for one in (*further, job)} == {"training"}
    containers = [pod["containers"] for pod in pods([*further, job])]
    assert all(one == containers[0] for one in containers)
    assert "torchrun --nnodes=12:16 " in containers[0][0]["command"][-1]


def test_no_job_that_can_lose_a_pod_meets_in_a_store_of_an_earlier_round() -> None:
    """torchrun shares its own by default (pytorch/pytorch, issue 135712)."""
    for job in (elastic()[-1], render("fsdp-llama", config("eks-gpu"))[-1]):
        worker = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
        assert "export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1" in worker["command"][-1]


def test_further_nodes_are_submitted_after_their_job_and_go_with_it() -> None:
    class Numbering(FakeApi):
        def apply(self, document: dict[str, Any], *, dry_run: bool = False) -> None:
            super().apply(document, dry_run=dry_run)
            self.there[document["kind"], document["metadata"]["name"]]["metadata"].setdefault("uid", "of-the-job")

    api = Numbering()
    job_run.submit(api, elastic())
    assert api.applied == ["ConfigMap", "PyTorchJob", *["Job"] * 4]
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "nanogpt", "uid": "of-the-job"}
    # A controller would take the job past its queue, which the stack's policies refuse.
    assert api.there["Job", "nanogpt-extra-3"]["metadata"]["ownerReferences"] == [owner]


def test_sagemakers_operator_gets_its_own_kind_of_job_and_launcher() -> None:
    job = operated("nanogpt", nodes=2)
    assert (job["apiVersion"], job["kind"]) == ("sagemaker.amazonaws.com/v1", "HyperPodPyTorchJob")
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "training"
    assert "annotations" not in job["metadata"]
    (replicas,) = job["spec"]["replicaSpecs"]
    assert (replicas["replicas"], "maxReplicas" in replicas, "elasticPolicy" in job["spec"]) == (2, False, False)
    (container,) = replicas["template"]["spec"]["containers"]
    assert {"containerPort": 8080} in container["ports"]
    # The first process gets the signals, and the agent's rules read files that are there only so.
    assert container["command"][-1].startswith("exec hyperpodrun --nnodes=2 --nproc-per-node=8 --tee=3 --log-dir=")
    assert job_run.devices_of(job, "nvidia.com/gpu") == 16


def test_sagemakers_operator_is_told_the_range_of_an_elastic_job() -> None:
    job = operated("fsdp-llama", nodes=16, min_nodes=12)
    policy, (replicas,) = job["spec"]["elasticPolicy"], job["spec"]["replicaSpecs"]
    assert (policy["minReplicas"], policy["maxReplicas"]) == (replicas["replicas"], replicas["maxReplicas"]) == (12, 16)
    # hyperpod-elastic-agent 1.1.3 takes one number of nodes alone.
    assert "--nnodes=12 " in replicas["template"]["spec"]["containers"][0]["command"][-1]


LINES = {
    "nanogpt": "iter 10: loss 2.5013, 63 ms",
    "fsdp-llama": "step 10: loss 11.7612, 2310 ms, 104,211 tokens/s",
    "torchtitan": "step 10: loss 7.4586, 812 ms, 40,353 tokens/s, MFU 41.3%",
    "lora": "step 10: loss 4.5538, 236 ms, 1,086 tokens/s",
    # NVIDIA-NeMo/Speech, pull request 10128.
    "nemo": "Training epoch 0, iteration 1/9 | lr: 0.0006 | global_step: 1 | reduced_train_loss: 9.761",
}


@pytest.mark.parametrize(("name", "line"), LINES.items())
def test_the_rules_for_a_hanging_or_diverging_job_read_the_trainers_lines(name: str, line: str) -> None:
    """The agent matches a line from its start, and takes the first group as a number (hyperpod-elastic-agent 1.1.3)."""
    rules = {rule["name"]: rule for rule in operated(name)["spec"]["runPolicy"]["logMonitoringConfiguration"]}
    assert rules.keys() == {"hanging", "diverging"}
    for rule in rules.values():
        match = re.match(rule["logPattern"], line)
        assert match
        assert float(match[1]) == float(re.findall(r"loss:? ([\d.]+)", line)[0])
        assert not re.match(rule["logPattern"], re.sub(r"(loss:? )[\d.]+", r"\1nan", line))


def test_nobody_makes_rules_for_the_log_of_another_trainer() -> None:
    chosen = config("eks-gpu", **OPERATED)
    job = render("train", chosen, Choices(**HYPERPOD), job=own_job("train.py"), files={"train.py": ""})[-1]
    assert "logMonitoringConfiguration" not in job["spec"]["runPolicy"]


def test_the_loss_is_found_behind_the_name_of_the_process() -> None:
    group = config("eks-gpu").training_groups[0]
    result = job_run.judge("nanogpt", "training", group, 2, True, ["[default0]:iter 20: loss 1.5, 3 ms"], 1.0)
    assert (result.passed, result.figures) == (True, {"step": 20.0, "loss": 1.5})


def test_a_job_of_either_operator_is_found_by_its_name() -> None:
    kinds = [objects[-1]["kind"] for objects in standing("nanogpt", config("eks-gpu", **OPERATED))]
    assert kinds == ["HyperPodPyTorchJob", "PyTorchJob"]
    assert [objects[-1]["kind"] for objects in standing("nanogpt", config("eks-gpu"))] == ["PyTorchJob"]
    assert [objects[-1]["kind"] for objects in standing("nccl-tests", config("eks-gpu", **OPERATED))] == ["MPIJob"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"min_nodes": 16, "nodes": 16}, "--min-nodes 16 of 16 nodes; an elastic job has fewer at first"),
        ({"min_nodes": 0}, "--min-nodes 0 of 16 nodes; an elastic job has fewer at first, and 1 at least"),
        ({"name": "nemo", "min_nodes": 12}, "nemo cannot go on with other nodes; nanogpt, fsdp-llama can"),
        ({"min_nodes": 12, "settings": {"charts": {"queues": "none"}}}, "needs hyperpod:charts.queues kueue, or"),
        ({"min_nodes": 12, "settings": {"charts": {"topology": True}}}, "with hyperpod:charts.topology a node that"),
        (
            {"min_nodes": 12, **HYPERPOD, "settings": {"charts": {"checkpointMemoryPercent": 30}}},
            "HyperPod's elastic jobs know no hyperpod:charts.checkpointMemoryPercent",
        ),
        (
            {"min_nodes": 12, **HYPERPOD, "settings": {"workers": [{**P5[0], "capacity": "spot"}]}},
            "no elastic jobs on spot instances, as in group hopper",
        ),
        ({"operator": "hyperpod"}, "needs an image with hyperpod-elastic-agent"),
        ({"name": "nccl-tests", **HYPERPOD}, "--operator hyperpod runs training; nccl-tests is none"),
        ({"name": "neuron", "stack": "eks-trainium", **HYPERPOD}, "AWS names no Trainium type for it"),
    ],
)
def test_what_cannot_be_run_so_is_refused(options: dict[str, Any], why: str) -> None:
    name, stack = options.pop("name", "nanogpt"), options.pop("stack", "eks-gpu")
    workers = {"workers": P5} if stack == "eks-gpu" else {}
    settings = {**workers, **options.pop("settings", {})}
    assert why in refusal(name, stack, settings=settings, **options)


def test_every_problem_is_named_at_once() -> None:
    text = refusal("nemo", operator="hyperpod", min_nodes=40, nodes=40)
    for part in ("40 nodes of group", "hyperpodTrainingOperator", "--image", "--min-nodes 40", "nemo cannot"):
        assert part in text
    with pytest.raises(JobError) as refused:
        submission("nanogpt", config("slurm-gpu"), Choices(operator="hyperpod", min_nodes=1))
    assert len(refused.value.problems) == 2
    assert all("is for EKS; with Slurm" in problem for problem in refused.value.problems)


def test_a_trainer_is_elastic_only_where_it_can_read_a_checkpoint_of_other_nodes() -> None:
    assert {name for name in jobs_of(config("eks-gpu")) if JOBS[name].elastic} == {"nanogpt", "fsdp-llama"}
