"""Roles that EKS Pod Identity gives to pods, by their service account."""

from __future__ import annotations

import pulumi_aws as aws
from pulumi import ResourceOptions

from ..common.context import Context
from ..common.policies import document


def pod_role(name: str, role: str, context: Context, opts: ResourceOptions) -> aws.iam.Role:
    """Create a role called ``role`` that only pods of the stack's own cluster may have (Amazon EKS User Guide, "Create
    IAM role with trust policy required by EKS Pod Identity").
    """
    trust = {
        "Effect": "Allow",
        "Principal": {"Service": "pods.eks.amazonaws.com"},
        "Action": ["sts:AssumeRole", "sts:TagSession"],
        "Condition": {
            "StringEquals": {"aws:SourceAccount": context.account},
            "ArnEquals": {"aws:SourceArn": context.arn("eks", f"cluster/{context.names.cluster}")},
        },
    }
    return aws.iam.Role(
        name, name=role, assume_role_policy=document([trust]), permissions_boundary=context.boundary, opts=opts
    )
