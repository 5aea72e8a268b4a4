"""Checks of nodes that follow demand, by Karpenter's own program: they come, stay within limits, and go when idle."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from components.config import InstanceGroup
from components.kubernetes.pod_resources import device_resource, node_cpus, tolerations

from ..checks import CheckFailed, require
from ..patience import until
from .kubectl import Manifest
from .nodes import GROUP_LABEL
from .run import Run, scheduled
from .workloads import Submitted, first_of_each_kind, submitted

_SECONDS = 90.0
# Karpenter looks every ten seconds for nodes to remove (pkg/controllers/disruption/controller.go), and again after 15.
_ROUND_SECONDS = 12.0
_SOON = "5s"
_DISRUPTED = "karpenter.sh/disrupted"
_SINGLE = "follows-demand"


def groups_of(run: Run) -> list[InstanceGroup]:
    """The groups whose nodes follow demand and have accelerators, for which this project has jobs."""
    return [group for group in run.config.training_groups if group.follows_demand]


def pods_make_nodes(run: Run) -> str:
    """A group begins without nodes. A job's pods that wait make one for each, with the group's labels and taints."""
    said = []
    for group in groups_of(run):
        require(not (there := _nodes(run, group)), f"{group.name} begins with {len(there)} nodes")
        with _gang(run, group, group.count) as job:
            on = {pod["spec"]["nodeName"] for pod in job.pods()}
            require(on == set(_nodes(run, group)), f"the job is on {sorted(on)}, not on {group.name}'s nodes")
        said.append(f"a job for {group.count} nodes of {group.name} made {len(on)}")
    return f"{', '.join(said)}; Karpenter itself stands in for HyperPod's managed one"


def limits_hold(run: Run) -> str:
    """Pods beyond a group's nodes stay without, by the pool's limits: the cloud has more."""
    said = []
    for group in groups_of(run):
        pods = [_whole_node(group, number) for number in range(group.count + 1)]
        run.kubectl.apply(pods)
        try:
            refused = until(lambda group=group: _refusal(run, group), _SECONDS)  # type: ignore[misc]
            there, left = _nodes(run, group), [pod for pod in _singles(run) if not scheduled(pod)]
            require(len(there) == group.count, f"{len(there)} nodes of {group.name}, at most {group.count}")
            require(len(left) == 1, f"{len(left)} pods have no node, not 1")
            require(refused, f"Karpenter does not say why it adds no node to {group.name}")
        finally:
            run.kubectl.delete(pods)
        said.append(f"{group.name} stays at {group.count} with {group.count + 1} pods that want a node each")
    return ", ".join(said)


def idle_nodes_go(run: Run) -> str:
    """An idle node goes. A job's nodes stay, even where a changed pool has made them others than it would make now."""
    group, policy = groups_of(run)[0], run.config.settings.autoscaling
    assert policy
    # The other policy may move such a job, and only those of `hyperpod job run` stay.
    change = _as_people_write_it if policy.consolidation == "WhenEmpty" else None
    with _gang(run, group, max(1, group.count - 1), change) as job:
        before, began = _placement(job), time.monotonic()
        labels = {"rehearsal.hyperpod/changed": "true"}
        spec = {"disruption": {"consolidateAfter": _SOON}, "template": {"metadata": {"labels": labels}}}
        run.kubectl.run("patch", "nodepool", group.name.lower(), "--type=merge", "-p", json.dumps({"spec": spec}))
        drifted = until(lambda: set(before.values()) <= _drifted(run), _SECONDS)
        require(drifted, f"Karpenter does not see that {group.name}'s pool has changed")
        gone = until(lambda: len(_nodes(run, group)) == len(before), _SECONDS)
        took = time.monotonic() - began
        require(gone, f"{group.name} has {len(_nodes(run, group))} nodes, and a job is on {len(before)}")
        time.sleep(_ROUND_SECONDS)
        chosen = [name for name, node in _nodes(run, group).items() if _is_chosen(node)]
        require(not chosen, f"Karpenter is about to remove {', '.join(chosen)} under a job")
        require(_placement(job) == before, "the job's pods are others, or elsewhere")
    if group.count == 1:
        # The only node was the job's.
        began = time.monotonic()
        require(until(lambda: not _nodes(run, group), _SECONDS), f"the idle node of {group.name} stays")
        took = time.monotonic() - began
    idle = f"{group.name}: an idle node went in {took:.0f} s ({_SOON} in place of {policy.consolidate_after})"
    return f"{idle}, {len(before)} with a job stayed though the pool's labels changed"


@contextmanager
def _gang(
    run: Run, group: InstanceGroup, nodes: int, change: Callable[[Manifest], None] | None = None
) -> Iterator[Submitted]:
    with submitted(run, first_of_each_kind(run)[0], change=change, group=group.name, nodes=nodes) as job:
        if not until(job.placed, _SECONDS):
            there = len(_nodes(run, group))
            raise CheckFailed(f"{job.name} waits, with {there} nodes of {group.name}: {job.reason() or _told(run)}")
        yield job


def _as_people_write_it(job: Manifest) -> None:
    """Without the annotation that keeps Karpenter off the project's own jobs: the pool alone has to."""
    for replica in job["spec"]["pytorchReplicaSpecs"].values():
        replica["template"]["metadata"].pop("annotations")


def _whole_node(group: InstanceGroup, number: int) -> Manifest:
    asked = {"cpu": str(node_cpus(group) // 2 + 1), device_resource(group): str(group.type.accelerators)}
    container = {"name": "main", "image": "job.invalid/plain:1", "resources": {"requests": asked, "limits": asked}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{_SINGLE}-{number}", "namespace": "default", "labels": {"app": _SINGLE}},
        "spec": {
            "nodeSelector": {GROUP_LABEL: group.name},
            "tolerations": tolerations([group]),
            "containers": [container],
        },
    }


def _singles(run: Run) -> list[Manifest]:
    return run.kubectl.list("pods", namespace="default", selector=f"app={_SINGLE}")


def _refusal(run: Run, group: InstanceGroup) -> bool:
    """Whether Karpenter has looked at a pod that waits, and says that the pool's limits forbid a node."""
    waiting = {pod["metadata"]["uid"] for pod in _singles(run) if not scheduled(pod)}
    return len(waiting) == 1 and any(
        event["involvedObject"].get("uid") in waiting and "exceed" in event.get("message", "")
        for event in run.kubectl.list("events", namespace="default")
    )


def _told(run: Run) -> str:
    """What Karpenter last said about pods."""
    said = [event["message"] for event in run.kubectl.list("events") if event["source"].get("component") == "karpenter"]
    return said[-1] if said else "no reason"


def _nodes(run: Run, group: InstanceGroup) -> dict[str, Manifest]:
    found = run.kubectl.list("nodes", selector=f"{GROUP_LABEL}={group.name}")
    return {node["metadata"]["name"]: node for node in found}


def _is_chosen(node: Manifest) -> bool:
    return any(taint["key"] == _DISRUPTED for taint in node["spec"].get("taints", []))


def _drifted(run: Run) -> set[str]:
    """The nodes that Karpenter would make otherwise now."""
    claims = run.kubectl.list("nodeclaims.karpenter.sh")
    return {
        claim["status"].get("nodeName", "")
        for claim in claims
        for condition in claim["status"]["conditions"]
        if (condition["type"], condition["status"]) == ("Drifted", "True")
    }


def _placement(job: Submitted) -> dict[str, str]:
    """The node of each pod, by the pod's own id."""
    return {pod["metadata"]["uid"]: pod["spec"].get("nodeName", "") for pod in job.pods()}
