"""Changes of nodes: what happens to the jobs, then the request."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from botocore.exceptions import BotoCoreError, ClientError

from ..failures import Failure, bad_input, explain
from ..target import Target
from . import jobs_on_nodes
from .jobs_on_nodes import Job
from .node import Node

Verb = Literal["replace", "reboot", "update-software", "scale", "run-scripts", "remove", "deep-check"]
# BatchReplaceClusterNodes and BatchRebootClusterNodes take 1 to 25 nodes (SageMaker API Reference).
_MOST_NODES = 25


@dataclass
class Plan:
    """What a change will do. ``unknown`` says why the jobs could not be listed; empty when they could."""

    verb: Verb
    nodes: list[Node]
    effects: list[str] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)
    unknown: str = ""


_EFFECTS = {
    "replace": (
        "the instance is terminated and a new one booted: about 10 to 25 minutes, if AWS has capacity",
        "everything on its local disks is lost (/opt/sagemaker, /opt/dlami/nvme); /fsx stays",
    ),
    "reboot": (
        "the instance reboots: a few minutes",
        # The disks keep their contents, and a boot may format them (awsome-distributed-ai, hyperpod-mental-model.md).
        "memory and /tmp are lost; the boot may empty /opt/dlami/nvme; /opt/sagemaker stays, and /fsx stays",
    ),
    # SageMaker Developer Guide, "Update the SageMaker HyperPod platform software of a cluster".
    "update-software": (
        "every node of the groups gets the newest image, so everything on its root volume is lost; /fsx stays",
        "the lifecycle scripts run again; where the image is the newest already, nothing happens",
    ),
    # SageMaker Developer Guide, "Scale down a SageMaker HyperPod cluster": backup, and metering of reserved instances.
    "remove": (
        "the instances are terminated and none comes in their place; their group's count falls by as many",
        "everything on their local disks is lost (/opt/sagemaker, /opt/dlami/nvme); /fsx stays",
    ),
    # SageMaker API Reference, StartClusterHealthCheck; Developer Guide, "Deep health checks".
    "deep-check": (
        "no job starts there until they pass: InstanceStress in 45 to 90 minutes, InstanceConnectivity in 5 to 15",
        "with nodeRecovery Automatic HyperPod reboots or replaces a node that fails: docs/health.md",
    ),
    "run-scripts": ("the scripts that are in the stack's bucket run as root, and leave alone what is right already",),
}


# The root volume of the controller has Slurm's StateSaveLocation: the guide's backup script saves /var/spool/slurmctld.
_QUEUE_LOST = (
    "it is the Slurm controller, and the queue is on its root volume: jobs that wait are lost, and Slurm ends those "
    "that run (hyperpod:slurm.sharedQueue keeps them)"
)


def plan(target: Target, verb: Verb, nodes: Sequence[Node], affected: Sequence[Node]) -> Plan:
    """What the change does to these nodes and to the jobs on them. Asks the scheduler; changes nothing.

    Raises Failure for a change that SageMaker does not support on that kind of node.
    """
    heads = [node.name for node in affected if node.role == "controller"]
    if verb == "replace" and heads:
        # BatchReplaceClusterNodes, NodeIds (SageMaker API Reference).
        raise bad_input(
            f"{heads[0]} is the Slurm controller, which SageMaker does not replace",
            "hyperpod node reboot controller; update-software --group controller gives it a new image",
        )
    found = Plan(verb=verb, nodes=list(affected), effects=list(_EFFECTS.get(verb, ())))
    lost = bool(heads) and verb == "update-software" and not target.config.settings.slurm.shared_queue
    if heads:
        found.effects.append(
            _QUEUE_LOST
            if lost
            else "it is the Slurm controller: meanwhile no job can be submitted; running jobs continue"
        )
    try:
        jobs = jobs_on_nodes.on_nodes(target, nodes, affected)
        found.jobs = [replace(job, survives="is lost with the queue") for job in jobs] if lost else jobs
    except (Failure, ClientError, BotoCoreError) as error:
        failure = explain(error, target.stack)
        found.unknown = failure.message if failure else str(error)
    return found


def require_idle(plan: Plan) -> None:
    """Raises Failure where jobs run on the plan's nodes, or nobody can tell."""
    if plan.unknown or plan.jobs:
        why = f"the jobs there are unknown: {plan.unknown}" if plan.unknown else f"{len(plan.jobs)} jobs run there"
        raise Failure(f"nothing was changed: {why}", "try again later, or leave --if-idle out")


def replace_nodes(target: Target, nodes: Sequence[Node]) -> list[str]:
    """Ask SageMaker for new instances. Returns the ids it accepted; raises Failure where it refused one."""
    return _batch(target, "batch_replace_cluster_nodes", nodes)


def reboot_nodes(target: Target, nodes: Sequence[Node]) -> list[str]:
    """Ask SageMaker to reboot. Returns the ids it accepted; raises Failure where it refused one."""
    return _batch(target, "batch_reboot_cluster_nodes", nodes)


def _batch(target: Target, operation: str, nodes: Sequence[Node]) -> list[str]:
    if not 1 <= len(nodes) <= _MOST_NODES:
        raise bad_input(f"{len(nodes)} nodes at once", f"1 to {_MOST_NODES}")
    call = getattr(target.aws.client("sagemaker"), operation)
    answer = call(ClusterName=target.cluster_name, **request_ids(nodes))
    names = {node.request_id: node.name for node in nodes}
    refused = [f"{names.get(one, one)}: {failed['ErrorCode']}: {failed['Message']}" for one, failed in failures(answer)]
    accepted = [str(one) for key in ("Successful", "SuccessfulNodeLogicalIds") for one in answer.get(key, [])]
    if refused:
        done = f"; accepted: {', '.join(accepted)}" if accepted else ""
        raise Failure(f"SageMaker refused {'; '.join(refused)}{done}", f"hyperpod node list {target.stack}")
    return accepted


def request_ids(nodes: Sequence[Node]) -> dict[str, list[str]]:
    """What names these nodes in SageMaker's requests for several: instances, and nodes that have none yet."""
    ids = {
        "NodeIds": [node.instance_id for node in nodes if node.instance_id],
        "NodeLogicalIds": [node.logical_id for node in nodes if not node.instance_id],
    }
    return {key: some for key, some in ids.items() if some}


def failures(answer: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each node that such a request was refused for, by what named it there."""
    for failed in [*answer.get("Failed", []), *answer.get("FailedNodeLogicalIds", [])]:
        yield failed.get("NodeId") or failed["NodeLogicalId"], failed


def check_groups(target: Target, groups: Sequence[str]) -> None:
    """Raises Failure where the configuration has no group of that name."""
    known = [group.name for group in target.config.instance_groups]
    if wrong := sorted(set(groups) - set(known)):
        raise bad_input(f"there is no group {', '.join(wrong)}", f"groups here: {', '.join(known)}")


def check_batch(target: Target, batch: int | None) -> None:
    """Raises Failure for batches with Slurm: SageMaker has them only with EKS (Developer Guide, "Update your AMI
    version in your SageMaker HyperPod cluster")."""
    if batch and not target.on_eks:
        raise bad_input(f"--batch {batch}, and SageMaker updates all nodes of a Slurm group at once", "--group GROUP")


def updatable(target: Target, groups: Sequence[str]) -> list[str]:
    """Return the groups that get AWS's newest image: these, or by default all whose image is not one's own.

    Without InstanceGroups, UpdateClusterSoftware gives its image to every group. An empty list asks for that. Raises
    Failure for a group with ``imageId``, and where there are no others.
    """
    every = [group.name for group in target.config.instance_groups]
    own = {group.name for group in target.config.instance_groups if group.worker and group.worker.image_id}
    chosen = list(groups) or ([name for name in every if name not in own] or every if own else [])
    if named := sorted(own & set(chosen)):
        raise bad_input(
            f"{', '.join(named)} has an image of your own (imageId), which AWS's would replace",
            "add a group with the newer image, and remove this one once no job needs it",
        )
    return chosen


def update_software(target: Target, groups: Sequence[str], batch: int | None) -> str:
    """Request the newest image for these groups, ``batch`` nodes at a time, by default all. Returns the ARN."""
    request: dict[str, object] = {"ClusterName": target.cluster_name}
    if groups:
        request["InstanceGroups"] = [{"InstanceGroupName": name} for name in groups]
    if batch:
        size = {"Type": "INSTANCE_COUNT", "Value": batch}
        request["DeploymentConfig"] = {"RollingUpdatePolicy": {"MaximumBatchSize": size}}
    return str(target.aws.client("sagemaker").update_cluster_software(**request)["ClusterArn"])
