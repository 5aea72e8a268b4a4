"""Creates the SageMaker HyperPod cluster; nothing else does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pulumi
import pulumi_aws as aws
import pulumi_aws_native as aws_native
from pulumi import CustomTimeouts, Input, Output, ResourceOptions

from ..common.context import Context
from ..common.names import ENTRY_POINT
from ..common.policies import allow, document
from ..workers.instance_groups import InstanceGroup
from ..workers.keys import Autoscaling
from .autoscaling import karpenter_role
from .orchestrator import Cluster, Orchestrator

sagemaker = aws_native.sagemaker
# The instances are in an account of SageMaker, which attaches volumes to them (SageMaker Developer Guide, "Using the
# Amazon EBS CSI driver on SageMaker HyperPod EKS clusters").
_VOLUME_ACTIONS = ("sagemaker:AttachClusterNodeVolume", "sagemaker:DetachClusterNodeVolume")

# CreateCluster, MinInstanceCount: HyperPod gives up on a group that is not up after three hours.
_TIMEOUTS = CustomTimeouts(create="3h30m", update="3h30m", delete="1h")


@dataclass(frozen=True, kw_only=True)
class HyperPodArgs:
    """Inputs of the cluster.

    ``role_arns`` has an execution role for each node kind. ``mounts`` are the file systems that HyperPod mounts if its
    image sets the nodes up. The cluster waits for ``ready``, everything that a node needs before it boots, and for
    nothing else. ``by_image``: HyperPod's image sets Slurm up. ``checkpoint_memory_percent``: of the nodes' memory, for
    managed tiered checkpointing; 0 turns it off, None leaves it as it is. ``there``: the nodes that each group has.
    ``tags`` are the cluster's, in addition to the stack's.
    """

    context: Context
    orchestrator: Orchestrator
    groups: Sequence[InstanceGroup]
    role_arns: Mapping[str, Input[str]]
    lifecycle_uri: Input[str]
    subnet_id: Input[str]
    security_group_ids: Sequence[Input[str]]
    ready: Sequence[pulumi.Resource]
    mounts: Sequence[sagemaker.ClusterInstanceStorageConfigArgs]
    node_recovery: str = "Automatic"
    node_provisioning: str | None = "Continuous"
    by_image: bool = False
    checkpoint_memory_percent: int | None = None
    autoscaling: Autoscaling | None = None
    there: Mapping[str, int] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)


class HyperPod(Cluster):
    """Owns the HyperPod cluster, and with EKS the EBS driver's permissions on its nodes.

    It uses Cloud Control (pulumi-aws-native), because pulumi-aws has no HyperPod cluster. It does not wait for FSx,
    which nodes find at boot, unless HyperPod's image mounts it. Scaling, labels and scripts are updates in place; only
    a change of the cluster's name, VPC or EKS cluster replaces it.
    """

    arn: Output[str]
    cluster: aws_native.sagemaker.Cluster

    def __init__(self, name: str, args: HyperPodArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("hyperpod:index:HyperPod", name, None, opts)
        self._args = args
        context = args.context
        karpenter = karpenter_role(name, context, ResourceOptions(parent=self)) if args.autoscaling else None
        self.cluster = sagemaker.Cluster(
            f"{name}-cluster",
            cluster_name=context.names.cluster,
            instance_groups=[self._group(group) for group in args.groups],
            orchestrator=args.orchestrator.orchestrator,
            vpc_config=sagemaker.ClusterVpcConfigArgs(
                security_group_ids=list(args.security_group_ids), subnets=[args.subnet_id]
            ),
            auto_scaling=_auto_scaling(args.autoscaling),
            cluster_role=karpenter[0] if karpenter else None,
            node_recovery=sagemaker.ClusterNodeRecovery(args.node_recovery),
            # Named, because AWS's references disagree on what happens without it: by the Developer Guide ("Continuous
            # provisioning for enhanced cluster operations ...") new clusters are continuous, by CloudFormation's
            # registry they scale as in the previous release.
            node_provisioning_mode=sagemaker.ClusterNodeProvisioningMode(args.node_provisioning)
            if args.node_provisioning
            else None,
            tiered_storage_config=_tiers(args.checkpoint_memory_percent),
            tags=[
                aws_native.TagArgs(key=key, value=value) for key, value in sorted({**context.tags, **args.tags}.items())
            ],
            opts=ResourceOptions(
                parent=self,
                depends_on=[*args.ready, *([karpenter[1]] if karpenter else ())],
                protect=context.protect,
                custom_timeouts=_TIMEOUTS,
            ),
        )
        self.arn = Output.all(self.cluster.cluster_arn, self.cluster.cluster_status, self.cluster.urn).apply(
            _arn_or_raise
        )
        if args.orchestrator.volume_role is not None:
            aws.iam.RolePolicy(
                f"{name}-volumes",
                role=args.orchestrator.volume_role,
                policy=self.arn.apply(lambda arn: document([allow(_VOLUME_ACTIONS, [arn])])),
                opts=ResourceOptions(parent=self),
            )
        self.register_outputs({"arn": self.arn})

    def _group(self, group: InstanceGroup) -> sagemaker.ClusterInstanceGroupArgs:
        args, worker = self._args, group.worker
        config = args.orchestrator.group_config(group)
        return sagemaker.ClusterInstanceGroupArgs(
            instance_group_name=group.name,
            instance_type=None if len(group.types) > 1 else group.type.name,
            instance_requirements=sagemaker.ClusterInstanceRequirementsArgs(
                instance_types=[row.name for row in group.types]
            )
            if len(group.types) > 1
            else None,
            instance_count=args.there.get(group.name, 0) if group.follows_demand else group.count,
            min_instance_count=worker.min_count if worker else None,
            execution_role=args.role_arns[group.role],
            life_cycle_config=sagemaker.ClusterLifeCycleConfigArgs(
                source_s3_uri=args.lifecycle_uri,
                **{"on_init_complete" if args.by_image else "on_create": ENTRY_POINT},
            ),
            instance_storage_configs=self._volumes(group),
            threads_per_core=worker.threads_per_core if worker else 1,
            training_plan_arn=worker.training_plan_arn if worker else None,
            capacity_requirements=_capacity(group),
            image_id=worker.image_id if worker else None,
            image_release_version=worker.image_release if worker else None,
            auto_patch_config=sagemaker.ClusterAutoPatchConfigArgs(
                patching_strategy=sagemaker.ClusterAutoPatchConfigPatchingStrategy(worker.auto_patch)
            )
            if worker and worker.auto_patch
            else None,
            on_start_deep_health_checks=[
                sagemaker.ClusterDeepHealthCheckType(check) for check in worker.deep_health_checks
            ]
            if worker and worker.deep_health_checks
            else None,
            kubernetes_config=config.kubernetes_config,
            slurm_config=config.slurm_config,
        )

    def _volumes(self, group: InstanceGroup) -> list[sagemaker.ClusterInstanceStorageConfigArgs]:
        """Return the data volume; with a customer key also the root volume, whose size HyperPod decides."""
        key = self._args.context.key
        volumes = [sagemaker.ClusterEbsVolumeConfigArgs(volume_size_in_gb=group.volume_gib, volume_kms_key_id=key)]
        if key is not None:
            volumes.append(sagemaker.ClusterEbsVolumeConfigArgs(root_volume=True, volume_kms_key_id=key))
        disks = [sagemaker.ClusterInstanceStorageConfigArgs(ebs_volume_config=volume) for volume in volumes]
        return [*disks, *(self._args.mounts if self._args.by_image else ())]


def _auto_scaling(wanted: Autoscaling | None) -> sagemaker.ClusterAutoScalingConfigArgs | None:
    if wanted is None:
        return None
    mode = "ENABLE" if wanted.enabled else "DISABLE"
    return sagemaker.ClusterAutoScalingConfigArgs(
        mode=sagemaker.ClusterAutoScalingConfigMode[mode],
        auto_scaler_type=sagemaker.ClusterAutoScalingConfigAutoScalerType.KARPENTER,
    )


def _arn_or_raise(found: Sequence[str]) -> str:
    """Return the cluster's ARN. Raises RunError for a cluster whose creation failed.

    AWS keeps such a cluster, which can only be deleted (awslabs/awsome-distributed-ai, issue 186). Pulumi has it in its
    state, finds no difference, and would report the next update as a success (pulumi/pulumi-aws-native, pull request
    208).
    """
    arn, status, urn = found
    if status == "Failed":
        raise pulumi.RunError(
            "AWS reports the HyperPod cluster as Failed. It cannot be repaired, only deleted. `hyperpod "
            f"deploy {pulumi.get_stack()} --lose {urn.rsplit('::', 1)[-1]}` deletes it and creates it again. With the "
            f"Pulumi CLI alone: pulumi destroy --stack {pulumi.get_stack()} --target-dependents --target '{urn}', "
            "then pulumi up"
        )
    return arn


def _tiers(percent: int | None) -> sagemaker.ClusterTieredStorageConfigArgs | None:
    """Ask for Disable by its name (SageMaker API Reference, ClusterTieredStorageConfig, Mode).

    No page says what an update without TieredStorageConfig does; it may change nothing.
    """
    if percent is None:
        return None
    mode = sagemaker.ClusterTieredStorageConfigMode
    return sagemaker.ClusterTieredStorageConfigArgs(
        mode=mode.ENABLE if percent else mode.DISABLE, instance_memory_allocation_percentage=percent or None
    )


def _capacity(group: InstanceGroup) -> sagemaker.ClusterCapacityRequirementsArgs | None:
    """Request spot capacity if configured; on-demand is HyperPod's default."""
    if group.worker and group.worker.capacity == "spot":
        return sagemaker.ClusterCapacityRequirementsArgs(
            spot=sagemaker.ClusterSpotOptionsArgs()  # type: ignore[no-untyped-call]
        )
    return None
