"""The environment of training pods: one ConfigMap for each worker group, by the same rules as for Slurm jobs."""

from __future__ import annotations

from hyperpod_node import variables

from ..config import InstanceGroup

# Amazon VPC CNI: a pod's only interface.
POD_INTERFACE = "eth0"


def config_map_name(group: str) -> str:
    """The ConfigMap with a worker group's variables, in each training namespace."""
    return f"environment-{group.lower()}"


def pod_variables(group: InstanceGroup) -> dict[str, str]:
    """The variables of a process in a pod on such a node; the transport is the catalogue's, on the safe side."""
    row = group.type
    return dict(variables.for_job(row.transport, POD_INTERFACE, row.accelerator, row.neuron_cores))


def nccl_network(group: InstanceGroup, nodes: int, interfaces: int) -> str:
    """The only network that NCCL may use in a job of pods with so many EFA interfaces; "" where it may choose.

    Where an image lacks EFA's plugin, NCCL goes over TCP, slowly and without a word; told the network's name it fails
    at once (NCCL documentation, "NCCL_NET"). aws-ofi-nccl takes this name in all its releases
    (src/nccl_ofi_interface_nvidia.cpp). A job on one node has no use for it.
    """
    over_efa = interfaces > 0 and group.type.transport != variables.TCP
    return "AWS Libfabric" if group.type.accelerator == "gpu" and nodes > 1 and over_efa else ""
