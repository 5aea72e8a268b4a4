"""The nodes' IAM roles: one for each kind of node, with the permissions that kind needs and no more."""

from __future__ import annotations

from collections.abc import Mapping

import pulumi
import pulumi_aws as aws
from pulumi import ComponentResource, Output, ResourceOptions

from .context import Context
from .policies import Statement, allow, assume_role, document

# Amazon SageMaker Developer Guide, "IAM role for SageMaker HyperPod": the managed policy every instance group needs
# (lifecycle bucket, CloudWatch logs, Session Manager), and the actions to add for a custom VPC and for EKS.
INSTANCE_POLICY = "AmazonSageMakerClusterInstanceRolePolicy"
CNI_POLICY = "AmazonEKS_CNI_Policy"
_INTERFACE_ACTIONS = (
    "ec2:CreateNetworkInterface",
    "ec2:CreateNetworkInterfacePermission",
    "ec2:DeleteNetworkInterface",
    "ec2:DeleteNetworkInterfacePermission",
)
# These actions have no resource types, so an ARN would match nothing (Service Authorization Reference, EC2 and FSx).
_DESCRIBE_ACTIONS = (
    "ec2:DescribeDhcpOptions",
    "ec2:DescribeInstances",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeSubnets",
    "ec2:DescribeVpcs",
    "fsx:DescribeFileSystems",
)
_PULL_ACTIONS = ("ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer")


class Identity(ComponentResource):
    """Owns a role for each kind of node, or nothing where an existing role is given.

    Nodes may read the lifecycle bucket but never write to it (the bucket's policy says so too): whoever can replace
    ``on_create.sh`` is root on every later node. Only workers, where jobs run, read the cluster's secrets (model hub
    tokens). Deliberately absent: ``AmazonSSMManagedInstanceCore``, which would allow reading every parameter of the
    account (the instance policy has what Session Manager needs), and any write to SSM.
    """

    role_arns: Mapping[str, Output[str]]
    ready: list[pulumi.Resource]

    def __init__(self, name: str, context: Context, opts: ResourceOptions | None = None) -> None:
        super().__init__("hyperpod:index:Identity", name, None, opts)
        self._name, self._context, self.ready = name, context, []
        kinds = context.config.node_kinds
        if existing := context.settings.existing_role_arn:
            self.role_arns = {kind: Output.from_input(existing) for kind in kinds}
        else:
            self.role_arns = {kind: self._role(kind).arn for kind in kinds}
        self.register_outputs({"roleArns": dict(self.role_arns)})

    def _role(self, kind: str) -> aws.iam.Role:
        context, child = self._context, ResourceOptions(parent=self)
        role = aws.iam.Role(
            f"{self._name}-{kind}",
            name=context.names.role(kind),
            description=f"HyperPod {kind} nodes of {context.names.cluster}",
            assume_role_policy=assume_role("sagemaker.amazonaws.com", context.account),
            opts=child,
        )
        managed = [INSTANCE_POLICY] + ([CNI_POLICY] if context.on_eks else [])
        for policy in managed:
            self.ready.append(
                aws.iam.RolePolicyAttachment(
                    f"{self._name}-{kind}-{'cni' if policy == CNI_POLICY else 'instance'}",
                    role=role.name,
                    policy_arn=f"arn:{context.partition}:iam::aws:policy/{policy}",
                    opts=child,
                )
            )
        self.ready.append(
            aws.iam.RolePolicy(
                f"{self._name}-{kind}", role=role.name, policy=document(self._statements(kind)), opts=child
            )
        )
        return role

    def _statements(self, kind: str) -> list[Statement]:
        context = self._context
        here = f"{context.region.name}:{context.account}"
        arn = f"arn:{context.partition}"
        ec2 = [f"{arn}:ec2:{here}:{what}/*" for what in ("network-interface", "subnet", "security-group")]
        statements = [
            allow(["s3:GetObject"], [f"{arn}:s3:::{context.names.bucket}/*"]),
            allow(["s3:ListBucket"], [f"{arn}:s3:::{context.names.bucket}"]),
            allow(_INTERFACE_ACTIONS, ec2),
            # This action also checks the instance (Service Authorization Reference, Amazon EC2), and HyperPod's
            # instances are in an account of SageMaker.
            allow(["ec2:DetachNetworkInterface"], [ec2[0], f"{arn}:ec2:{context.region.name}:*:instance/*"]),
            # Without a condition, as in the guide's example: interfaces are also tagged after their creation.
            allow(["ec2:CreateTags"], [ec2[0]]),
            allow(_DESCRIBE_ACTIONS, ["*"]),
            allow(["cloudwatch:PutMetricData"], ["*"], {"StringEquals": {"cloudwatch:namespace": "HyperPod"}}),
        ]
        if kind == "worker":
            secrets = f"{arn}:secretsmanager:{here}:secret:hyperpod/{context.names.cluster}/*"
            statements.append(allow(["secretsmanager:GetSecretValue"], [secrets]))
        if not context.on_eks:
            statements.append(
                allow(["ssm:GetParameter"], [f"{arn}:ssm:{here}:parameter/hyperpod/{context.names.cluster}/*"])
            )
        if context.on_eks:
            statements.append(allow(["ecr:GetAuthorizationToken"], ["*"]))
            statements.append(allow(_PULL_ACTIONS, [f"{arn}:ecr:{context.region.name}:*:repository/*"]))
            statements.append(
                allow(["eks-auth:AssumeRoleForPodIdentity"], [f"{arn}:eks:{here}:cluster/{context.names.cluster}"])
            )
        return statements
