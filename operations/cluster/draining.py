"""Nodes that take no new jobs, and whose own jobs have ended."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..failures import Failure
from ..target import Target
from . import nodes as cluster_nodes
from . import sessions
from .node import Node

if TYPE_CHECKING:
    from ..jobs.kubernetes_api import KubernetesApi

_ASK_SECONDS, _AGAIN_SECONDS = 60.0, 15.0
# squeue(1): numbers alone, for names have whatever their owners like.
_JOBS = "squeue --noheader --states=RUNNING,SUSPENDED,COMPLETING,CONFIGURING --format=%A"
_OUT = re.compile(r"drain|down|fail")
Say = Callable[[str], None]


def drain_slurm(
    target: Target, nodes: Sequence[Node], batch: Sequence[Node], say: Say, *, reason: str, patience: float, hint: str
) -> list[Node]:
    """Take the workers of ``batch`` out of Slurm, and wait until no job is on them. Returns those to take back.

    ``nodes`` has the controller. One that somebody else has taken out, by its ``reason``, is not among those. Raises
    Failure with ``hint``, with the nodes back in Slurm, where jobs do not end within ``patience`` seconds. With a
    patience below 0 nobody waits.
    """
    head, workers = cluster_nodes.controller(nodes), [node for node in batch if node.role == "worker"]
    if not workers:
        return []
    known = [node for node in cluster_nodes.with_states(target, [head, *workers])[1:] if node.state]
    ours = [node.name for node in known if node.reason.startswith(reason) or not _OUT.search(node.state)]
    taken = [node for node in batch if node.name in ours]
    update(target, head, taken, "State=DRAIN", f"Reason={reason}")
    try:
        _wait(lambda: _jobs(target, head, known) if known else [], named(batch), say, patience, hint)
    except BaseException:
        update(target, head, taken, "State=RESUME")
        raise
    return taken


def drain_kubernetes(
    target: Target, batch: Sequence[Node], say: Say, *, patience: float, hint: str
) -> list[dict[str, Any]]:
    """Cordon the nodes and evict their pods, as `kubectl drain --ignore-daemonsets` does: no disruption budget is
    broken. Returns the nodes to uncordon. Failures, patience and hint as with Slurm."""
    api, names = cluster_nodes.kubernetes(target), {node.kubernetes_name for node in batch}
    known = [node for node in api.nodes() if node["metadata"]["name"] in names]
    taken = [node for node in known if not node["spec"].get("unschedulable")]

    def left() -> list[str]:
        pods = [pod for pod in api.all_pods() if pod["spec"].get("nodeName") in names and _evictable(pod)]
        return [f"{pod['metadata']['name']}{why and f' ({why})'}" for pod in pods for why in [api.evict(pod)]]

    try:
        for node in taken:
            api.cordon(node, on=True)
        _wait(left, named(batch), say, patience, hint)
    except BaseException:
        _uncordon(api, taken)
        raise
    return taken


def _evictable(pod: dict[str, Any]) -> bool:
    """Whether to evict a pod: no DaemonSet owns it (those ignore cordons), nor the kubelet, and it has not ended."""
    owners = {owner["kind"] for owner in pod["metadata"].get("ownerReferences", [])}
    return not owners & {"DaemonSet", "Node"} and pod["status"]["phase"] not in ("Succeeded", "Failed")


def _wait(left: Callable[[], list[str]], where: str, say: Say, patience: float, hint: str) -> None:
    end = time.monotonic() + patience
    while patience >= 0 and (jobs := left()):
        if time.monotonic() >= end:
            raise Failure(f"jobs {', '.join(jobs)} on {where} did not end within {patience:.0f} s", hint)
        say(f"Waiting on {where} for {len(jobs)} jobs to end: {', '.join(jobs[:4])} ...")
        time.sleep(_AGAIN_SECONDS)


def _jobs(target: Target, head: Node, nodes: Sequence[Node]) -> list[str]:
    ran = sessions.run_remote(target, head, f"{_JOBS} --nodelist={_hosts(nodes)}", _ASK_SECONDS)
    if ran.code != 0:
        raise Failure(f"squeue on the controller ended with {ran.code}: {ran.output.strip()}")
    return ran.output.split()


def update(target: Target, head: Node, nodes: Sequence[Node], *words: str) -> None:
    """scontrol update of these nodes, as root on the controller. Raises Failure where Slurm refuses."""
    if not nodes:
        return
    change = shlex.join(["update", f"NodeName={_hosts(nodes)}", *words])
    # sudo searches folders of its own, and Slurm's is none of them.
    ran = sessions.run_remote(target, head, f'sudo -n "$(command -v scontrol)" {change}', _ASK_SECONDS)
    if ran.code != 0:
        raise Failure(f"scontrol on the controller ended with {ran.code}: {ran.output.strip()}")


def _hosts(nodes: Sequence[Node]) -> str:
    return ",".join(node.hostname for node in nodes)


def named(nodes: Sequence[Node]) -> str:
    """Their names in one line."""
    return ", ".join(node.name for node in nodes)


def drain(
    target: Target, nodes: Sequence[Node], batch: Sequence[Node], say: Say, *, reason: str, patience: float, hint: str
) -> Callable[[Sequence[Node]], None]:
    """Drain by the stack's scheduler. Returns what gives those of the nodes back that were not out before."""
    if not batch:
        return lambda back: None
    if target.on_eks:
        cordoned = drain_kubernetes(target, batch, say, patience=patience, hint=hint)

        def uncordon(back: Sequence[Node]) -> None:
            names = {node.kubernetes_name for node in back}
            _uncordon(cluster_nodes.kubernetes(target), [one for one in cordoned if one["metadata"]["name"] in names])

        return uncordon
    taken = drain_slurm(target, nodes, batch, say, reason=reason, patience=patience, hint=hint)
    head = cluster_nodes.controller(nodes)
    return lambda back: update(target, head, [node for node in taken if node in back], "State=RESUME")


def _uncordon(api: KubernetesApi, nodes: Sequence[dict[str, Any]]) -> None:
    for node in nodes:
        api.cordon(node, on=False)
