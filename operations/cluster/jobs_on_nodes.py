"""Which jobs run on which nodes, so that a change can say what happens to them."""

import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from components.kubernetes.pod_resources import device_limits

from ..failures import Failure
from ..target import Target
from ..terminal.command_line import printable
from . import nodes as cluster_nodes
from . import sessions
from .node import Node

# Phases of a pod that has let its devices go.
ENDED = ("Succeeded", "Failed")
# States that are more than one word, as of a drained node or one that does not respond, are not idle.
_SINFO = "sinfo -h -a -N -o '%N %T' | sed -n 's/ idle$//p' | sort -u"
# Fields end with a separator instead of a width (squeue's manual, --Format); Requeue is 0 or 1. A name may have bars
# and lines in it, so it comes last, and ends with what nobody knew when the job was named.
_SQUEUE = "squeue --noheader --states=RUNNING,COMPLETING,CONFIGURING --Format='JobID:|,UserName:|,Requeue:|,Name:{end}'"


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job or a pod. ``survives`` says what happens to it when its node goes away."""

    id: str
    name: str
    user: str
    survives: str


def on_nodes(target: Target, nodes: Sequence[Node], affected: Sequence[Node]) -> list[Job]:
    """The jobs on the affected nodes. Raises Failure where the scheduler cannot be asked."""
    return _pods(target, affected) if target.on_eks else _slurm_jobs(target, nodes, affected)


def idle(target: Target, nodes: Sequence[Node], wanted: Sequence[Node]) -> list[Node]:
    """Those of the workers that could take a job and have none. Raises Failure where the scheduler cannot be asked."""
    if target.on_eks:
        devices = device_limits(target.config.training_groups, 1, governed=False)
        pods = cluster_nodes.kubernetes(target).all_pods()
        used = {pod["spec"].get("nodeName") for pod in pods if has_devices(pod, devices)}
        return [node for node in wanted if node.kubernetes_name not in used]
    said = _on_controller(target, nodes, _SINFO).split()
    return [node for node in wanted if node.hostname in said]


def _slurm_jobs(target: Target, nodes: Sequence[Node], affected: Sequence[Node]) -> list[Job]:
    names = [node.hostname for node in affected if node.role == "worker" and node.hostname]
    everywhere = any(node.role == "controller" for node in affected)
    if not names and not everywhere:
        return []
    end = f"|{secrets.token_hex(8)}"
    line = _SQUEUE.format(end=end) if everywhere else _of_known(names, _SQUEUE.format(end=end))
    jobs = []
    for record in _on_controller(target, nodes, line).split(end):
        words = record.lstrip("\n").split("|", 3)
        if len(words) == 4:
            survives = "returns to the queue" if words[2] == "1" else "is lost: it was submitted without --requeue"
            jobs.append(Job(id=words[0], name=printable(words[3], keep=""), user=words[1], survives=survives))
    return jobs


def _on_controller(target: Target, nodes: Sequence[Node], line: str) -> str:
    ran = sessions.run_remote(target, cluster_nodes.controller(nodes), line, timeout=60)
    if ran.code != 0:
        raise Failure(f"Slurm on the controller ended with {ran.code}: {ran.output.strip()}")
    return ran.output


def _of_known(names: Sequence[str], squeue: str) -> str:
    """Asks for the jobs on those of the nodes that Slurm has: for a name that it does not know, as of a node that never
    came up, squeue lists nothing at all (its opts.c: "Invalid node name")."""
    wanted = " ".join(f"-e {name}" for name in names)
    return (
        "all=$(sinfo --noheader --Node --format=%N) && "
        f'known=$(sort -u <<< "$all" | grep -Fx {wanted} | paste -sd,) && '
        f'{{ [[ -z $known ]] || {squeue} --nodelist="$known"; }}'
    )


def _pods(target: Target, affected: Sequence[Node]) -> list[Job]:
    names = {node.kubernetes_name for node in affected}
    jobs = []
    for pod in cluster_nodes.kubernetes(target).all_pods():
        owners = {owner["kind"] for owner in pod["metadata"].get("ownerReferences", [])}
        if pod["spec"].get("nodeName") not in names or "DaemonSet" in owners or pod["status"]["phase"] != "Running":
            continue
        survives = f"is recreated by its {owners.pop()}" if owners else "is lost: nothing recreates it"
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        jobs.append(Job(id=f"{namespace}/{name}", name=name, user=namespace, survives=survives))
    return jobs


def has_devices(pod: Any, resources: Collection[str]) -> bool:
    """Whether a pod has devices of its node by one of these resources: from when it has a node until it has ended."""
    limits = [container.get("resources", {}).get("limits") or {} for container in pod["spec"]["containers"]]
    return pod["status"].get("phase") not in ENDED and any(
        resource in limit for limit in limits for resource in resources
    )
