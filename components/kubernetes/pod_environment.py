"""The environment of training pods: one ConfigMap for each worker group, by the rules that Slurm's jobs have too."""

from __future__ import annotations

from hyperpod_node import variables

from ..config import InstanceGroup

# Amazon VPC CNI: a pod's one interface.
POD_INTERFACE = "eth0"


def config_map_name(group: str) -> str:
    """The ConfigMap with a worker group's variables, in each training namespace."""
    return f"environment-{group.lower()}"


def pod_variables(group: InstanceGroup) -> dict[str, str]:
    """What a process in a pod on such a node gets; the transport is the catalogue's, which never guesses high."""
    row = group.type
    return dict(variables.for_job(row.transport, POD_INTERFACE, row.accelerator, row.neuron_cores))
