"""An instance group with every value filled in."""

from dataclasses import dataclass

from hyperpod_node.facts.model import NodeRole

from ..catalogue.accelerators import InstanceType
from .keys import Taint, WorkerGroup


@dataclass(frozen=True, kw_only=True)
class InstanceGroup:
    """One HyperPod instance group with every value filled in.

    ``count`` is its number of nodes; if it follows demand, the most. ``volume_gib`` is the data volume at
    /opt/sagemaker. ``taints`` are those of its Kubernetes nodes. ``partition`` is the one into which HyperPod's agent
    puts its nodes on Slurm, empty for head nodes.
    """

    name: str
    role: NodeRole
    type: InstanceType
    count: int
    volume_gib: int
    partition: str = ""
    worker: WorkerGroup | None = None
    taints: tuple[Taint, ...] = ()

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
