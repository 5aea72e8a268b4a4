"""Jobs on the nodes of a network, by the real Kueue: under one spine where they fit, and what it says where not."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from components.kubernetes.node_placement import NETWORK_LAYERS
from operations.project.loading import load_project
from rehearsal.kubernetes.binaries import missing
from rehearsal.kubernetes.container import available
from rehearsal.kubernetes.hyperpod_jobs import definition, hyperpod_jobs
from rehearsal.kubernetes.kubectl import Refused
from rehearsal.kubernetes.nodes import GROUP_LABEL
from rehearsal.kubernetes.ready import ready
from rehearsal.kubernetes.run import Run
from rehearsal.kubernetes.workloads import Submitted, plain_jobs, submitted
from rehearsal.patience import until

ROOT = Path(__file__).parents[3]
SPINE = NETWORK_LAYERS[1]
WORKERS = [
    # Two spines: 16 nodes and 8.
    {"name": "workers", "instanceType": "ml.p5.48xlarge", "count": 24},
    {"name": "system", "instanceType": "ml.m5.4xlarge", "count": 3},
]
pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(missing()) or not available(), reason="`make kubernetes-tools` was not run here"),
]


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """The stack with the key, on nodes that have their labels and devices."""
    words = [f"hyperpod:workers={json.dumps(WORKERS)}", 'hyperpod:charts={"topology": true}']
    with ready(load_project(ROOT, "eks-gpu", words)) as here:
        yield here
        assert here.stack.take_down() == []


def spines(run: Run, job: Submitted) -> list[str]:
    """The spine of each of a job's pods."""
    nodes = {one["metadata"]["name"]: one["metadata"]["labels"] for one in run.kubectl.list("nodes")}
    return [nodes[pod["spec"]["nodeName"]].get(SPINE, "") for pod in job.pods()]


def workers(run: Run) -> dict[str, dict[str, Any]]:
    """The labels of the workers, by the nodes' names."""
    labels = {one["metadata"]["name"]: one["metadata"]["labels"] for one in run.kubectl.list("nodes")}
    return {name: of for name, of in labels.items() if of[GROUP_LABEL] == "workers"}


def test_a_job_is_below_one_spine_where_it_fits_and_otherwise_waits_or_spreads_as_it_asked(run: Run) -> None:
    for nodes, placement, spine in ((8, None, "nn-1"), (16, None, "nn-0"), (16, "layer-2", "nn-0")):
        with submitted(run, "nanogpt", nodes=nodes, placement=placement) as job:
            assert until(job.placed, 60), job.reason()
            assert spines(run, job) == [spine] * nodes
    cordoned = next(name for name, labels in workers(run).items() if labels[SPINE] == "nn-0")
    run.kubectl.run("cordon", cordoned)
    with submitted(run, "nanogpt", nodes=16, placement="layer-2") as job:
        assert until(lambda: "15 out of 16" in job.reason(), 60), job.reason()
        # Kueue may see the cordon only after it has admitted the job, and then takes the pods back.
        assert until(lambda: not job.pods(), 60), job.reason()
    with submitted(run, "nanogpt", nodes=16) as job:
        assert until(job.placed, 60), job.reason()
        assert set(spines(run, job)) == {"nn-0", "nn-1"}
    run.kubectl.run("uncordon", cordoned)


def test_a_node_without_a_label_of_the_network_gets_no_job(run: Run) -> None:
    bare = next(iter(workers(run)))
    run.kubectl.run("label", "node", bare, f"{NETWORK_LAYERS[2]}-")
    with submitted(run, "nanogpt", nodes=24, placement="any") as job:
        assert until(lambda: "23 out of 24" in job.reason(), 60), job.reason()
        run.kubectl.run("label", "node", bare, f"{NETWORK_LAYERS[2]}=nn-0-0")
        assert until(job.placed, 60), job.reason()


def test_sagemakers_operators_jobs_are_admitted_as_far_as_it_is_known_and_others_not(run: Run) -> None:
    known = definition()
    assert hyperpod_jobs(run, known).startswith("7 jobs")
    fields = known[0]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    del fields["elasticPolicy"]
    # By kubectl or by the server, whichever has read the definition first.
    with pytest.raises(Refused, match=r'unknown field "(spec\.)?elasticPolicy"'):
        hyperpod_jobs(run, known)


def test_jobs_that_ask_for_no_topology_run_on_every_group(run: Run) -> None:
    assert plain_jobs(run)
