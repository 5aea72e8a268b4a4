"""The nodes' IAM roles: one for each kind of node, with only the permissions that it needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws
from hyperpod_node.facts.model import NodeRole
from pulumi import ComponentResource, Input, Output, ResourceOptions

from ..common.context import Context
from ..common.names import log_group, own_path
from ..common.policies import Statement, allow, assume_role, document
from ..security.encryption import node_statements, workspace_statements
from ..security.keys import Security
from ..security.sessions import SESSIONS

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
PULL_ACTIONS = ("ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer")
# Further permissions of AmazonSageMakerClusterInstanceRolePolicy (SageMaker Developer Guide, "AWS managed policy:
# AmazonSageMakerClusterInstanceRolePolicy"): on its own it also reads every bucket called sagemaker-*.
_SESSION_ACTIONS = tuple(
    f"ssmmessages:{action}"
    for action in ("CreateControlChannel", "CreateDataChannel", "OpenControlChannel", "OpenDataChannel")
)
_CLUSTER_METRICS, _OWN_METRICS = "/aws/sagemaker/Clusters", "HyperPod"


@dataclass(frozen=True, kw_only=True)
class IdentityArgs:
    """Inputs of the roles: the kinds of nodes, and where their interfaces are. ``containers``: jobs pull images."""

    context: Context
    kinds: Sequence[NodeRole]
    security: Security
    subnet_id: Input[str]
    security_group_ids: Sequence[Input[str]]
    existing_role_arn: str | None = None
    containers: bool = False


class Identity(ComponentResource):
    """Owns a role for each kind of node, or nothing if an existing role is given.

    Nodes may read the lifecycle bucket but never write to it (the bucket's policy also denies it): whoever can replace
    ``on_create.sh`` is root on every later node. Only workers, where jobs run, read the cluster's secrets (model hub
    tokens), and only on request. The permissions that AWS's guide grants on every interface, bucket and log group of
    the account are narrowed to this stack's; ``security.nodePermissions`` restores the guide's own wording, if a node
    is refused something (UnauthorizedOperation or AccessDenied in CloudTrail). Deliberately absent:
    ``AmazonSSMManagedInstanceCore``, which would allow reading every parameter of the account, and any write to SSM.

    ``controller`` is the name of the controllers' role, None if the stack creates none.
    """

    role_arns: Mapping[str, Output[str]]
    controller: Output[str] | None
    ready: list[pulumi.Resource]

    def __init__(self, name: str, args: IdentityArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("hyperpod:index:Identity", name, None, opts)
        self._name, self._args, self._context, self.ready = name, args, args.context, []
        kinds = args.kinds
        self._narrow = args.security.node_permissions == "narrow"
        if existing := args.existing_role_arn:
            self.role_arns, self.controller = {kind: Output.from_input(existing) for kind in kinds}, None
        else:
            roles = {kind: self._role(kind) for kind in kinds}
            self.role_arns = {kind: role.arn for kind, role in roles.items()}
            self.controller = roles["controller"].name if "controller" in roles else None
        self.register_outputs({"roleArns": dict(self.role_arns)})

    def _role(self, kind: NodeRole) -> aws.iam.Role:
        context, child = self._context, ResourceOptions(parent=self)
        role = aws.iam.Role(
            f"{self._name}-{kind}",
            name=context.names.role(kind),
            description=f"HyperPod {kind} nodes of {context.names.cluster}",
            # On behalf of any account, as the guide's role is: SageMaker's page on confused deputies names its features
            # with aws:SourceAccount, and HyperPod is not among them. Nobody in another account can pass this role.
            assume_role_policy=assume_role("sagemaker.amazonaws.com"),
            permissions_boundary=context.boundary,
            opts=child,
        )
        # HyperPod wants the CNI's policy on the role itself, whatever the CNI's own role has (the same guide).
        managed = ([] if self._narrow else [INSTANCE_POLICY]) + ([CNI_POLICY] if context.on_eks else [])
        for policy in managed:
            self.ready.append(
                aws.iam.RolePolicyAttachment(
                    f"{self._name}-{kind}-{'cni' if policy == CNI_POLICY else 'instance'}",
                    role=role.name,
                    policy_arn=f"arn:{context.partition}:iam::aws:policy/{policy}",
                    opts=child,
                )
            )
        network = Output.all(context.key, self._args.subnet_id, *self._args.security_group_ids)
        policy_text = network.apply(
            lambda ids: document(
                [
                    *self._statements(kind),
                    *self._interfaces(ids[1], ids[2:]),
                    *(node_statements(context, ids[0], sessions=self._args.security.session_logs) if ids[0] else ()),
                ]
            )
        )
        self.ready.append(aws.iam.RolePolicy(f"{self._name}-{kind}", role=role.name, policy=policy_text, opts=child))
        if workspace := context.nodes_write_to:
            # On its own: what nodes need to boot does not change with it.
            aws.iam.RolePolicy(
                f"{self._name}-{kind}-metrics",
                role=role.name,
                policy=Output.all(workspace.arn, context.key).apply(
                    lambda both: document([*self._metrics(both[0]), *workspace_statements(context, both[1])])
                ),
                opts=child,
            )
        return role

    def _metrics(self, workspace: str) -> list[Statement]:
        """Allow writing to the one workspace, and pulling AWS's exporter images (``hyperpod/*`` in EKS's registry)."""
        region = self._context.region
        images = f"arn:{region.partition}:ecr:{region.name}:{region.eks_images_account}:repository/hyperpod/*"
        return [
            allow(["aps:RemoteWrite"], [workspace]),
            allow(["ecr:GetAuthorizationToken"], ["*"]),
            allow(PULL_ACTIONS, [images]),
        ]

    def _interfaces(self, subnet: str, groups: Sequence[str]) -> list[Statement]:
        """Allow interfaces in the stack's VPC for HyperPod's instances, which are in an account of SageMaker's."""
        interfaces = self._context.arn("ec2", "network-interface/*")
        # Detaching asks for the instance too (Service Authorization Reference, Amazon EC2).
        instances = f"arn:{self._context.partition}:ec2:{self._context.region.name}:*:instance/*"
        own = {"ec2:Subnet": self._context.arn("ec2", f"subnet/{subnet}")}
        # The guide's own example has no condition: interfaces are tagged as they are made, and after it. The reference
        # lists ec2:Subnet for interfaces with this action; nobody says whether it is known of one that is being made.
        tag = allow(["ec2:CreateTags"], [interfaces], {"ArnEqualsIfExists": own})
        if not self._narrow:
            places = [interfaces, self._context.arn("ec2", "subnet/*"), self._context.arn("ec2", "security-group/*")]
            return [
                allow(_INTERFACE_ACTIONS, places),
                allow(["ec2:DetachNetworkInterface"], [interfaces, instances]),
                tag,
            ]
        # The creator of an interface names its subnet and groups. The reference lists ec2:Subnet for interfaces with
        # each of the other actions, but no key that distinguishes interfaces that do not exist yet.
        places = [
            interfaces,
            self._context.arn("ec2", f"subnet/{subnet}"),
            *(self._context.arn("ec2", f"security-group/{one}") for one in groups),
        ]
        return [
            allow(["ec2:CreateNetworkInterface"], places),
            allow([*_INTERFACE_ACTIONS[1:], "ec2:DetachNetworkInterface"], [interfaces], {"ArnEquals": own}),
            allow(["ec2:DetachNetworkInterface"], [instances]),
            tag,
        ]

    def _statements(self, kind: str) -> list[Statement]:
        context, cluster = self._context, self._context.names.cluster
        bucket = f"arn:{context.partition}:s3:::{context.names.bucket}"
        namespaces = [_OWN_METRICS, _CLUSTER_METRICS] if self._narrow else _OWN_METRICS
        statements = [
            allow(["s3:GetObject"], [f"{bucket}/*"]),
            allow(["s3:ListBucket"], [bucket]),
            allow(_DESCRIBE_ACTIONS, ["*"]),
            allow(["cloudwatch:PutMetricData"], ["*"], {"StringEquals": {"cloudwatch:namespace": namespaces}}),
        ]
        if self._narrow:
            group = self._context.arn("logs", f"log-group:{_CLUSTER_METRICS}/{cluster}/*")
            statements += [
                allow(["logs:CreateLogGroup", "logs:CreateLogStream", "logs:DescribeLogStreams"], [group]),
                allow(["logs:PutLogEvents"], [f"{group}:log-stream:*"]),
                allow(_SESSION_ACTIONS, ["*"]),
            ]
        if self._args.security.session_logs:
            recorded = self._context.arn("logs", f"log-group:{log_group(cluster, SESSIONS)}")
            statements += [
                allow(["logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"], [f"{recorded}:*"]),
                allow(["logs:DescribeLogGroups"], ["*"]),
            ]
        if kind == "worker" and self._args.security.worker_secrets:
            secrets = self._context.arn("secretsmanager", f"secret:{own_path(cluster)}/*")
            statements.append(allow(["secretsmanager:GetSecretValue"], [secrets]))
        if kind == "worker" and not context.on_eks:
            # Roles for people; root gives each to its user or group (hyperpod_node/people/credentials.py).
            named = f"arn:{context.partition}:iam::{context.account}:role/{own_path(cluster)}/*"
            statements.append(allow(["sts:AssumeRole"], [named]))
        if kind == "worker" and self._args.containers:
            # The account's own images, and AWS's deep learning containers.
            accounts = (context.account, context.region.deep_learning_account)
            images = [
                f"arn:{context.partition}:ecr:{context.region.name}:{one}:repository/*" for one in accounts if one
            ]
            statements += [allow(["ecr:GetAuthorizationToken"], ["*"]), allow(PULL_ACTIONS, images)]
        if context.on_eks:
            repositories = f"arn:{context.partition}:ecr:{context.region.name}:*:repository/*"
            statements += [
                allow(["ecr:GetAuthorizationToken"], ["*"]),
                allow(PULL_ACTIONS, [repositories]),
                allow(["eks-auth:AssumeRoleForPodIdentity"], [self._context.arn("eks", f"cluster/{cluster}")]),
            ]
        else:
            statements.append(
                allow(["ssm:GetParameter"], [self._context.arn("ssm", f"parameter/{own_path(cluster)}/*")])
            )
        return statements
