"""SageMaker's compute quotas: each team's own, lent and borrowed devices with task governance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws_native as aws_native
from pulumi import ComponentResource, Input, ResourceOptions

from ...workers.instance_groups import InstanceGroup
from ..checks import quota_name
from ..keys import KubernetesKeys
from .queues import whole_part

sagemaker = aws_native.sagemaker
# Tells a quota of the stack from one that `hyperpod apply` made until November 2026.
DESCRIPTION = "Made by the stack"
# CreateComputeQuota, FairShareWeight: 0 to 100.
_WEIGHT = 50
# CreateComputeQuota, ResourceSharingConfig: 1 to 500 percent of the team's own.
_BORROW_LIMIT = 500
# AWS::SageMaker::ComputeQuota, the type's description in the registry (cfn-lint 1.58.0).
_REGIONS = (
    *("us-east-1", "us-east-2", "us-west-1", "us-west-2", "sa-east-1"),
    *("ap-northeast-1", "ap-south-1", "ap-southeast-1", "ap-southeast-2", "ap-southeast-3"),
    *("eu-central-1", "eu-north-1", "eu-south-2", "eu-west-1", "eu-west-2"),
)


@dataclass(frozen=True, kw_only=True)
class ComputeQuotasArgs:
    """Inputs of the quotas. ``groups`` are those on which jobs train. ``shares`` is each namespace's part of the
    cluster; the sum is 1. ``namespaces`` are the teams', by name.
    """

    settings: KubernetesKeys
    region: str
    groups: Sequence[InstanceGroup]
    shares: Mapping[str, float]
    cluster_arn: Input[str]
    namespaces: Mapping[str, pulumi.Resource]
    tags: Mapping[str, str]


class ComputeQuotas(ComponentResource):
    """Owns a quota for each team, of which SageMaker makes a queue in the team's namespace.

    A quota is created after its namespace, and so after the add-on and the nodes, and deleted before all of them: a
    cluster with quotas cannot be deleted (SageMaker Developer Guide, HyperPod task governance, "Troubleshoot").
    Deliberately absent: the cluster's policy with its priorities, for which pulumi-aws-native 1.84.0 has no type
    (``operations/kubernetes/governance.py``).
    """

    def __init__(self, name: str, args: ComputeQuotasArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("hyperpod:index:ComputeQuotas", name, None, opts)
        before, settings, region = 0.0, args.settings, args.region
        if region not in _REGIONS:
            pulumi.log.warn(
                f"AWS names {len(_REGIONS)} regions with compute quotas, and {region} is none of them: if it refuses "
                "them, set hyperpod:charts.queues to kueue",
                self,
            )
        for team in settings.namespaces:
            namespace = settings.namespace_of(team.name)
            share = args.shares[namespace]
            weight = _WEIGHT if team.fair_share_weight is None else team.fair_share_weight
            sagemaker.ComputeQuota(
                f"{name}-{team.name}",
                name=quota_name(settings.cluster_name, team.name),
                description=DESCRIPTION,
                cluster_arn=args.cluster_arn,
                compute_quota_target=sagemaker.ComputeQuotaTargetArgs(team_name=team.name, fair_share_weight=weight),
                compute_quota_config=sagemaker.ComputeQuotaConfigArgs(
                    compute_quota_resources=_resources(args.groups, share, before),
                    resource_sharing_config=sagemaker.ComputeQuotaResourceSharingConfigArgs(
                        strategy=sagemaker.ComputeQuotaResourceSharingConfigStrategy.LEND_AND_BORROW,
                        borrow_limit=_BORROW_LIMIT,
                    ),
                    preempt_team_tasks=sagemaker.ComputeQuotaConfigPreemptTeamTasks.LOWER_PRIORITY,
                ),
                tags=[aws_native.TagArgs(key=key, value=value) for key, value in sorted(args.tags.items())],
                # Two quotas of one name, or for one team, do not fit into a cluster.
                opts=ResourceOptions(parent=self, depends_on=[args.namespaces[namespace]], delete_before_replace=True),
            )
            before += share
        self.register_outputs({})


def _resources(
    groups: Sequence[InstanceGroup], share: float, before: float
) -> list[sagemaker.ComputeQuotaResourceConfigArgs]:
    """Return a share of the devices of each instance type. SageMaker adds CPUs and memory in the same proportion."""
    totals: dict[str, int] = {}
    for group in groups:
        totals[group.type.name] = totals.get(group.type.name, 0) + group.count * group.type.accelerators
    return [
        sagemaker.ComputeQuotaResourceConfigArgs(instance_type=kind, accelerators=whole_part(total, share, before))
        for kind, total in totals.items()
    ]
