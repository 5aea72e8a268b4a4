"""HyperPod's managed Karpenter, on SageMaker's side: its role, and the nodes that it has added."""

from __future__ import annotations

from collections.abc import Mapping

import pulumi
import pulumi_aws as aws
import pulumi_aws_native as aws_native
from pulumi import Output, ResourceOptions

from ..common.context import Context
from ..common.policies import allow, assume_role, document

# SageMaker Developer Guide, "Create an IAM role for HyperPod autoscaling with Karpenter".
_SERVICE = "hyperpod.sagemaker.amazonaws.com"
_NODE_ACTIONS = ("sagemaker:BatchAddClusterNodes", "sagemaker:BatchDeleteClusterNodes")
_KEY_ACTIONS = ("kms:CreateGrant", "kms:DescribeKey")
_GRANTED = (
    *("CreateGrant", "Decrypt", "DescribeKey", "GenerateDataKeyWithoutPlaintext"),
    *("ReEncryptTo", "ReEncryptFrom", "RetireGrant"),
)


def karpenter_role(name: str, context: Context, opts: ResourceOptions) -> tuple[Output[str], pulumi.Resource]:
    """Create the role with which HyperPod's Karpenter adds and removes nodes. Return its ARN and its policy.

    The cluster's id is not known before the cluster, which checks the role: the policy names all of the region's.
    """
    role = aws.iam.Role(
        f"{name}-karpenter",
        name=context.names.role("karpenter"),
        description=f"Karpenter of {context.names.cluster}",
        assume_role_policy=assume_role(_SERVICE),
        permissions_boundary=context.boundary,
        opts=opts,
    )
    clusters, own = context.arn("sagemaker", "cluster/*"), {"aws:ResourceAccount": context.account}
    nodes = allow(_NODE_ACTIONS, [clusters], {"StringEquals": own})
    through = {
        "StringLike": {"kms:ViaService": f"sagemaker.{context.region.name}.amazonaws.com"},
        "Bool": {"kms:GrantIsForAWSResource": "true"},
        "ForAllValues:StringEquals": {"kms:GrantOperations": list(_GRANTED)},
    }
    policy = aws.iam.RolePolicy(
        f"{name}-karpenter",
        role=role.name,
        policy=Output.from_input(context.key).apply(
            lambda key: document([nodes, *([allow(_KEY_ACTIONS, [key], through)] if key else [])])
        ),
        opts=opts,
    )
    return role.arn, policy


def node_counts(arn: str, provider: aws_native.Provider) -> Mapping[str, int]:
    """Return the nodes of each group of a deployed cluster; none without an ARN, or if the cluster is gone.

    UpdateCluster takes a count for each group, and terminates nodes above it at random. A group whose nodes Karpenter
    adds therefore keeps those that it has.
    """
    if not arn:
        return {}
    try:
        found = aws_native.sagemaker.get_cluster(cluster_arn=arn, opts=pulumi.InvokeOptions(provider=provider))
    except Exception as error:  # Of whichever type: Pulumi raises Exception itself.
        if "NotFound" in str(error):
            return {}
        raise
    return {
        group.instance_group_name: max(group.instance_count, group.current_count or 0)
        for group in found.instance_groups or ()
    }
