"""A real Kubernetes control plane with many nodes that kwok plays: a gang of a pod a node through Kueue, ten teams.

    venv/bin/python -m benchmarks.kubernetes_nodes [--nodes 10,100,1000] [--json FILE] [--picture FILE]

Needs what ``hyperpod rehearse eks`` needs (`make kubernetes-tools`). The API server, etcd, the scheduler, the
controllers and Kueue are the real programs, with what the stack declares for them; they share this machine's cores with
the simulated nodes, so each time is an upper bound. Nothing is pulled and no container starts.
"""

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from unittest.mock import patch

from rich.console import Console

from components.config import Config, parse
from components.kubernetes.teams.queues import LOCAL_QUEUE, QUEUE_LABEL
from operations.project.loading import load_project
from rehearsal.kubernetes import binaries
from rehearsal.kubernetes.charts import Charts
from rehearsal.kubernetes.container import available
from rehearsal.kubernetes.control_plane import ControlPlane
from rehearsal.kubernetes.declared import declare
from rehearsal.kubernetes.deploy import Deployer
from rehearsal.kubernetes.kubectl import Kubectl, Manifest
from rehearsal.kubernetes.nodes import is_ready, nodes_of, with_devices
from rehearsal.kubernetes.objects import Step
from rehearsal.kubernetes.run import played

from .picture import draw
from .sizes import say, show

_ROOT = Path(__file__).parents[1]
_TEAMS = [{"name": f"team{number}"} for number in range(10)]
_GROUP, _SYSTEM = "workers", "system"
# Kubelets renew their leases every 10 seconds, which is 100 writes a second of 1,000 nodes. Here it is 150 seconds.
_LEASE_SECONDS = 600
# No container starts here, so the image is none.
_IMAGE = "job.invalid/gang:1"


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What one size took, in seconds unless a name says otherwise."""

    nodes: int
    objects_seconds: float
    nodes_ready_seconds: float
    gang_admitted_seconds: float
    gang_placed_seconds: float
    reclaimed_seconds: float
    pods: int
    etcd_mebibytes: float
    server_mebibytes: float
    slowest_write_seconds: float
    server_cpu_seconds: float


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line. Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.kubernetes_nodes", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument(
        "--nodes", default="10,100,1000", help="the sizes, tens, separated by commas (default: 10,100,1000)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw the growth (svg, png, pdf)")
    chosen = parser.parse_args(argv)
    if lacking := binaries.missing():
        print(f"not on this machine: {', '.join(lacking)}; `make kubernetes-tools` builds them", file=sys.stderr)
        return 2
    if not available():
        print("this machine lets you make no namespaces (`unshare --mount --net`)", file=sys.stderr)
        return 2
    found = [measure(nodes) for nodes in map(int, chosen.nodes.split(","))]
    show(f"Kubernetes, {os.cpu_count()} cores for all", [asdict(one) for one in found])
    if chosen.json:
        chosen.json.write_text(json.dumps([asdict(one) for one in found], indent=2) + "\n")
    if chosen.picture:
        names = [name for name in asdict(found[0]) if name.endswith("seconds") and not name.startswith("objects")]
        lines = {name.replace("_", " "): {one.nodes: asdict(one)[name] for one in found} for name in names}
        draw(lines, "Kubernetes and Kueue, seconds", "nodes", chosen.picture)
    return 0


def measure(nodes: int) -> Measured:
    """Deploy a stack of so many nodes, and run a gang on all of them, then a job of each team."""
    workers = [
        {"name": _GROUP, "instanceType": "ml.p5.48xlarge", "count": nodes},
        {"name": _SYSTEM, "instanceType": "ml.m5.4xlarge", "count": 3},
    ]
    project = load_project(
        _ROOT, "eks-gpu", [f"hyperpod:workers={json.dumps(workers)}", f"hyperpod:teams={json.dumps(_TEAMS)}"]
    )
    # The checks know that AWS has no VPC for so many nodes; the embedded account is not asked for their addresses.
    with patch("components.config.load.unaffected", lambda *_: []):
        config = parse(project.config)
        plan = declare(project, config)
    with ControlPlane(binaries.find_all(Console(stderr=True)), lease_seconds=_LEASE_SECONDS) as plane, played(plane):
        kubectl, deployer = plane.kubectl, Deployer(plane.kubectl, Charts(plane.folder), say)
        every = [with_devices(config, node) for node in nodes_of(config)]
        head = [
            one for one in every if one["metadata"]["labels"]["sagemaker.amazonaws.com/instance-group-name"] == _SYSTEM
        ]
        with _timed() as objects:
            _apply(deployer, plan.before_nodes)
            _create(kubectl, head)
            _apply(deployer, plan.after_nodes)
        others = [one for one in every if one not in head]
        say(f"{nodes} nodes join")
        with _timed() as joined:
            with ThreadPoolExecutor(8) as pool:
                list(pool.map(lambda start: _create(kubectl, others[start : start + 50]), range(0, nodes, 50)))
            until(lambda: _ready_nodes(kubectl), len(every), "ready nodes")
            until(lambda: -_pending(kubectl, "-A"), 0, "pods of DaemonSets without a node")
        found = _jobs(plane, config, nodes, objects[0], joined[0])
        say(json.dumps(asdict(found)))
        return found


def _jobs(plane: ControlPlane, config: Config, nodes: int, objects: float, joined: float) -> Measured:
    kubectl = plane.kubectl
    namespaces = [config.settings.namespace_of(team.name) for team in config.settings.namespaces]
    say(f"a gang of {nodes} pods")
    with _timed() as admitted, _timed() as placed:
        kubectl.apply([_gang(config, namespaces[0], nodes)])
        until(lambda: _admitted(kubectl, namespaces[:1]), 1, "admitted")
        admitted.append(time.monotonic())
        until(lambda: _running(kubectl, namespaces[:1]), nodes, "pods run")
    say("nine other teams want their shares back")
    share, others = nodes // len(namespaces), namespaces[1:]
    with _timed() as reclaimed:
        kubectl.apply([_gang(config, one, share) for one in others])
        until(lambda: _running(kubectl, others), share * len(others), "pods of their teams run")
    metrics = kubectl.run("get", "--raw", "/metrics")
    return Measured(
        nodes=nodes,
        objects_seconds=round(objects, 1),
        nodes_ready_seconds=round(joined, 1),
        gang_admitted_seconds=round(admitted[1] - admitted[2], 1),
        gang_placed_seconds=round(placed[0], 1),
        reclaimed_seconds=round(reclaimed[0], 1),
        pods=len(kubectl.run("get", "pods", "-A", "-o", "name").split()),
        etcd_mebibytes=round(_metric(metrics, "apiserver_storage_size_bytes{[^}]*}") / 2**20, 1),
        server_mebibytes=round(_metric(metrics, "process_resident_memory_bytes") / 2**20),
        slowest_write_seconds=_percentile(metrics, 0.99),
        server_cpu_seconds=round(_metric(metrics, "process_cpu_seconds_total")),
    )


def _apply(deployer: Deployer, steps: Sequence[Step]) -> None:
    """As the program, in its order, but with one call for all objects between two charts: each call is a process.

    Without the file system's directories, which a pod that really runs makes on the program's own nodes.
    """
    wanted = [step for step in steps if "directories" not in step.name]
    for charts, part in groupby(wanted, key=lambda step: step.release is not None):
        if charts:
            deployer.apply(part)
        else:
            deployer.kubectl.apply([step.manifest for step in part if step.manifest])


def _create(kubectl: Kubectl, objects: Sequence[Manifest]) -> None:
    """As kubelets do, with their status."""
    given = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
    kubectl.run("create", "-f", "-", given=given)


def _gang(config: Config, namespace: str, size: int) -> Manifest:
    """A job of a pod a node, which takes all of the node's accelerators. Kueue starts all of it or nothing."""
    group = next(one for one in config.worker_groups if one.name == _GROUP)
    asked = {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": str(group.type.accelerators)}
    container = {"name": "main", "image": _IMAGE, "resources": {"requests": asked, "limits": asked}}
    labels = {QUEUE_LABEL: LOCAL_QUEUE}
    pod = {"metadata": {"labels": labels}, "spec": {"restartPolicy": "Never", "containers": [container]}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "gang", "namespace": namespace, "labels": labels},
        "spec": {"parallelism": size, "completions": size, "completionMode": "Indexed", "template": pod},
    }


def _ready_nodes(kubectl: Kubectl) -> int:
    return sum(map(is_ready, kubectl.list("nodes")))


def _pending(kubectl: Kubectl, *where: str) -> int:
    return len(kubectl.run("get", "pods", *where, "--field-selector=spec.nodeName=", "-o", "name").split())


def _running(kubectl: Kubectl, namespaces: Sequence[str]) -> int:
    """Pods of the teams' jobs that run, as their jobs say."""
    jobs = [one for one in kubectl.list("jobs") if one["metadata"]["namespace"] in namespaces]
    return sum(int(one.get("status", {}).get("ready", 0)) for one in jobs)


def _admitted(kubectl: Kubectl, namespaces: Sequence[str]) -> int:
    found = [one for one in kubectl.list("workloads.kueue.x-k8s.io") if one["metadata"]["namespace"] in namespaces]
    conditions = [condition for one in found for condition in one.get("status", {}).get("conditions", [])]
    return sum((one["type"], one["status"]) == ("Admitted", "True") for one in conditions)


def _metric(text: str, name: str) -> float:
    return sum(float(value) for value in re.findall(rf"^{name} (\S+)$", text, re.M))


def _percentile(text: str, part: float) -> float:
    """The bound, in seconds, below which that part of the API server's writes took."""
    counts: dict[float, float] = {}
    pattern = r'^apiserver_request_duration_seconds_bucket{([^}]*)le="([^"]+)"[^}]*} (\S+)$'
    for labels, bound, count in re.findall(pattern, text, re.M):
        if re.search(r'verb="(POST|PUT|PATCH|APPLY|DELETE)"', labels):
            counts[float(bound)] = counts.get(float(bound), 0) + float(count)
    whole = max(counts.values())
    return min(bound for bound, count in counts.items() if count >= part * whole)


@contextmanager
def _timed() -> Iterator[list[float]]:
    """The seconds that the context took, at its end."""
    found: list[float] = []
    began = time.monotonic()
    yield found
    found.insert(0, time.monotonic() - began)
    found.append(began)


def until(count: Callable[[], int], wanted: int, what: str, limit: float = 900.0) -> None:
    """Wait for a number, and say every ten seconds how far it is."""
    began = said = time.monotonic()
    while (found := count()) < wanted:
        now = time.monotonic()
        if now - began > limit:
            raise SystemExit(f"{found} of {wanted} {what} after {limit:g} s")
        if now - said > 10:
            said = now
            say(f"  {now - began:.0f} s: {found} of {wanted} {what}")
        time.sleep(0.2)


if __name__ == "__main__":
    sys.exit(main())
