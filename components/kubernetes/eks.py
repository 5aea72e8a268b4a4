"""What only EKS has: control plane, add-ons, access entries, and the charts HyperPod's nodes depend on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws
import pulumi_aws_native as aws_native
import pulumi_eks as eks
import pulumi_kubernetes as kubernetes
from pulumi import ComponentResource, Input, Output, ResourceOptions

from ..catalogue import kubernetes_versions
from ..catalogue.accelerators import Accelerator
from ..catalogue.kubernetes_versions import KUBERNETES_VERSIONS, WARNED_DAYS, extended_support_notice
from ..catalogue.regions import Region
from ..config import Charts, InstanceGroup, Team
from ..names import Names
from .access import EksAccess, EksAccessArgs
from .addons import EksAddons, EksAddonsArgs
from .helm import HyperPodChart, HyperPodChartArgs

LOG_DAYS = 30
# KMS, ScheduleKeyDeletion: 7 to 30 days. A key that waits costs nothing.
_KEY_WINDOW_DAYS = 7
LOG_TYPES = ("api", "audit", "authenticator")
# What the control plane calls on nodes: kubelet, webhooks on the ports that charts commonly serve them, and aggregated
# APIs. An API that does not answer keeps every namespace from going (metrics-server: EKS's add-on; Kueue: its chart).
_NODE_PORTS = {
    "https": 443,
    "webhook-4443": 4443,
    "webhook-8443": 8443,
    "webhook-9443": 9443,
    "kubelet": 10250,
    "metrics": 10251,
    "kueue": 8082,
}


@dataclass(frozen=True, kw_only=True)
class EksArgs:
    """What the control plane is made from.

    ``subnet_ids`` are two, in zones EKS supports. ``api_cidrs`` may reach the public endpoint; with none the API is
    private. ``node_groups`` are the nodes' security groups, ``node_roles`` their execution roles by kind.
    ``administrators`` are IAM roles besides the deployer's own. ``bucket`` is the one that pods may mount. ``blocks``
    are the VPC's further address blocks.
    """

    names: Names
    region: Region
    account: str
    version: str
    authentication_mode: str
    accelerator: Accelerator
    vpc_id: Input[str]
    subnet_ids: Sequence[Input[str]]
    node_groups: Sequence[Input[str]]
    node_roles: Mapping[str, Input[str]]
    api_cidrs: Sequence[str]
    charts: Charts
    worker_groups: Sequence[InstanceGroup] = ()
    administrators: Sequence[str] = ()
    teams: Sequence[Team] = ()
    bucket: str | None = None
    image_registry: str | None = None
    tags: Mapping[str, str] | None = None
    blocks: Sequence[pulumi.Resource] = ()


class Eks(ComponentResource):
    """Owns the EKS cluster, the key of its secrets, its add-ons and access entries, and the HyperPod chart.

    No node groups: HyperPod brings the nodes. Access is by access entries alone: an ``aws-auth`` ConfigMap would need a
    reachable API before there is one. The control plane's log group is made here, first, so that it has a retention and
    goes with the stack; EKS alone would leave it behind. Deliberately absent: an OIDC provider (Pod Identity replaces
    it) and whatever would wait for pods, which stay pending until HyperPod's nodes arrive.
    """

    cluster_name: Output[str]
    kubeconfig: Output[str]
    kubernetes: kubernetes.Provider
    ebs_role: Output[str]
    orchestrator: aws_native.sagemaker.ClusterOrchestratorArgs
    ready: list[pulumi.Resource]

    def __init__(self, name: str, args: EksArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("hyperpod:index:Eks", name, None, opts)
        self._name, self._args, self._child = name, args, ResourceOptions(parent=self)
        cluster = self._control_plane()
        self.cluster_name = cluster.eks_cluster.name
        self.kubeconfig = Output.secret(cluster.kubeconfig_json)
        access = EksAccess(
            f"{name}-access",
            EksAccessArgs(
                partition=args.region.partition,
                cluster_name=self.cluster_name,
                node_roles=args.node_roles,
                administrators=args.administrators,
                teams=args.teams,
                tags=args.tags or {},
            ),
            self._child,
        )
        self.ready = access.ready + self._node_access(cluster)
        self.kubernetes = kubernetes.Provider(f"{name}-kubernetes", kubeconfig=self.kubeconfig, opts=self._child)
        chart = HyperPodChart(
            f"{name}-chart",
            HyperPodChartArgs(
                region=args.region,
                accelerator=args.accelerator.name,
                charts=args.charts,
                groups=args.worker_groups,
                image_registry=args.image_registry,
            ),
            ResourceOptions(parent=self, providers=[self.kubernetes]),
        )
        self.ready.append(chart.release)
        addons = EksAddons(
            f"{name}-addons",
            EksAddonsArgs(
                names=args.names,
                partition=args.region.partition,
                account=args.account,
                version=args.version,
                cluster_name=self.cluster_name,
                charts=args.charts,
                groups=args.worker_groups,
                bucket=args.bucket,
                release=chart.release,
            ),
            ResourceOptions(parent=self),
        )
        self.ebs_role = addons.ebs_role
        self.orchestrator = aws_native.sagemaker.ClusterOrchestratorArgs(
            eks=aws_native.sagemaker.ClusterOrchestratorEksConfigArgs(cluster_arn=cluster.eks_cluster.arn)
        )
        self.register_outputs({"clusterName": self.cluster_name, "kubeconfig": self.kubeconfig})

    def _control_plane(self) -> eks.Cluster:
        args, cluster_name = self._args, self._args.names.cluster
        logs = aws.cloudwatch.LogGroup(
            f"{self._name}-control-plane",
            name=f"/aws/eks/{cluster_name}/cluster",
            retention_in_days=LOG_DAYS,
            opts=self._child,
        )
        if not args.api_cidrs:
            pulumi.log.warn(
                "the Kubernetes API is private (hyperpod:kubernetesApiCidrs is empty): run pulumi from inside the VPC, "
                "or the charts cannot be installed",
                self,
            )
        version = KUBERNETES_VERSIONS[args.version]
        days = version.days_left(kubernetes_versions.today())
        if ends := extended_support_notice(args.version):
            pulumi.log.warn(f"{ends}: set hyperpod:kubernetesVersion to a newer one", self)
        if days is not None and days < WARNED_DAYS:
            pulumi.log.warn(
                f"EKS ends its support of Kubernetes {args.version} in {days} days, and upgrades the cluster by itself "
                "then: set hyperpod:kubernetesVersion to a newer one before",
                self,
            )
        if not version.hyperpod:
            pulumi.log.warn(
                f"Kubernetes {args.version} is EKS's, and SageMaker's documentation does not name it for HyperPod",
                self,
            )
        return eks.Cluster(
            f"{self._name}-cluster",
            eks.ClusterArgs(
                name=cluster_name,
                version=args.version,
                vpc_id=args.vpc_id,
                private_subnet_ids=list(args.subnet_ids),
                endpoint_private_access=True,
                endpoint_public_access=bool(args.api_cidrs),
                public_access_cidrs=list(args.api_cidrs) or None,
                authentication_mode=eks.AuthenticationMode(args.authentication_mode),
                encryption_config_key_arn=self._secrets_key(),
                enabled_cluster_log_types=list(LOG_TYPES),
                skip_default_node_group=True,
                skip_default_security_groups=True,
                create_oidc_provider=False,
                # Add-ons come from one table, below.
                use_default_vpc_cni=True,
                kube_proxy_addon_options=eks.KubeProxyAddonOptionsArgs(enabled=False),
                tags=dict(args.tags or {}),
            ),
            # EKS looks for a VPC's blocks when it makes a cluster, and hours later (EKS User Guide, "VPC and subnet
            # requirements").
            opts=ResourceOptions(parent=self, depends_on=[logs, *args.blocks]),
        )

    def _secrets_key(self) -> Output[str]:
        """The key that encrypts Kubernetes secrets before they reach the control plane's store."""
        key = aws.kms.Key(
            f"{self._name}-secrets",
            description=f"Kubernetes secrets of {self._args.names.cluster}",
            enable_key_rotation=True,
            deletion_window_in_days=_KEY_WINDOW_DAYS,
            opts=self._child,
        )
        return key.arn

    def _node_access(self, cluster: eks.Cluster) -> list[pulumi.Resource]:
        """Rules between the control plane's own security group and the nodes'."""
        control_plane = cluster.eks_cluster.vpc_config.cluster_security_group_id  # type: ignore[union-attr]
        nodes = self._args.node_groups[0]
        rules: list[pulumi.Resource] = [
            aws.vpc.SecurityGroupIngressRule(
                f"{self._name}-api-from-nodes",
                security_group_id=control_plane,
                referenced_security_group_id=nodes,
                ip_protocol="tcp",
                from_port=443,
                to_port=443,
                description="Kubernetes API",
                opts=self._child,
            ),
        ]
        for what, port in _NODE_PORTS.items():
            rules.append(
                aws.vpc.SecurityGroupIngressRule(
                    f"{self._name}-nodes-{what}",
                    security_group_id=nodes,
                    referenced_security_group_id=control_plane,
                    ip_protocol="tcp",
                    from_port=port,
                    to_port=port,
                    description=f"Control plane to {what}",
                    opts=self._child,
                )
            )
        return rules


def connect_command(names: Names) -> str:
    """How a person reaches the cluster with kubectl."""
    return f"aws eks update-kubeconfig --region {names.region} --name {names.cluster}"
