"""Grants access to the Kubernetes API: an access entry for each IAM role of nodes and of people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws
import pulumi_aws_native as aws_native
from pulumi import ComponentResource, Input, ResourceOptions

from ..common.context import Context
from .keys import KubernetesKeys

# CreateAccessEntry, type. pulumi-aws has its own list, without it (terraform-provider-aws, internal/service/eks,
# consts.go); pulumi-aws-native passes on whatever AWS accepts.
NODE_ENTRY = "HYPERPOD_LINUX"

# SageMaker Developer Guide, "Add users and set up service accounts" (of Spaces): the policies of people with notebooks,
# and where; "" stands for the own namespace of the team.
_SPACES = {"AmazonSagemakerHyperpodSpacePolicy": "", "AmazonSagemakerHyperpodSpaceTemplatePolicy": "jupyter-k8s-shared"}


@dataclass(frozen=True, kw_only=True)
class EksAccessArgs:
    """Inputs of the entries: ``node_roles`` are the nodes' execution roles by kind; the configuration has people's."""

    context: Context
    settings: KubernetesKeys
    cluster_name: Input[str]
    node_roles: Mapping[str, Input[str]]


class EksAccess(ComponentResource):
    """Owns the access entries, and the administrators' access policy.

    EKS has one entry for each role, so a person's entry is named after the role: a role that moves to another team
    keeps its entry. ``ready`` has the nodes' entries; the cluster does not wait for people's. Deliberately absent: the
    deployer's own role, which EKS's bootstrap entry makes an administrator and which cannot have another entry.
    """

    ready: list[pulumi.Resource]

    def __init__(self, name: str, args: EksAccessArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("hyperpod:index:EksAccess", name, None, opts)
        self._name, self._args, self._child = name, args, ResourceOptions(parent=self)
        settings = args.settings
        for arn in settings.administrator_role_arns:
            self._administrator(arn)
        for team in settings.namespaces:
            for arn in team.role_arns:
                entry = self._person(arn, [team_group(team.name)])
                if settings.charts.spaces:
                    self._notebooks(arn, entry, settings.namespace_of(team.name))
        # pulumi-aws-native has no default tags.
        tags = [aws_native.TagArgs(key=key, value=value) for key, value in sorted(args.context.tags.items())]
        self.ready = [
            aws_native.eks.AccessEntry(
                f"{name}-{kind}",
                cluster_name=args.cluster_name,
                principal_arn=arn,
                type=NODE_ENTRY,
                tags=tags,
                opts=self._child,
            )
            for kind, arn in args.node_roles.items()
        ]
        self.register_outputs({})

    def _person(self, arn: str, groups: Sequence[str] | None = None) -> aws.eks.AccessEntry:
        return aws.eks.AccessEntry(
            f"{self._name}-{role_of(arn)}",
            cluster_name=self._args.cluster_name,
            principal_arn=arn,
            kubernetes_groups=groups,
            opts=self._child,
        )

    def _notebooks(self, arn: str, entry: aws.eks.AccessEntry, namespace: str) -> None:
        """Allow notebooks in the team's namespace, and reading the templates that all teams share."""
        for policy, where in _SPACES.items():
            aws.eks.AccessPolicyAssociation(
                f"{self._name}-{role_of(arn)}-{policy}",
                cluster_name=self._args.cluster_name,
                principal_arn=entry.principal_arn,
                policy_arn=f"arn:{self._args.context.partition}:eks::aws:cluster-access-policy/{policy}",
                access_scope=aws.eks.AccessPolicyAssociationAccessScopeArgs(
                    type="namespace", namespaces=[where or namespace]
                ),
                opts=self._child,
            )

    def _administrator(self, arn: str) -> None:
        policy = f"arn:{self._args.context.partition}:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"
        aws.eks.AccessPolicyAssociation(
            f"{self._name}-{role_of(arn)}-administrator",
            cluster_name=self._args.cluster_name,
            principal_arn=self._person(arn).principal_arn,
            policy_arn=policy,
            access_scope=aws.eks.AccessPolicyAssociationAccessScopeArgs(type="cluster"),
            opts=self._child,
        )


def role_of(arn: str) -> str:
    """Return a role as account, path and name: roles of two accounts may have the same name."""
    account, _, role = arn.split(":", 4)[4].partition(":role/")
    return f"{account}/{role}"


def team_group(team: str) -> str:
    """Return the Kubernetes group of a team's IAM roles; RoleBindings name it."""
    return f"team:{team}"
