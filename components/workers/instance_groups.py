"""An instance group with every value filled in."""

from __future__ import annotations

from dataclasses import dataclass

from hyperpod_node.facts.model import NodeRole

from ..catalogue.accelerators import InstanceType
from .keys import Taint, WorkerGroup


@dataclass(frozen=True, kw_only=True)
class InstanceGroup:
    """One HyperPod instance group with every value filled in.

    ``volume_gib`` is the data volume at /opt/sagemaker. ``taints`` are those of its Kubernetes nodes. ``partition`` is
    the one into which HyperPod's agent puts its nodes on Slurm, empty for head nodes.
    """

    name: str
    role: NodeRole
    type: InstanceType
    count: int
    volume_gib: int
    partition: str = ""
    worker: WorkerGroup | None = None
    taints: tuple[Taint, ...] = ()
