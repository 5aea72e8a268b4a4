"""Run a rendered job on the cluster: check, submit, follow, judge."""

import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from hyperpod_commands import bandwidth, pairs

from components.config import Config, InstanceGroup
from components.kubernetes.pod_resources import requested_devices
from components.kubernetes.teams.queues import API as KUEUE_API
from components.kubernetes.teams.queues import QUEUE_LABEL

from ..failures import Failure, bad_input
from . import pair_tests
from .specs import JOBS, NAME_LABEL, RESULTS, TOKEN_KEY, TOKEN_SECRET

Object = dict[str, Any]
OnLine = Callable[[str], None]
OnPhase = Callable[[str], None]
OnPods = Callable[[Sequence[Object]], None]
Test = Literal["nccl", "nccom"]
# The pod whose log is the job's.
_SPEAKER: Mapping[str, Mapping[str, str]] = {
    "MPIJob": {"training.kubeflow.org/job-role": "launcher"},
    "PyTorchJob": {"training.kubeflow.org/replica-index": "0"},
    "Job": {},
    # SageMaker's operator says of no pod's name or label which one is the first.
    "HyperPodPyTorchJob": {},
}
# Seconds of a log that are read twice, so that no line is missed.
_OVERLAP = 10
_DONE = {"Complete": True, "Completed": True, "Succeeded": True, "Failed": False}
# With --tee torchrun puts the process before each line.
_STEP = re.compile(r"^(?:\[default\d+\]:)?(?:iter|step) (\d+): loss ([\d.]+)")


class TimedOut(Failure):
    """A job did not end in time. ``queued`` where nothing of it runs, because it waits for nodes.

    Whoever follows the job knows what becomes of it, and gives the hint.
    """

    def __init__(self, message: str, *, queued: bool) -> None:
        super().__init__(message)
        self.queued = queued


class Api(Protocol):
    """What running a job needs of Kubernetes; ``KubernetesApi`` is it."""

    def apply(self, document: Object, *, dry_run: bool = False) -> None: ...
    def get(self, document: Object) -> Object | None: ...
    def delete(self, document: Object) -> None: ...
    def pods(self, namespace: str, labels: Mapping[str, str]) -> list[Object]: ...
    def listed(self, api_version: str, kind: str, namespace: str) -> list[Object]: ...
    def log(self, pod: Object, *, last_seconds: int | None = None) -> list[str]: ...


@dataclass(frozen=True, kw_only=True)
class Result:
    """How a job ended. ``figures`` are what its output says: bandwidths in GB/s, the last step and its loss.

    With Slurm it has no ``namespace``.
    """

    job: str
    namespace: str | None
    passed: bool
    seconds: float
    reasons: tuple[str, ...] = ()
    figures: Mapping[str, float] = field(default_factory=dict)


def check(api: Api, objects: Sequence[Object], config: Config, *, pretrained: bool = False) -> None:
    """Refuse what the cluster would refuse or leave pending forever. Raises Failure with every problem at once."""
    job = objects[-1]
    name, namespace = job["metadata"]["name"], job["metadata"]["namespace"]
    if api.get({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}) is None:
        raise bad_input(f"the cluster has no namespace {namespace}", "`pulumi up` makes those of hyperpod:teams")
    problems = []
    if api.get(job) is not None:
        kind = job["kind"].lower()
        problems.append(f"{name} already exists; delete it first: kubectl delete {kind} {name} -n {namespace}")
    if pretrained and JOBS[name].token and not _has_token(api, namespace):
        problems.append(
            f"a pretrained model needs a Hugging Face token, and there is no secret {TOKEN_SECRET} with {TOKEN_KEY}: "
            f"kubectl create secret generic {TOKEN_SECRET} --from-file={TOKEN_KEY}=FILE -n {namespace}"
        )
    problems += _quota(api, job, config)
    if problems:
        raise bad_input("\n".join(problems))
    for document in objects:
        api.apply(document, dry_run=True)


def _has_token(api: Api, namespace: str) -> bool:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": TOKEN_SECRET, "namespace": namespace}}
    found = api.get(secret)
    return found is not None and TOKEN_KEY in (found.get("data") or {})


def _quota(api: Api, job: Object, config: Config) -> Iterator[str]:
    """What the namespace may still use, against what the job's pods ask for together."""
    metadata = {"name": "quota", "namespace": job["metadata"]["namespace"]}
    found = api.get({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata}) or {}
    status = found.get("status") or {}
    governed = config.settings.charts.queues == "task-governance"
    for device in requested_devices(config.worker_groups, governed=governed):
        key = f"requests.{device}"
        hard, used = int((status.get("hard") or {}).get(key, -1)), int((status.get("used") or {}).get(key, 0))
        wanted = devices_of(job, device)
        if 0 <= hard < used + wanted:
            yield (
                f"{wanted} devices asked for; of the {hard} of namespace {metadata['namespace']} {used} are in use: "
                "wait, ask for fewer --nodes, or raise hyperpod:teams"
            )
            return


def devices_of(job: Object, resource: str) -> int:
    """Devices that all pods of a job ask for together."""

    def pods(spec: Mapping[str, Any], replicas: int) -> int:
        containers = spec["template"]["spec"]["containers"]
        return replicas * sum(int(c["resources"].get("requests", {}).get(resource, 0)) for c in containers)

    spec = job["spec"]
    replicas = spec.get("mpiReplicaSpecs") or spec.get("pytorchReplicaSpecs")
    if replicas or "replicaSpecs" in spec:
        of_each = replicas.values() if replicas else spec["replicaSpecs"]
        return sum(pods(one, one["replicas"]) for one in of_each)
    return pods(spec, spec["parallelism"])


def submit(api: Api, objects: Sequence[Object]) -> None:
    """Apply a job's objects, in order. Jobs of an elastic one's further nodes come last, and go with it."""
    further = [one for one in objects[:-1] if one["kind"] == "Job"]
    for document in objects:
        if document not in further:
            api.apply(document)
    if not further:
        return
    job = objects[-1]
    owner = {key: job[key] for key in ("apiVersion", "kind")} | {"name": job["metadata"]["name"]}
    owner["uid"] = (api.get(job) or {"metadata": {"uid": ""}})["metadata"]["uid"]
    for document in further:
        api.apply({**document, "metadata": {**document["metadata"], "ownerReferences": [owner]}})


class _Log:
    """What one run of a container says: asked again and again, since a stream that is silent would hold up everything.

    The kubelet's times have nine digits after the point always, so they sort as text.
    """

    def __init__(self) -> None:
        self._last = ""
        self._asked: float | None = None

    def new(self, api: Api, pod: Object) -> list[str]:
        """The lines since the last time."""
        now, before = time.monotonic(), self._last
        recent = None if self._asked is None else math.ceil(now - self._asked) + _OVERLAP
        found = [line.partition(" ") for line in api.log(pod, last_seconds=recent)]
        self._asked, self._last = now, max((stamp for stamp, _, _ in found), default=before)
        return [line for stamp, _, line in found if stamp > before]


def follow(
    api: Api,
    objects: Sequence[Object],
    on_line: OnLine,
    on_phase: OnPhase,
    timeout: float,
    pause: float = 2.0,
    on_pods: OnPods = lambda pods: None,
) -> tuple[bool, list[str]]:
    """Pass on what the job says until it ends. Whether it succeeded, and its lines, of containers begun again too.

    Raises TimedOut after ``timeout`` seconds; the job goes on.
    """
    job, end = objects[-1], time.monotonic() + timeout
    lines: list[str] = []
    logs: dict[tuple[str, int], _Log] = {}

    def listen(pods: Sequence[Object]) -> None:
        for pod in _speakers(job, pods):
            if _runs(pod):
                for line in logs.setdefault(_container(pod), _Log()).new(api, pod):
                    on_line(line)
                    lines.append(line)

    while (ended := _ended(api, job)) is None:
        if time.monotonic() > end:
            pods = _pods(api, job)
            raise TimedOut(
                f"{job['metadata']['name']} did not end within {timeout:.0f} s: {_phase(api, job, pods)}",
                queued=_queued(pods),
            )
        pods = _pods(api, job)
        on_pods(pods)
        on_phase(_phase(api, job, pods))
        listen(pods)
        time.sleep(max(0.0, min(pause, end - time.monotonic())))
    pods = _pods(api, job)
    on_pods(pods)
    listen(pods)
    return ended, lines


def state(api: Api, job: Object) -> str:
    """What a job is doing, in words; empty where there is none of its name."""
    found = api.get(job)
    if found is None:
        return ""
    succeeded = _success(found)
    return _phase(api, found, _pods(api, job)) if succeeded is None else "succeeded" if succeeded else "failed"


def said(api: Api, job: Object) -> list[str]:
    """What the pods said whose log is the job's, without times."""
    pods = [pod for pod in _speakers(job, _pods(api, job)) if _runs(pod)]
    return [line.partition(" ")[2] for pod in pods for line in api.log(pod)]


def _container(pod: Object) -> tuple[str, int]:
    """One run of a pod's container: a pod may come again under its name, and a container within its pod."""
    statuses = pod["status"].get("containerStatuses") or []
    return pod["metadata"]["uid"], sum(int(status["restartCount"]) for status in statuses)


def _ended(api: Api, job: Object) -> bool | None:
    found = api.get(job)
    if found is None:
        raise Failure(f"{job['metadata']['name']} was deleted while it ran")
    return _success(found)


def _success(found: Object) -> bool | None:
    """Whether a job has succeeded; None while it goes on."""
    for condition in (found.get("status") or {}).get("conditions") or []:
        if condition["type"] in _DONE and condition["status"] == "True":
            return _DONE[condition["type"]]
    return None


def _pods(api: Api, job: Object) -> list[Object]:
    return api.pods(job["metadata"]["namespace"], {NAME_LABEL: job["metadata"]["name"]})


def _speakers(job: Object, pods: Sequence[Object]) -> list[Object]:
    wanted = _SPEAKER[job["kind"]].items()
    return [pod for pod in pods if wanted <= (pod["metadata"].get("labels") or {}).items()]


def _runs(pod: Object) -> bool:
    return pod.get("status", {}).get("phase") in ("Running", "Succeeded", "Failed")


def _phase(api: Api, job: Object, pods: Sequence[Object]) -> str:
    """What the job is waiting for, in words."""
    if not pods:
        return f"queued: {_why_queued(api, job) or 'no pod yet'}"
    running = sum(pod.get("status", {}).get("phase") == "Running" for pod in pods)
    for why in filter(None, map(_unplaced, pods)):
        return f"{running} of {len(pods)} pods run; {why}"
    return f"{running} of {len(pods)} pods run"


def _why_queued(api: Api, job: Object) -> str:
    """Why Kueue has not admitted a job, as it says on the job's workload; empty where it says nothing."""
    if QUEUE_LABEL not in (job["metadata"].get("labels") or {}):
        return ""
    workloads = []
    with suppress(Failure):  # a job is followed without it, too
        workloads = api.listed(KUEUE_API, "Workload", job["metadata"]["namespace"])
    for workload in workloads:
        owners = workload["metadata"].get("ownerReferences") or []
        if any((one["kind"], one["name"]) == (job["kind"], job["metadata"]["name"]) for one in owners):
            for condition in (workload.get("status") or {}).get("conditions") or []:
                if (condition["type"], condition["status"]) == ("QuotaReserved", "False"):
                    return str(condition["message"])
    return ""


def _unplaced(pod: Object) -> str:
    """Why a pod has no node yet, as the scheduler says; empty where it has one."""
    for condition in pod.get("status", {}).get("conditions") or []:
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return str(condition.get("message", "the others wait for a node"))
    return ""


def _queued(pods: Sequence[Object]) -> bool:
    """Whether a job waits for nodes alone. A pod that has one and does not run has another trouble."""
    waiting = [pod for pod in pods if pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")]
    return not pods or (bool(waiting) and all(map(_unplaced, waiting)))


def judge(
    name: str,
    namespace: str | None,
    group: InstanceGroup,
    nodes: int,
    succeeded: bool,
    lines: Sequence[str],
    seconds: float,
) -> Result:
    """The result of a job, from its end and its output. With Slurm, where a job has no namespace, the nodes' own test
    programs have judged what they measured: they fail where it is too slow."""
    reasons = [] if succeeded else [why_failed(lines)]
    figures: dict[str, float] = {}
    text = "\n".join(lines)
    if name in ("nccl-tests", "nccom-test"):
        test: Test = "nccl" if name == "nccl-tests" else "nccom"
        _, _, rating = rate(test, group, "all_reduce", text, nodes, "" if succeeded else why_failed(lines))
        reasons = reasons if namespace is None else list(rating.reasons)
        figures = {"average_busbw": rating.average, "peak_busbw": rating.peak, "threshold": rating.threshold or 0.0}
    elif name == "find-slow-node":
        tested = pair_tests.read(group, lines, {place: f"worker-{place}" for place in range(nodes)})
        if not tested:
            reasons.append("no pair of nodes was tested")
        else:
            found = pairs.judge(tested, pair_tests.threshold(group), {})
            figures = {"pairs": float(len(tested)), "fastest_busbw": found.fastest, "threshold": found.limit}
            reasons += [] if found.good else pairs.verdict(found)[1:-1]
    elif name == "device-check":
        passed = sum(line == "PASS" for line in lines)
        figures = {"nodes_passed": float(passed)}
        if passed < nodes:
            reasons.append(f"{passed} of {nodes} nodes see all of their devices")
    elif steps := [match for line in lines if (match := _STEP.match(line))]:
        figures = {"step": float(steps[-1][1]), "loss": float(steps[-1][2])}
    elif succeeded and name in JOBS and JOBS[name].scripts and name != "nemo":
        done = any(line.startswith("resumed after") for line in lines)
        reasons.append(
            f'{RESULTS}/{name} has finished training already: raise --steps or change --out, with --arguments "..."'
            if done
            else "the job ended without training a step"
        )
    return Result(
        job=name,
        namespace=namespace,
        passed=not reasons,
        seconds=round(seconds, 1),
        reasons=tuple(reasons),
        figures=figures,
    )


def rate(
    test: Test, group: InstanceGroup, collective: str, text: str, nodes: int, failure: str = ""
) -> tuple[int, int, bandwidth.Rating]:
    """Rate what a test printed on nodes of a group: nodes and ranks on each, as it says itself if it does, and how."""
    row = group.type
    devices = max(1, row.neuron_cores if test == "nccom" else row.accelerators)
    number, per_node = bandwidth.placement(text) or (nodes, devices)
    share = min(1.0, per_node / devices)
    limit = bandwidth.threshold(collective, test, row.network_gbps, number, per_node, share)
    return number, per_node, bandwidth.rate(test, text, limit, failure)


def why_failed(lines: Sequence[str]) -> str:
    """Why a job failed, by its last output."""
    said = next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")
    return f"the job failed: {said}"
