"""What jobs may ask for in the queues of SageMaker's task governance, and pods in a team's namespace."""

import pytest

from components.kubernetes.pod_resources import device_limits
from operations.jobs.render import jobs_of, render
from operations.kubernetes import governance
from tests.operations.test_jobs import pods
from tests.support import config

# aws/sagemaker-hyperpod-cli, examples/end_to_end_walkthrough/03-task-governance: what a queue of SageMaker's has. Kueue
# admits no job that asks for anything else.
COVERED = {"aws.amazon.com/neurondevice", "cpu", "memory", "nvidia.com/gpu", "vpc.amazonaws.com/efa"}


@pytest.mark.parametrize("stack", ["eks-gpu", "eks-trainium"])
def test_sagemakers_queues_have_all_that_a_job_asks_for(stack: str) -> None:
    chosen = config(stack, charts={"queues": "task-governance"})
    for name in jobs_of(chosen):
        asked = [one["resources"]["requests"] for pod in pods(render(name, chosen)) for one in pod["containers"]]
        assert {resource for one in asked for resource in one} <= COVERED
        assert any(resource in one for one in asked for resource in ("nvidia.com/gpu", "aws.amazon.com/neurondevice"))


def test_a_job_has_the_labels_that_sagemakers_dashboard_wants() -> None:
    """SageMaker Developer Guide, "Example HyperPod task governance commands": queue and priority class."""
    chosen = config("eks-gpu", charts={"queues": "task-governance"}, teams=[{"name": "vision"}])
    for name in jobs_of(chosen):
        labels = render(name, chosen)[-1]["metadata"]["labels"]
        assert labels["kueue.x-k8s.io/queue-name"] == "hyperpod-ns-vision-localqueue"
        priority = labels["kueue.x-k8s.io/priority-class"]
        assert priority.removesuffix("-priority") in governance.PRIORITIES
        assert priority.endswith("-priority")
    plain = render("nanogpt", config("eks-gpu"))[-1]["metadata"]["labels"]
    assert "kueue.x-k8s.io/priority-class" not in plain


def test_no_other_name_of_a_device_goes_around_a_teams_limit() -> None:
    """A node's capacity in the EKS workshop names a Neuron device thrice: neuron, neurondevice and neuroncore."""
    gpu, trainium = config("eks-gpu").training_groups, config("eks-trainium").training_groups
    assert device_limits(gpu, 16, governed=False) == device_limits(gpu, 16, governed=True) == {"nvidia.com/gpu": 16}
    chip, device, core = (f"aws.amazon.com/neuron{suffix}" for suffix in ("", "device", "core"))
    assert device_limits(trainium, 16, governed=False) == {chip: 16, device: 0, core: 32}
    assert device_limits(trainium, 16, governed=True) == {chip: 0, device: 16, core: 32}
