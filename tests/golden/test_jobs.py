"""Every job of the ready EKS stacks is rendered as written down, and a team's jobs stay in the team's place."""

import pytest

from tests.golden import files
from tests.golden.jobs import JOBS, STACKS, Jobs, rendered
from tests.golden.stacks import GOLDEN
from tests.operations.test_jobs import pods


def written(name: str) -> Jobs:
    own, base = files.read(JOBS / name), GOLDEN[name].base
    return files.whole(own, written(base) if base in STACKS else {})


@pytest.mark.parametrize("name", STACKS)
def test_every_job_is_rendered_as_written_down(name: str) -> None:
    difference = files.told(written(name), rendered(name))
    assert not difference, f"tests/golden/jobs/{name}:\n{difference}"


def test_a_teams_jobs_go_through_its_queue_to_the_group_that_they_are_for() -> None:
    objects = rendered("eks-teams")
    every = [one for of_a_kind in objects.values() for one in of_a_kind.values()]
    assert {one["metadata"]["namespace"] for one in every} == {"hyperpod-ns-vision"}
    jobs = {one["metadata"]["name"]: one for one in every if one["kind"] != "ConfigMap"}
    assert {"nanogpt", "nccl-tests", "device-check"} <= jobs.keys()
    for name, job in jobs.items():
        labels = job["metadata"]["labels"]
        assert labels["kueue.x-k8s.io/queue-name"] == "hyperpod-ns-vision-localqueue"
        assert labels["kueue.x-k8s.io/priority-class"] == "normal-priority"
        for pod in pods([job]):
            assert pod["nodeSelector"]["sagemaker.amazonaws.com/instance-group-name"] == "fast"
            assert (pod["tolerations"], pod["securityContext"]["runAsUser"]) == ([], 33852)
            (container,) = pod["containers"]
            maps = [one["configMapRef"]["name"] for one in container["envFrom"]]
            assert maps == ["environment-fast", "mlflow"]
            # This stack's scraper asks training jobs for their figures.
            trains = name in ("nanogpt", "fsdp-llama", "nemo", "torchtitan", "lora")
            assert container.get("ports", []) == [{"containerPort": 9450, "name": "hyperpod-metric"}] * trains, name
