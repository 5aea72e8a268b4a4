"""An instance group with every value filled in."""

from dataclasses import dataclass
from functools import cached_property

from hyperpod_node.facts.model import NodeRole

from ..catalogue.accelerators import InstanceType, in_common
from .keys import Taint, WorkerGroup


@dataclass(frozen=True, kw_only=True)
class InstanceGroup:
    """One HyperPod instance group with every value filled in.

    ``type`` is what all of its nodes have: of several ``types``, in order of preference, the first with the least of
    each quantity. ``count`` is its number of nodes; if it follows demand, the most. ``volume_gib`` is the data volume
    at /opt/sagemaker. ``taints`` are those of its Kubernetes nodes. ``partition`` is the one into which HyperPod's
    agent puts its nodes on Slurm, empty for head nodes.
    """

    name: str
    role: NodeRole
    types: tuple[InstanceType, ...]
    count: int
    volume_gib: int
    partition: str = ""
    worker: WorkerGroup | None = None
    taints: tuple[Taint, ...] = ()

    @cached_property
    def type(self) -> InstanceType:
        """The facts that hold for each node: those of its type, or what its types have in common."""
        return in_common(self.types)

    @property
    def type_names(self) -> str:
        """The types in words, in order of preference."""
        return " or ".join(row.name for row in self.types)

    def type_of(self, name: str) -> InstanceType:
        """Return what a node of the type with this name has."""
        return next((row for row in self.types if row.name == name), self.type)

    @property
    def interfaces(self) -> int:
        """The maximum number of a node's network interfaces."""
        return max(row.interfaces for row in self.types)

    @property
    def follows_demand(self) -> bool:
        """Whether Karpenter adds and removes its nodes."""
        return self.worker is not None and self.worker.scaling == "demand"

    @property
    def least(self) -> int:
        """The number of nodes that it always has."""
        return 0 if self.follows_demand else self.count

    def wanted(self, there: int) -> int:
        """Return the number of nodes that it should have, where it has so many."""
        return min(there, self.count) if self.follows_demand else self.count
