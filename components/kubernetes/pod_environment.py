"""The environment of training pods: one ConfigMap for each worker group, by the same rules as for Slurm jobs."""

from hyperpod_node.network import job_variables

from ..workers.instance_groups import InstanceGroup

# Amazon VPC CNI: a pod's only interface.
POD_INTERFACE = "eth0"
# The ConfigMap with the address of the stack's MLflow App, in each training namespace.
TRACKING_MAP = "mlflow"


def config_map_name(group: str) -> str:
    """Return the name of the ConfigMap with a worker group's variables, in each training namespace."""
    return f"environment-{group.lower()}"


def pod_variables(group: InstanceGroup) -> dict[str, str]:
    """Return the variables of a process in a pod on such a node; the transport is the catalogue's safe one."""
    row = group.type
    return dict(job_variables.for_job(row.transport, POD_INTERFACE, row.accelerator, row.neuron_cores))


def nccl_network(group: InstanceGroup, nodes: int, interfaces: int) -> str:
    """Return the only network that NCCL may use in a job of pods with so many EFA interfaces; "" if it may choose."""
    row = group.type
    told = job_variables.between_nodes(row.transport, row.accelerator) if nodes > 1 and interfaces > 0 else {}
    return told.get("NCCL_NET", "")
