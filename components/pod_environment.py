"""The environment of training pods: one ConfigMap for each worker group, by the rules that Slurm's jobs have too."""

from __future__ import annotations

import sys
from pathlib import Path

from .config import InstanceGroup

# The nodes' package is shipped to them as files and not installed anywhere; the rules are shared with it.
sys.path.append(str(Path(__file__).parents[1] / "lifecycle"))
from hyperpod_node import variables

# Amazon VPC CNI: a pod's one interface.
POD_INTERFACE = "eth0"


def config_map_name(group: str) -> str:
    """The ConfigMap with a worker group's variables, in each training namespace."""
    return f"environment-{group.lower()}"


def pod_variables(group: InstanceGroup) -> dict[str, str]:
    """What a process in a pod on such a node gets; the transport is the catalogue's, which never guesses high."""
    row = group.type
    return dict(variables.for_job(row.transport, POD_INTERFACE, row.accelerator, row.neuron_cores))
