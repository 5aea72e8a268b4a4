"""Derives the resources that a worker node offers to pods from its catalogue row: devices, EFA, huge pages, CPUs,
memory.
"""

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from ..catalogue.accelerators import ACCELERATORS, EFA_RESOURCE
from ..workers.instance_groups import InstanceGroup

Resources: TypeAlias = dict[str, int | str]

HUGE_PAGES_RESOURCE = "hugepages-2Mi"
# Amazon EKS User Guide, "Run machine learning training on Amazon EKS with Elastic Fabric Adapter": nodes with EFA
# reserve 5,128 pages of 2 MiB at boot, and a pod that uses all of a node's interfaces takes 5,120 MiB. None of AWS's
# manifests for Trainium requests any (awslabs/awsome-distributed-ai, neuronx-distributed and optimum-neuron). A pod
# that requests what its node does not have never starts, and libfabric works without huge pages.
NODE_HUGE_PAGES_MIB = 5128 * 2
POD_HUGE_PAGES_MIB = 5120
# The names of SageMaker's queues for pods' requests, which differ from ours (aws/sagemaker-hyperpod-cli,
# NEURON_RESOURCE_LIMIT_KEY; its walkthrough of task governance prints a queue's resources: this, CPUs, memory, GPUs and
# EFA, and no huge pages). Kueue never admits a job that asks for anything else (flavorassigner.go; SageMaker Developer
# Guide, "Task governance setup": excludeResourcePrefixes is empty).
_GOVERNED = {"aws.amazon.com/neuron": "aws.amazon.com/neurondevice"}
# The device plugin of the pinned HyperPod chart offers a chip by both of those names, and its cores (EKS workshop, a
# node's capacity). Neuron 2.22 ended the second one ("Neuron Containers", release notes); the chart has 2.19.
_NEURON_CORE = "aws.amazon.com/neuroncore"
# The rest is for kubelet, the DaemonSets and the page cache of the Lustre client.
_SHARE_OF_NODE = 0.75


def efa_interfaces(group: InstanceGroup) -> int:
    """Return the interfaces that the device plugin certainly advertises; none if the catalogue says "maybe"."""
    return group.type.efa_interfaces if group.type.efa == "yes" else 0


def device_resource(group: InstanceGroup) -> str:
    """Return the resource name of the group's accelerators. Raises ValueError for a group without any."""
    if not group.type.accelerator:
        raise ValueError(f"{group.type.name} has no accelerator")
    return ACCELERATORS[group.type.accelerator].kubernetes_resource


def device_resources(groups: Iterable[InstanceGroup]) -> list[str]:
    """Return the names of all accelerators of the groups, sorted."""
    return sorted({device_resource(group) for group in groups if group.type.accelerator})


def requested_devices(groups: Iterable[InstanceGroup], *, governed: bool) -> list[str]:
    """Return the names by which jobs request the groups' accelerators; ``governed``: in task governance's queues."""
    return [_GOVERNED.get(name, name) if governed else name for name in device_resources(groups)]


def device_limits(groups: Sequence[InstanceGroup], devices: int, *, governed: bool) -> dict[str, int]:
    """Return how much pods may request together, by every name of the device plugins, so that none is bypassed."""
    limits = dict.fromkeys(requested_devices(groups, governed=governed), devices)
    cores = [group.type.neuron_cores // group.type.accelerators for group in groups if group.type.neuron_cores]
    if cores:
        limits = dict.fromkeys(sum(_GOVERNED.items(), ()), 0) | limits | {_NEURON_CORE: devices * max(cores)}
    return limits


def huge_pages_mib(group: InstanceGroup) -> int:
    """Return the huge pages on which pods can rely, MiB per node."""
    return NODE_HUGE_PAGES_MIB if efa_interfaces(group) and group.type.accelerator == "gpu" else 0


def tolerations(groups: Iterable[InstanceGroup]) -> list[dict[str, str]]:
    """Return what a pod must tolerate to run on nodes of all these groups, each taint once."""
    taints = {(taint.key, taint.effect) for group in groups for taint in group.taints}
    return [{"key": key, "operator": "Exists", "effect": effect} for key, effect in sorted(taints)]


def node_cpus(group: InstanceGroup) -> int:
    """Return the logical CPUs that the kernel shows: EC2's vCPUs, reduced by the configured threads per core."""
    threads = group.worker.threads_per_core if group.worker else 1
    return group.type.vcpus // group.type.threads_per_core * threads


def node_capacity(group: InstanceGroup) -> Resources:
    """Return the total capacity of one node of the group, as its kubelet reports it."""
    capacity: Resources = {"cpu": node_cpus(group), "memory": f"{group.type.memory_gib}Gi"}
    if group.type.accelerator:
        capacity[device_resource(group)] = group.type.accelerators
    if efa_interfaces(group):
        capacity[EFA_RESOURCE] = efa_interfaces(group)
    if pages := huge_pages_mib(group):
        capacity[HUGE_PAGES_RESOURCE] = f"{pages}Mi"
    return capacity


def pod_request(
    group: InstanceGroup,
    *,
    devices: int | None = None,
    efa: int | None = None,
    governed: bool = False,
    checkpoint_percent: int = 0,
) -> Resources:
    """Return a training pod's request: by default a whole node. CPUs and memory are proportional to the devices.

    ``governed``: it is for the queues of SageMaker's task governance, which know no huge pages. ``checkpoint_percent``:
    how much of the nodes' memory checkpoints take.
    """
    devices = group.type.accelerators if devices is None else devices
    share = _SHARE_OF_NODE * devices / group.type.accelerators
    interfaces = efa_interfaces(group) if efa is None else efa
    (device,) = requested_devices([group], governed=governed)
    request: Resources = {
        "cpu": max(1, int(node_cpus(group) * share)),
        "memory": f"{max(1, int(group.type.memory_gib * share * (100 - checkpoint_percent) / 100))}Gi",
        device: devices,
    }
    if interfaces:
        request[EFA_RESOURCE] = interfaces
    if interfaces and huge_pages_mib(group) and not governed:
        request[HUGE_PAGES_RESOURCE] = f"{POD_HUGE_PAGES_MIB}Mi"
    return request
