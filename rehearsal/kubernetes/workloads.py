"""Checks with jobs: each is admitted and placed, gangs start completely or not at all, oversize jobs are refused."""

import copy
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from components.kubernetes.node_placement import system_group_names
from components.kubernetes.pod_resources import device_resource
from components.kubernetes.teams.queues import LOCAL_QUEUE, QUEUE_LABEL
from operations.jobs.choices import Choices
from operations.jobs.render import render
from operations.jobs.requests import JobError, jobs_of
from operations.jobs.specs import NAME_LABEL

from ..checks import CheckFailed, require
from ..patience import until
from .kubectl import Manifest, Refused
from .nodes import GROUP_LABEL
from .run import Run, scheduled, why_pending

_SECONDS = 60.0
# How long to watch before concluding that something does not happen.
_STILL_SECONDS = 3.0
_PLAIN = "plain"


@dataclass(frozen=True)
class Submitted:
    """A job on the server."""

    run: Run
    name: str
    objects: list[Manifest]

    @property
    def job(self) -> Manifest:
        """The job itself, after its ConfigMaps."""
        return self.objects[-1]

    @property
    def namespace(self) -> str:
        """The job's namespace, its team's."""
        return str(self.job["metadata"]["namespace"])

    @property
    def wanted(self) -> int:
        """The number of the job's pods, without an MPI launcher, which only comes when the others are ready."""
        return _size(self.job)

    def pods(self, *, launchers: bool = False) -> list[Manifest]:
        """The job's pods that are not being deleted: only launchers, or all but launchers."""
        found = self.run.kubectl.list("pods", namespace=self.namespace, selector=f"{NAME_LABEL}={self.name}")
        return [
            pod
            for pod in found
            if "deletionTimestamp" not in pod["metadata"]
            and (pod["metadata"]["labels"].get("training.kubeflow.org/job-role") == "launcher") == launchers
        ]

    def placed(self) -> bool:
        """Whether every pod has a node."""
        return sum(map(scheduled, self.pods())) == self.wanted

    def reason(self) -> str:
        """Why the job does not run: Kueue's message on its workload, or else the scheduler's on its pods."""
        if not self.queued:
            return next(filter(None, (why_pending(self.run.kubectl, pod) for pod in self.pods())), "")
        for workload in self.run.kubectl.list("workloads.kueue.x-k8s.io", namespace=self.namespace):
            if self.name in [owner["name"] for owner in workload["metadata"].get("ownerReferences", [])]:
                for condition in workload.get("status", {}).get("conditions", []):
                    if (condition["type"], condition["status"]) == ("QuotaReserved", "False"):
                        # Kueue names every missing resource in one sentence. The first is enough.
                        return ", ".join(condition["message"].split(", ")[:2])
        return ""

    @property
    def queued(self) -> bool:
        """Whether Kueue decides when the job starts."""
        return self.run.config.settings.charts.queues == "kueue"


@contextmanager
def submitted(
    run: Run, name: str, *, change: Callable[[Manifest], None] | None = None, **options: Any
) -> Iterator[Submitted]:
    """A job as `hyperpod job` renders it, from submission until it is completely deleted."""
    objects = render(name, run.config, Choices(**options))
    if change:
        change(objects[-1])
    job = Submitted(run, name, objects)
    run.kubectl.apply(objects)
    try:
        yield job
    finally:
        run.kubectl.delete(objects[::-1])
        until(lambda: not job.pods(), _SECONDS)


def admitted_and_placed(run: Run, name: str) -> str:
    """Strict validation accepts the job, and each pod gets a node of its group with the requested resources."""
    run.kubectl.apply(render(name, run.config), dry_run=True)
    with submitted(run, name) as job:
        if not until(job.placed, _SECONDS):
            raise CheckFailed(
                f"{len(job.pods())} of {job.wanted} pods, not all with a node: {job.reason() or 'no reason'}"
            )
        pods = job.pods()
        on = {pod["spec"]["nodeName"] for pod in pods}
        group = run.config.training_groups[0]
        nodes = {one["metadata"]["name"]: one["metadata"]["labels"][GROUP_LABEL] for one in run.kubectl.list("nodes")}
        require({nodes[name] for name in on} == {group.name}, f"placed outside of group {group.name}: {sorted(on)}")
        require(len(on) == len(pods), f"{len(pods)} pods share {len(on)} nodes")
        if job.job["kind"] == "MPIJob":
            launched = until(lambda: any(map(scheduled, job.pods(launchers=True))), _SECONDS)
            require(launched, "every worker is ready, and no launcher got a node")
        requests = pods[0]["spec"]["containers"][0]["resources"]["requests"]
        asked = ", ".join(f"{value} {key}" for key, value in sorted(requests.items()) if "/" in key or "huge" in key)
        return f"{len(pods)} pods on {len(on)} nodes, each with {asked}"


def unknown_field_refused(run: Run) -> str:
    """Validation is strict: it refuses a job with a field that is not in its schema."""
    objects = copy.deepcopy(render(first_of_each_kind(run)[0], run.config))
    objects[-1]["spec"]["notAField"] = True
    try:
        run.kubectl.apply(objects, dry_run=True)
    except Refused as refused:
        require("notAField" in str(refused), f"refused for another reason: {refused}")
        return str(refused).splitlines()[0]
    raise CheckFailed("a job with an unknown field was accepted")


def all_or_none(run: Run) -> str:
    """While a small job holds one node, a job for all nodes gets none."""
    first, second = first_of_each_kind(run)[:2]
    with submitted(run, first, nodes=1) as small:
        _wait(small)
        with submitted(run, second) as whole:
            _stays_out(whole)
            reason = whole.reason()
            run.kubectl.delete(small.objects[::-1])
            _wait(whole)
            return f"{second} waited with no pod ({reason}), then all {whole.wanted} ran"


def second_job_queues(run: Run) -> str:
    """A job for all nodes waits while another one has them, and runs when that one is gone."""
    first, second = first_of_each_kind(run)[:2]
    with submitted(run, first) as running:
        _wait(running)
        with submitted(run, second) as waiting:
            _stays_out(waiting)
            reason = waiting.reason()
            require(reason, f"{second} waits, and nobody says why")
            require(running.placed(), f"{first} lost its pods")
            run.kubectl.delete(running.objects[::-1])
            _wait(waiting)
            return f"{second} waited: {reason}"


def others_go_on(run: Run) -> str:
    """An admitted job whose pods cannot start does not block another job (of another team, if there is one)."""
    name, others = first_of_each_kind(run)[0], [*run.namespaces, run.namespaces[0]][1]

    def strand(job: Manifest) -> None:
        for replica in job["spec"]["pytorchReplicaSpecs"].values():
            replica["template"]["spec"]["nodeSelector"]["rehearsal/there-is-none"] = "true"

    def is_stuck() -> bool:
        # With a topology Kueue looks for nodes itself, and admits no job that has none.
        return "nodeSelector" in stuck.reason() if run.config.settings.charts.topology else bool(stuck.pods())

    with submitted(run, name, change=strand, nodes=1) as stuck:
        require(until(is_stuck, _SECONDS), f"{name} was not admitted: {stuck.reason()}")
        second = first_of_each_kind(run)[1]
        with submitted(run, second, namespace=others, nodes=1) as job:
            _wait(job)
            require(not stuck.placed(), f"{name} got a node that is not there")
            return f"{second} of {others} ran while {name} of {stuck.namespace} waited for its pods"


def oversize_refused(run: Run) -> str:
    """A job for too many nodes is refused when rendered. Written by hand, it never starts, and the reason is shown."""
    name, most = first_of_each_kind(run)[0], run.config.training_groups[0].count
    try:
        render(name, run.config, Choices(nodes=most + 1))
    except JobError as error:
        said = error.problems[0]
    else:
        raise CheckFailed(f"operations rendered {name} for {most + 1} of {most} nodes")

    def grow(job: Manifest) -> None:
        job["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = most + 1

    with submitted(run, name, change=grow) as job:
        if job.queued:
            _stays_out(job)
        else:
            require(not until(job.placed, _STILL_SECONDS), f"all {job.wanted} pods got a node, and there are {most}")
        require(until(job.reason, _SECONDS), "it does not start, and nobody says why")
        return f"rendering: {said}; by hand: {job.reason()}"


def plain_jobs(run: Run) -> str:
    """Jobs without node selector or toleration: those that request a device run on nodes that have it; others run on
    nodes without devices, if there are any.
    """
    device = device_resource(run.config.training_groups[0])
    training = {group.name for group in run.config.training_groups}
    without = set(system_group_names(run.config.worker_groups)) or training
    said = []
    for what, resources, right in (("a device", {device: "1"}, training), ("none", {}, without)):
        objects = [_plain_job(run, resources)]
        run.kubectl.apply(objects)
        job = Submitted(run, _PLAIN, objects)
        try:
            _wait(job)
            found = {
                one["metadata"]["name"]: one["metadata"]["labels"][GROUP_LABEL] for one in run.kubectl.list("nodes")
            }
            where = {found[pod["spec"]["nodeName"]] for pod in job.pods()}
            require(where <= right, f"a job that asks for {what} is on {sorted(where)}, not on {sorted(right)}")
        finally:
            run.kubectl.delete(objects)
            until(lambda job=job: not job.pods(), _SECONDS)  # type: ignore[misc]
        said.append(f"with {what} on {', '.join(sorted(where))}")
    return "; ".join(said)


def _plain_job(run: Run, resources: dict[str, str]) -> Manifest:
    queued = run.config.settings.charts.queues == "kueue"
    labels = {NAME_LABEL: _PLAIN, **({QUEUE_LABEL: LOCAL_QUEUE} if queued else {})}
    asked = {"cpu": "100m", "memory": "128Mi", **resources}
    container = {"name": "main", "image": "job.invalid/plain:1", "resources": {"requests": asked, "limits": asked}}
    pod = {"restartPolicy": "Never", "containers": [container]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": _PLAIN, "namespace": run.namespaces[0], "labels": labels},
        "spec": {"template": {"metadata": {"labels": {NAME_LABEL: _PLAIN}}, "spec": pod}},
    }


def first_of_each_kind(run: Run) -> list[str]:
    """A job of each operator, the training operator's first. The two can block each other."""
    first: dict[str, str] = {}
    for name in jobs_of(run.config):
        first.setdefault(render(name, run.config)[-1]["kind"], name)
    return [first[kind] for kind in ("PyTorchJob", "MPIJob") if kind in first]


def _wait(job: Submitted) -> None:
    if not until(job.placed, _SECONDS):
        raise CheckFailed(f"{job.name} did not get its nodes: {job.reason() or 'no reason'}")


def _stays_out(job: Submitted) -> None:
    """Raise CheckFailed if any pod of the job gets a node within a fixed time."""
    end = time.monotonic() + _STILL_SECONDS
    while time.monotonic() < end:
        placed = sum(map(scheduled, job.pods()))
        require(placed == 0, f"{placed} of {job.wanted} pods of {job.name} got a node")
        time.sleep(0.3)


def _size(job: Manifest) -> int:
    spec = job["spec"]
    if "pytorchReplicaSpecs" in spec:
        return sum(int(one["replicas"]) for one in spec["pytorchReplicaSpecs"].values())
    if "mpiReplicaSpecs" in spec:
        return int(spec["mpiReplicaSpecs"]["Worker"]["replicas"])
    return int(spec.get("parallelism", 1))
