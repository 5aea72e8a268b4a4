"""An elastic job on the real Kueue, training operator and scheduler: nodes join it, are lent, lost and returned.

Its pods are simulated: their number is what counts here, and tests/jobs/test_growing.py runs what they run.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from operations.jobs import run as job_run
from operations.jobs.choices import Choices
from operations.jobs.kubernetes_api import KubernetesApi
from operations.jobs.render import render
from operations.project.loading import Project

from ..checks import CheckFailed, require
from ..patience import until
from .kubectl import Manifest
from .nodes import join, leave, nodes_of, with_devices
from .pods import is_ready
from .run import Run
from .workloads import Submitted, submitted

JOB = "nanogpt"
MOST, LEAST, LOST, LENT = 16, 12, 3, 2
_SECONDS = 60.0
# Two teams: what the job has beyond its own nodes belongs to the other.
_TEAMS = [{"name": "vision", "accelerators": 8 * LEAST}, {"name": "speech", "accelerators": 8 * (MOST - LEAST)}]
_WORKERS = [
    {"name": "workers", "instanceType": "ml.p5.48xlarge", "count": MOST},
    {"name": "system", "instanceType": "ml.m5.4xlarge", "count": 2},
]


def with_sixteen_nodes(project: Project) -> Project:
    """The stack with nodes and teams for such a job."""
    more: Mapping[str, object] = {"workers": _WORKERS, "teams": _TEAMS, "autoscaling": {}}
    return replace(project, config=project.config | {f"hyperpod:{key}": json.dumps(of) for key, of in more.items()})


@dataclass(frozen=True)
class Seen:
    """What a user was told with the nodes lost, and the seconds from the loss until all pods ran again."""

    while_lost: str
    seconds: float


def loses_and_regains_nodes(run: Run) -> Seen:
    """From 12 to 16 nodes; two are lent back and return; three are lost, the first worker's among them, and return.
    Nothing of the job stays. Raises CheckFailed.
    """
    api = KubernetesApi.of(run.plane.folder / "admin.kubeconfig")
    objects = render(JOB, run.config, Choices(nodes=MOST, min_nodes=LEAST))
    job = Submitted(run, JOB, objects)
    job_run.check(api, objects, run.config)
    job_run.submit(api, objects)
    try:
        _pods(job, MOST, "it grew")
        first = {pod["metadata"]["name"] for pod in _running(job)}
        with submitted(run, JOB, namespace=run.namespaces[1], nodes=LENT) as other:
            require(until(other.placed, _SECONDS), f"the other team's nodes are not returned: {other.reason()}")
            _pods(job, MOST - LENT, "it lent nodes back")
            require(_of_workers(job) == LEAST, "the job lent nodes back without which it does not start")
        _pods(job, MOST, "the other team's job ended")
        began, lost = time.monotonic(), _nodes_to_lose(run, job)
        leave(run.kubectl, lost)
        _pods(job, MOST - LOST, f"{LOST} nodes were lost")
        told = ""

        def says_why() -> bool:
            nonlocal told
            told = job_run.state(api, objects[-1])
            return "nodes are available" in told

        require(until(says_why, _SECONDS), f"nobody says what the lost pods wait for: {told}")
        kept = first & {pod["metadata"]["name"] for pod in _running(job)}
        require(len(kept) >= LEAST - LOST, f"only {sorted(kept)} ran through")
        require(join(run.kubectl, lost), "the nodes are not back")
        _pods(job, MOST, "the nodes returned")
        seconds = time.monotonic() - began
    finally:
        for document in (objects[0], objects[-1]):
            api.delete(document)
    require(until(lambda: not _left(job), _SECONDS), f"these stay behind the deleted job: {_left(job)}")
    return Seen(told, seconds)


def _running(job: Submitted) -> list[Manifest]:
    return [pod for pod in job.pods() if is_ready(pod)]


def _left(job: Submitted) -> list[str]:
    jobs = job.run.kubectl.list("jobs.batch", namespace=job.namespace)
    return [one["metadata"]["name"] for one in (*job.pods(), *jobs)]


def _of_workers(job: Submitted) -> int:
    """How many of those run without which the job does not start."""
    return sum("training.kubeflow.org/replica-index" in pod["metadata"]["labels"] for pod in _running(job))


def _pods(job: Submitted, number: int, after: str) -> None:
    if not until(lambda: len(_running(job)) == number, _SECONDS):
        raise CheckFailed(f"after {after}, {len(_running(job))} of {number} pods run: {job.reason() or 'no reason'}")


def _nodes_to_lose(run: Run, job: Submitted) -> list[Manifest]:
    """The nodes of the first worker, of another one, and of a pod that joined it."""
    on = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in _running(job)}
    further = next(name for name in sorted(on) if name.startswith(f"{JOB}-extra-"))
    names = {on[f"{JOB}-worker-0"], on[f"{JOB}-worker-1"], on[further]}
    require(len(names) == LOST, f"pods share nodes: {on}")
    return [with_devices(run.config, node) for node in nodes_of(run.config) if node["metadata"]["name"] in names]
