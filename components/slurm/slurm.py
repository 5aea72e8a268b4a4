"""The Slurm orchestrator: node types of the instance groups, partitions, and the users' SSH key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws
import pulumi_aws_native as aws_native
from pulumi import ComponentResource, Input, ResourceOptions

from ..cluster.orchestrator import Cluster, GroupConfig
from ..common.context import Context
from ..storage.file_systems import Storage
from ..workers.instance_groups import InstanceGroup

_NODE_TYPES = {"controller": "Controller", "login": "Login", "worker": "Compute"}


@dataclass(frozen=True, kw_only=True)
class SlurmArgs:
    """Inputs of the orchestrator. ``ssh_public_key``: the key that may log in as ubuntu; ``accounting``: the database
    of HyperPod's own slurmdbd, None if the scripts know it.
    """

    context: Context
    ssh_public_key: str | None = None
    accounting: aws_native.sagemaker.ClusterAccountingDatabaseArgs | None = None


class Slurm(ComponentResource):
    """Owns the parameter with the users' public key, if one is given; HyperPod itself runs Slurm on the nodes.

    HyperPod's agent writes slurm.conf from each group's node type and partition, and keeps the additions of our scripts
    and people. Deliberately absent: its strategy, because Merge is the default, and the only one of continuous
    provisioning, which refuses a request that names any (SageMaker Developer Guide, "Migrating to API-driven Slurm
    configuration" and "Continuous provisioning for enhanced cluster operations with Slurm"; assumption slurm-merge); a
    second controller, for which that API has nothing (docs/limits.md), and accounting, which the nodes' scripts set up,
    or HyperPod's image, which gets the address of a database on RDS.
    """

    orchestrator: aws_native.sagemaker.ClusterOrchestratorArgs
    ready: list[pulumi.Resource]
    outputs: Mapping[str, Input[str]]
    volume_role: Input[str] | None = None

    def __init__(self, name: str, args: SlurmArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("hyperpod:index:Slurm", name, None, opts)
        self.ready, self.outputs = [], {"connect": connect_command(pulumi.get_stack())}
        if key := args.ssh_public_key:
            self.ready.append(
                aws.ssm.Parameter(
                    f"{name}-ssh-public-key",
                    name=args.context.names.ssh_key_parameter,
                    type="String",
                    value=key.strip(),
                    description="Public key that may log in to the nodes as ubuntu",
                    opts=ResourceOptions(parent=self),
                )
            )
        self.orchestrator = aws_native.sagemaker.ClusterOrchestratorArgs(
            slurm=aws_native.sagemaker.ClusterOrchestratorSlurmConfigArgs(accounting_database=args.accounting)
        )
        self.register_outputs({})

    def group_config(self, group: InstanceGroup) -> GroupConfig:
        """Return a group's node type, and for workers their partition."""
        return GroupConfig(
            slurm_config=aws_native.sagemaker.ClusterSlurmConfigArgs(
                node_type=aws_native.sagemaker.ClusterSlurmConfigNodeType(_NODE_TYPES[group.role]),
                partition_names=[group.partition] if group.partition else None,
            )
        )

    def prepare_training(self, cluster: Cluster, storage: Storage, groups: Sequence[Input[str]]) -> None:
        """Do nothing: the nodes' scripts set up what Slurm's jobs need."""


def connect_command(stack: str) -> str:
    """Return the command by which a person reaches the controller: the verb finds its instance."""
    return f"hyperpod node connect {stack}"
