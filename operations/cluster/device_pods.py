"""NVIDIA's test of a node's GPUs on EKS: a pod that takes all of them, so that no job starts meanwhile.

NVIDIA's DCGM image has the whole suite; the exporter's has not. The pod is of the namespace of the health checks, which
only administrators may use and no quota limits, and is deleted at the end.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from components.config import InstanceGroup
from components.kubernetes.node_health import NAMESPACE
from components.kubernetes.pod_resources import device_resource

from ..failures import Failure
from ..target import Target
from . import nodes as cluster_nodes
from .jobs_on_nodes import ENDED, has_devices
from .node import Node

if TYPE_CHECKING:
    from ..jobs.kubernetes_api import KubernetesApi, Object

# What NVIDIA's GPU operator of 2026 runs.
IMAGE = "nvcr.io/nvidia/cloud-native/dcgm:4.5.2-1-ubuntu22.04"
_MIRRORED = "dcgm:4.5.2-1-ubuntu22.04"
# nv-hostengine goes to the background once it listens.
_SCRIPT = "nv-hostengine && exec {test}"
# Seconds: between two looks, for the scheduler, and to pull an image of 1 GB and start.
_EVERY, _PLACED, _START = 2.0, 30.0, 900.0


def run(target: Target, node: Node, group: InstanceGroup, test: str, seconds: int) -> str:
    """What a test of DCGM's image printed. Raises Failure where jobs run there, or it cannot."""
    api, host = cluster_nodes.kubernetes(target), node.kubernetes_name
    resource = device_resource(group)
    if busy := _users(api, host, resource):
        raise Failure(
            f"{node.name} runs {', '.join(busy)}, and the test needs idle GPUs",
            f"run this again when it has ended; `kubectl cordon {host}` keeps other pods away",
        )
    registry = target.config.settings.network.image_registry
    image = f"{registry}/{_MIRRORED}" if registry else IMAGE
    limits = {resource: str(group.type.accelerators)}
    pod = _pod(node.instance_id, host, image, _SCRIPT.format(test=test), limits, seconds)
    api.apply(pod)
    try:
        ended = _wait(api, pod, node.name, seconds)
        # Each line is behind its time.
        lines = [line.partition(" ")[2] for line in api.log(ended)]
    finally:
        api.delete(pod)
    return "\n".join(lines) + "\n"


def _users(api: KubernetesApi, host: str, resource: str) -> list[str]:
    """The pods on a node that have some of its devices."""
    return [
        f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        for pod in api.all_pods()
        if pod["spec"].get("nodeName") == host and has_devices(pod, [resource])
    ]


def _pod(instance: str, host: str, image: str, script: str, limits: dict[str, str], seconds: int) -> Object:
    here = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [host]}]}]
    container: dict[str, Any] = {
        "name": "dcgm",
        "image": image,
        "command": ["sh", "-c", script],
        "resources": {"limits": limits},
        "securityContext": {"allowPrivilegeEscalation": False, "seccompProfile": {"type": "RuntimeDefault"}},
    }
    spec = {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": seconds + int(_START),
        "automountServiceAccountToken": False,
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": here}}},
        # A node that is cordoned or tainted is tested too.
        "tolerations": [{"operator": "Exists"}],
        "containers": [container],
    }
    metadata = {"name": f"dcgm-{instance}", "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _wait(api: KubernetesApi, pod: Object, name: str, seconds: int) -> Object:
    """The pod once it has ended. Raises Failure where it cannot start, or does not end."""
    began = time.monotonic()
    while (waited := time.monotonic() - began) < seconds + _START:
        found = api.get(pod)
        if found is None:
            raise Failure(f"somebody has deleted the test of {name}")
        status = found.get("status", {})
        if status.get("phase") in ENDED:
            return found
        if status.get("phase") != "Running" and (why := _stuck(status, waited)):
            raise Failure(f"the test cannot start on {name}: {why}")
        time.sleep(_EVERY)
    raise Failure(f"the test of {name} did not end in {seconds + _START:.0f} s")


def _stuck(status: dict[str, Any], waited: float) -> str:
    """Why a pod does not start; empty while it still may."""
    for one in status.get("conditions", []):
        if one["type"] == "PodScheduled" and one["status"] == "False" and waited > _PLACED:
            return str(one.get("message", "no place for it"))
    for container in status.get("containerStatuses", []):
        waiting = container.get("state", {}).get("waiting") or {}
        if waiting.get("reason") in ("ImagePullBackOff", "InvalidImageName", "CreateContainerError"):
            return str(waiting.get("message") or waiting["reason"])
    return f"it has not started in {_START:.0f} s" if waited > _START else ""
