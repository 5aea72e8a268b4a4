"""The SageMaker HyperPod cluster: the only place that creates it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws
import pulumi_aws_native as aws_native
from pulumi import ComponentResource, CustomTimeouts, Input, Output, ResourceOptions

from .config import InstanceGroup, Settings
from .kubernetes.eks import Eks
from .lifecycle_bucket import ENTRY_POINT
from .policies import allow, document
from .slurm import Slurm

sagemaker = aws_native.sagemaker
# The instances are in an account of SageMaker's, which attaches volumes to them (SageMaker Developer Guide, "Using the
# Amazon EBS CSI driver on SageMaker HyperPod EKS clusters").
_VOLUME_ACTIONS = ("sagemaker:AttachClusterNodeVolume", "sagemaker:DetachClusterNodeVolume")

# CreateCluster, MinInstanceCount: a group has three hours to come up before HyperPod gives up on it.
_TIMEOUTS = CustomTimeouts(create="3h30m", update="3h30m", delete="1h")


@dataclass(frozen=True, kw_only=True)
class HyperPodArgs:
    """What the cluster is made from.

    ``role_arns`` has an execution role for every role of a node. ``ready`` is everything a node needs before it boots;
    the cluster waits for all of it, and for nothing else.
    """

    cluster: str
    groups: Sequence[InstanceGroup]
    orchestrator: Slurm | Eks
    role_arns: Mapping[str, Input[str]]
    lifecycle_uri: Input[str]
    subnet_id: Input[str]
    security_group_ids: Sequence[Input[str]]
    node_recovery: str
    node_provisioning: str | None
    tags: Mapping[str, str]
    ready: Sequence[pulumi.Resource]
    protect: bool = False


class HyperPod(ComponentResource):
    """Owns the HyperPod cluster, and with EKS what the EBS driver may do to its nodes.

    Through Cloud Control (pulumi-aws-native), since pulumi-aws has no HyperPod cluster. It does not wait for FSx: nodes
    find the file system at boot. Scaling, labels and scripts are updates in place; only the cluster's name, its VPC and
    its EKS cluster replace it.
    """

    arn: Output[str]
    cluster: aws_native.sagemaker.Cluster

    def __init__(self, name: str, args: HyperPodArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("hyperpod:index:HyperPod", name, None, opts)
        self._args = args
        self.cluster = sagemaker.Cluster(
            f"{name}-cluster",
            cluster_name=args.cluster,
            instance_groups=[self._group(group) for group in args.groups],
            orchestrator=args.orchestrator.orchestrator,
            vpc_config=sagemaker.ClusterVpcConfigArgs(
                security_group_ids=list(args.security_group_ids), subnets=[args.subnet_id]
            ),
            node_recovery=sagemaker.ClusterNodeRecovery(args.node_recovery),
            node_provisioning_mode=sagemaker.ClusterNodeProvisioningMode(args.node_provisioning)
            if args.node_provisioning
            else None,
            tags=[aws_native.TagArgs(key=key, value=value) for key, value in sorted(args.tags.items())],
            opts=ResourceOptions(
                parent=self, depends_on=list(args.ready), protect=args.protect, custom_timeouts=_TIMEOUTS
            ),
        )
        self.arn = self.cluster.cluster_arn
        if isinstance(args.orchestrator, Eks):
            aws.iam.RolePolicy(
                f"{name}-volumes",
                role=args.orchestrator.ebs_role,
                policy=self.arn.apply(lambda arn: document([allow(_VOLUME_ACTIONS, [arn])])),
                opts=ResourceOptions(parent=self),
            )
        self.register_outputs({"arn": self.arn})

    def _group(self, group: InstanceGroup) -> sagemaker.ClusterInstanceGroupArgs:
        args, worker = self._args, group.worker
        slurm = args.orchestrator if isinstance(args.orchestrator, Slurm) else None
        return sagemaker.ClusterInstanceGroupArgs(
            instance_group_name=group.name,
            instance_type=group.type.name,
            instance_count=group.count,
            min_instance_count=worker.min_count if worker else None,
            execution_role=args.role_arns[group.role],
            life_cycle_config=sagemaker.ClusterLifeCycleConfigArgs(
                source_s3_uri=args.lifecycle_uri, on_create=ENTRY_POINT
            ),
            instance_storage_configs=[
                sagemaker.ClusterInstanceStorageConfigArgs(
                    ebs_volume_config=sagemaker.ClusterEbsVolumeConfigArgs(volume_size_in_gb=group.volume_gib)
                )
            ],
            threads_per_core=worker.threads_per_core if worker else 1,
            training_plan_arn=worker.training_plan_arn if worker else None,
            capacity_requirements=_capacity(group),
            on_start_deep_health_checks=[
                sagemaker.ClusterDeepHealthCheckType(check) for check in worker.deep_health_checks
            ]
            if worker and worker.deep_health_checks
            else None,
            kubernetes_config=_kubernetes(group),
            slurm_config=slurm.slurm_config(group) if slurm else None,
        )


def hyperpod_tags(settings: Settings, tags: Mapping[str, str]) -> dict[str, str]:
    """The cluster's tags. SageMaker's training operator may only touch clusters that carry one of its own (managed
    policy AmazonSageMakerHyperPodTrainingOperatorAccess)."""
    operator = settings.charts.hyperpod_training_operator
    return {**tags, **({"SageMaker": "true"} if operator else {})}


def _capacity(group: InstanceGroup) -> sagemaker.ClusterCapacityRequirementsArgs | None:
    """Spot where asked for; on-demand is what HyperPod does by itself."""
    if group.worker and group.worker.capacity == "spot":
        return sagemaker.ClusterCapacityRequirementsArgs(
            spot=sagemaker.ClusterSpotOptionsArgs()  # type: ignore[no-untyped-call]
        )
    return None


def _kubernetes(group: InstanceGroup) -> sagemaker.ClusterKubernetesConfigArgs | None:
    labels = dict(group.worker.labels) if group.worker else {}
    if not (labels or group.taints):
        return None
    return sagemaker.ClusterKubernetesConfigArgs(
        labels=labels or None,
        taints=[
            sagemaker.ClusterKubernetesTaintArgs(
                key=taint.key, value=taint.value or None, effect=sagemaker.ClusterKubernetesTaintEffect(taint.effect)
            )
            for taint in group.taints
        ]
        or None,
    )
