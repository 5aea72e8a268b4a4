"""Which jobs run on which nodes, so that a change can say what happens to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stack.failures import Failure

from ..target import Target
from . import nodes as cluster_nodes
from . import sessions
from .node import Node

# Fields end with a separator instead of a width (squeue's manual, --Format); Requeue is 0 or 1.
_FIELDS = ("JobID", "Name", "UserName", "State", "TimeUsed", "Requeue")
_SQUEUE = (
    "squeue --noheader --states=RUNNING,COMPLETING,CONFIGURING "
    f"--Format='{','.join(f'{field}:|' for field in _FIELDS)}'"
)


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


def _slurm_jobs(target: Target, nodes: Sequence[Node], affected: Sequence[Node]) -> list[Job]:
    names = ",".join(node.hostname for node in affected if node.role == "worker")
    chosen = f" --nodelist={names}" if names and not any(node.role == "controller" for node in affected) else ""
    if not names and not any(node.role == "controller" for node in affected):
        return []
    ran = sessions.run_remote(target, cluster_nodes.controller(nodes), _SQUEUE + chosen, timeout=60)
    if ran.code != 0:
        raise Failure(f"squeue on the controller ended with {ran.code}: {ran.output.strip()}")
    jobs = []
    for line in ran.output.splitlines():
        words = [word.strip() for word in line.split("|")]
        if len(words) >= 6 and words[0]:
            survives = "returns to the queue" if words[5] == "1" else "is lost: it was submitted without --requeue"
            jobs.append(Job(id=words[0], name=words[1], user=words[2], survives=survives))
    return jobs


def _pods(target: Target, affected: Sequence[Node]) -> list[Job]:
    names = {f"hyperpod-{node.instance_id}" for node in affected}
    jobs = []
    for pod in cluster_nodes.kubernetes(target).all_pods():
        owners = {owner["kind"] for owner in pod["metadata"].get("ownerReferences", [])}
        if pod["spec"].get("nodeName") not in names or "DaemonSet" in owners or pod["status"]["phase"] != "Running":
            continue
        survives = f"is recreated by its {owners.pop()}" if owners else "is lost: nothing recreates it"
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        jobs.append(Job(id=f"{namespace}/{name}", name=name, user=namespace, survives=survives))
    return jobs
