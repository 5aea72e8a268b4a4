"""A node, as the verbs see it."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Node:
    """One node. ``name`` is its group with a number, oldest first, so it shifts when a node is replaced; without an
    instance it is the ``logical_id``, which AWS gives a node from the request to the end.

    ``state`` is Slurm's or Kubernetes's word for it; ``status`` is SageMaker's: Running, Pending, Failure,
    ShuttingDown, SystemUpdating, DeepHealthCheckInProgress.
    """

    name: str
    group: str
    role: str
    instance_id: str
    instance_type: str
    status: str
    message: str = ""
    hostname: str = ""
    ip: str = ""
    image: str = ""
    state: str = ""
    reason: str = ""
    logical_id: str = ""

    @property
    def request_id(self) -> str:
        """What requests to AWS take for it."""
        return self.instance_id or self.logical_id

    @property
    def kubernetes_name(self) -> str:
        """Its name as a node of Kubernetes."""
        return f"hyperpod-{self.instance_id}"
