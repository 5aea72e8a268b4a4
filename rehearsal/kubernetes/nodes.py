"""The nodes that HyperPod would add: objects with its labels and the catalogue's capacity, kept alive by kwok."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace

from components.catalogue.accelerators import EFA_RESOURCE, lookup
from components.config import Config, InstanceGroup
from components.kubernetes.node_placement import NETWORK_LAYERS
from components.kubernetes.pod_resources import device_resources as accelerators
from components.kubernetes.pod_resources import node_capacity

from ..patience import until
from .kubectl import Kubectl, Manifest

# SageMaker Developer Guide, "Resilience-related Kubernetes labels by SageMaker HyperPod", and the labels that the
# HyperPod chart's own affinities ask for.
_LABELS = "sagemaker.amazonaws.com"
HEALTH_LABEL, SCHEDULABLE = f"{_LABELS}/node-health-status", "Schedulable"
TYPE_LABEL, GROUP_LABEL = "node.kubernetes.io/instance-type", f"{_LABELS}/instance-group-name"
_JOIN_SECONDS = 60.0
# Nodes that Karpenter could add above a group's limit.
_BEYOND = 3
# A made-up network: so many nodes of a group below a switch of the lowest layer, and so many of these below the next.
_LEAF, _SPINE = 4, 4


def nodes_of(config: Config) -> list[Manifest]:
    """A Node object for every instance that the worker groups always have, of each of their types in turn."""
    return [_node(config, group, index) for group in config.worker_groups for index in range(group.least)]


def on_demand(config: Config) -> dict[str, list[Manifest]]:
    """The nodes that Karpenter can add to each group: more than its limit, which is the pool's to hold."""
    return {
        group.name: [with_devices(config, _node(config, group, index)) for index in range(group.count + _BEYOND)]
        for group in config.worker_groups
        if group.follows_demand
    }


def names_of(config: Config) -> list[str]:
    """The names of all nodes that there can be."""
    nodes = [*nodes_of(config), *(node for group in on_demand(config).values() for node in group)]
    return [str(node["metadata"]["name"]) for node in nodes]


def group_of(config: Config, node: Manifest) -> InstanceGroup:
    """The worker group that a node belongs to, as one of the node's type alone."""
    labels = node["metadata"]["labels"]
    group = next(group for group in config.worker_groups if group.name == labels[GROUP_LABEL])
    return replace(group, types=(lookup(labels[TYPE_LABEL]),))


def join(kubectl: Kubectl, nodes: Sequence[Manifest]) -> bool:
    """Create the nodes with what their kubelets report. Returns whether all became ready."""
    kubectl.apply([{key: value for key, value in node.items() if key != "status"} for node in nodes])
    for node in nodes:
        kubectl.patch_status("node", node["metadata"]["name"], node["status"])

    def ready() -> bool:
        return all(is_ready(node) for node in kubectl.list("nodes"))

    return until(ready, _JOIN_SECONDS)


def leave(kubectl: Kubectl, nodes: Sequence[Manifest]) -> None:
    """Delete the nodes and their pods, which Kubernetes' own garbage collector would only do a minute later."""
    kubectl.delete(nodes)
    there = {node["metadata"]["name"] for node in kubectl.list("nodes")}
    for pod in kubectl.list("pods"):
        if pod["spec"].get("nodeName") not in (None, *there):
            where = (pod["metadata"]["name"], "-n", pod["metadata"]["namespace"])
            kubectl.run("delete", "pod", *where, "--force", "--grace-period=0", "--ignore-not-found")


def is_ready(node: Manifest) -> bool:
    """Whether a node is ready and has no not-ready taint."""
    conditions = {one["type"]: one["status"] for one in node.get("status", {}).get("conditions", [])}
    taints = [taint["key"] for taint in node["spec"].get("taints", [])]
    return conditions.get("Ready") == "True" and not any(key.startswith("node.kubernetes.io/") for key in taints)


def advertise(kubectl: Kubectl, config: Config, node: Manifest, resources: Sequence[str]) -> None:
    """Add resources to a node's capacity like its device plugins, in the amounts from the catalogue."""
    capacity = node_capacity(group_of(config, node))
    added = {name: str(capacity[name]) for name in resources if name in capacity}
    kubectl.patch_status("node", node["metadata"]["name"], {"capacity": added, "allocatable": added})


def with_devices(config: Config, node: Manifest) -> Manifest:
    """The node as after its device plugins' start."""
    capacity = {key: str(value) for key, value in node_capacity(group_of(config, node)).items()}
    capacity = node["status"]["capacity"] | capacity
    return node | {"status": {"capacity": capacity, "allocatable": capacity}}


def device_resources(config: Config) -> dict[str, set[str]]:
    """Extended resources by worker group, which pods can use only once a device plugin advertises them."""
    found = {}
    for group in config.worker_groups:
        offered = {*accelerators([group]), EFA_RESOURCE} & set(node_capacity(group))
        found[group.name] = offered
    return found


def _node(config: Config, group: InstanceGroup, index: int) -> Manifest:
    # The same in every run, in the form of EC2's names.
    group = replace(group, types=(group.types[index % len(group.types)],))
    digest = hashlib.sha256(f"{config.settings.cluster_name}/{group.name}/{index}".encode()).hexdigest()
    name = f"hyperpod-i-{digest[:17]}"
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "arm64" if group.type.architecture == "arm64" else "amd64",
        TYPE_LABEL: group.type.name,
        "topology.kubernetes.io/region": config.region.name,
        f"{_LABELS}/compute-type": "hyperpod",
        f"{_LABELS}/cluster-name": config.settings.cluster_name,
        GROUP_LABEL: group.name,
        HEALTH_LABEL: SCHEDULABLE,
    }
    spec: Manifest = {"providerID": f"aws:///{config.region.name}/sagemaker/cluster/{name}"}
    labels |= group.worker.labels if group.worker else {}
    if group.type.network_labels:
        leaf = index // _LEAF
        labels |= zip(NETWORK_LAYERS, ("nn-0", f"nn-{leaf // _SPINE}", f"nn-{leaf // _SPINE}-{leaf}"), strict=True)
    if group.taints:
        spec["taints"] = [taint.model_dump(exclude_none=True) for taint in group.taints]
    # Devices are added when the plugins' pods run, as on a real node.
    devices = {*accelerators([group]), EFA_RESOURCE}
    capacity = {key: str(value) for key, value in node_capacity(group).items() if key not in devices}
    capacity |= {"pods": str(group.type.pods), "ephemeral-storage": f"{group.volume_gib}Gi"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
        "status": {"capacity": capacity, "allocatable": capacity},
    }
