"""What only Slurm has: the head nodes' place in the cluster, partitions, and people's SSH key."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws
import pulumi_aws_native as aws_native
from pulumi import ComponentResource, ResourceOptions

from .config import InstanceGroup
from .names import Names

_NODE_TYPES = {"controller": "Controller", "login": "Login", "worker": "Compute"}


@dataclass(frozen=True, kw_only=True)
class SlurmArgs:
    """What the Slurm side is made from. ``partition`` is the accelerator's; ``continuous``: how HyperPod provisions."""

    cluster: str
    partition: str
    continuous: bool
    ssh_public_key: str | None = None


class Slurm(ComponentResource):
    """Owns the parameter with people's public key, where one is given; HyperPod itself runs Slurm on the nodes.

    HyperPod's agent writes slurm.conf from each group's node type and partition. Its strategy is Merge: what our
    scripts and people add stays. With Managed, such an addition makes the next update fail and roll back. Continuous
    provisioning always merges, and refuses a request that names a strategy (SageMaker Developer Guide, "Migrating to
    API-driven Slurm configuration"). Deliberately absent: accounting and a second controller.
    """

    orchestrator: aws_native.sagemaker.ClusterOrchestratorArgs
    ready: list[pulumi.Resource]

    def __init__(self, name: str, args: SlurmArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("hyperpod:index:Slurm", name, None, opts)
        self._partition = args.partition
        self.ready = []
        if args.ssh_public_key:
            self.ready.append(
                aws.ssm.Parameter(
                    f"{name}-ssh-public-key",
                    name=f"/hyperpod/{args.cluster}/ssh-public-key",
                    type="String",
                    value=args.ssh_public_key.strip(),
                    description="Public key that may log in to the nodes as ubuntu",
                    opts=ResourceOptions(parent=self),
                )
            )
        merge = aws_native.sagemaker.ClusterOrchestratorSlurmConfigSlurmConfigStrategy.MERGE
        self.orchestrator = aws_native.sagemaker.ClusterOrchestratorArgs(
            slurm=aws_native.sagemaker.ClusterOrchestratorSlurmConfigArgs(
                slurm_config_strategy=None if args.continuous else merge
            )
        )
        self.register_outputs({})

    def slurm_config(self, group: InstanceGroup) -> aws_native.sagemaker.ClusterSlurmConfigArgs:
        """A group's node type, and for workers the partition it belongs to."""
        return aws_native.sagemaker.ClusterSlurmConfigArgs(
            node_type=aws_native.sagemaker.ClusterSlurmConfigNodeType(_NODE_TYPES[group.role]),
            partition_names=[self._partition] if group.role == "worker" else None,
        )


def connect_command(names: Names) -> str:
    """How a person reaches the controller; HyperPod's Session Manager targets are not EC2's."""
    target = "sagemaker-cluster:<cluster-id>_controller-<instance-id>"
    listing = f"aws sagemaker list-cluster-nodes --region {names.region} --cluster-name {names.cluster}"
    return f"aws ssm start-session --region {names.region} --target {target}  # instance-id from: {listing}"
