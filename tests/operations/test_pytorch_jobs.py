"""What Kubeflow's training operator makes of the PyTorchJobs: how many processes, and how often a job begins again."""

import pytest

from operations.jobs.choices import Choices
from operations.jobs.render import render
from tests.support import config


@pytest.mark.parametrize("nodes", [1, 32])
@pytest.mark.parametrize("name", ["nanogpt", "fsdp-llama"])
def test_a_job_may_begin_again_as_often_on_many_nodes_as_on_few(name: str, nodes: int) -> None:
    """The operator adds up the restarts of all pods (kubeflow/training-operator, pkg/core/job.go, PastBackoffLimit),
    and what ends one pod of a job ends them all."""
    settings = config("eks-gpu", size="large")
    limit = render(name, settings, Choices(nodes=nodes))[-1]["spec"]["runPolicy"]["backoffLimit"]
    # It fails at the limit, not beyond.
    assert 10 * nodes < limit <= 11 * nodes
