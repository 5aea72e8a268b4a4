"""What Kubeflow's training operator makes of the PyTorchJobs: how many processes, and how often a job begins again."""

from __future__ import annotations

import pytest

from operations.jobs.choices import Choices
from operations.jobs.render import jobs_of, render
from tests.operations.test_jobs import pods
from tests.support import config


@pytest.mark.parametrize(
    ("stack", "name"), [(stack, name) for stack in ("eks-gpu", "eks-trainium") for name in jobs_of(config(stack))]
)
def test_torchrun_starts_a_process_for_every_device_whatever_the_operator_sets(stack: str, name: str) -> None:
    """Kubeflow's operator v1-855e096, which the HyperPod chart has, sets PET_NPROC_PER_NODE only beside a master."""
    job = render(name, config(stack))[-1]
    if job["kind"] == "PyTorchJob":
        (pod,) = pods([job])
        words = pod["containers"][0]["command"][-1].split()
        assert words[words.index("torchrun") + 1 :].count(f"--nproc-per-node={job['spec']['nprocPerNode']}") == 1
        assert int(job["spec"]["nprocPerNode"]) > 1


@pytest.mark.parametrize("nodes", [1, 32])
@pytest.mark.parametrize("name", ["nanogpt", "fsdp-llama"])
def test_a_job_may_begin_again_as_often_on_many_nodes_as_on_few(name: str, nodes: int) -> None:
    """The operator adds up the restarts of all pods (kubeflow/training-operator, pkg/core/job.go, PastBackoffLimit),
    and what ends one pod of a job ends them all."""
    settings = config("eks-gpu", size="large")
    limit = render(name, settings, Choices(nodes=nodes))[-1]["spec"]["runPolicy"]["backoffLimit"]
    # It fails at the limit, not beyond.
    assert 10 * nodes < limit <= 11 * nodes
