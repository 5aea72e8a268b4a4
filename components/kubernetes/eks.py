"""The EKS orchestrator: control plane, add-ons, access entries, and the charts that HyperPod's nodes need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_aws as aws
import pulumi_aws_native as aws_native
import pulumi_eks as eks
import pulumi_kubernetes as kubernetes
from pulumi import ComponentResource, Input, Output, ResourceOptions

from ..catalogue import kubernetes_versions
from ..catalogue.kubernetes_versions import KUBERNETES_VERSIONS, WARNED_DAYS, extended_support_notice
from ..cluster.orchestrator import Cluster, GroupConfig
from ..common import timeouts
from ..common.context import Context
from ..common.names import Names
from ..network.keys import NetworkConfig
from ..network.vpc import Network
from ..observability.keys import Observability
from ..security.keys import PodSecurity
from ..storage.file_systems import Storage
from ..storage.keys import Fsx
from ..workers.instance_groups import InstanceGroup
from . import metrics_scraper
from .access import EksAccess, EksAccessArgs
from .addons import S3_NAMESPACE, EksAddons, EksAddonsArgs
from .helm import HyperPodChart, HyperPodChartArgs
from .image_repository import ImageRepository, ImageRepositoryArgs
from .keys import KubernetesKeys
from .network_policies import allow_all, system_namespaces
from .node_health import NodeHealth, NodeHealthArgs
from .node_pools import NodePools, NodePoolsArgs
from .teams.directories import FileSystem
from .teams.training import Training, TrainingArgs

LOG_DAYS = 30
# KMS, ScheduleKeyDeletion: 7 to 30 days. A key that is pending deletion costs nothing.
_KEY_WINDOW_DAYS = 7
# Until November 2026 it belonged to the stack itself. Without this, a stack of before would replace all of it.
_WITHOUT_PARENT = pulumi.Alias(parent=pulumi.ROOT_STACK_RESOURCE)
LOG_TYPES = ("api", "audit", "authenticator")
# The control plane's calls to nodes: kubelet, webhooks on the ports that charts commonly use, and aggregated APIs. An
# aggregated API that does not answer blocks the deletion of every namespace (metrics-server: EKS's add-on; Kueue: its
# chart).
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
    """Inputs of the orchestrator. ``node_groups`` are the nodes' security groups, ``node_roles`` their execution roles
    by kind; the rest are keys of other features that decide what runs in the cluster.
    """

    context: Context
    network: Network
    node_groups: Sequence[Input[str]]
    node_roles: Mapping[str, Input[str]]
    settings: KubernetesKeys
    groups: Sequence[InstanceGroup]
    network_keys: NetworkConfig
    fsx: Fsx
    observability: Observability
    pod_security: PodSecurity
    health_policy: str


class Eks(ComponentResource):
    """Owns the EKS cluster, the key of its secrets, its add-ons and access entries, and the HyperPod chart.

    No node groups: HyperPod brings the nodes. Access is granted by access entries: an ``aws-auth`` ConfigMap would need
    a reachable API before there is one. The control plane's log group is created here, first, so that it has a
    retention period and is deleted with the stack; EKS would leave its own behind. Deliberately absent: an OIDC
    provider (Pod Identity replaces it) and anything that waits for pods, which stay pending until HyperPod's nodes
    arrive.
    """

    orchestrator: aws_native.sagemaker.ClusterOrchestratorArgs
    ready: list[pulumi.Resource]
    outputs: Mapping[str, Input[Any]]
    volume_role: Input[str] | None

    def __init__(self, name: str, args: EksArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("hyperpod:index:Eks", name, None, opts)
        self._name, self._args, self._child = name, args, ResourceOptions(parent=self)
        context, settings, registry = args.context, args.settings, args.network_keys.image_registry
        cluster = self._control_plane()
        cluster_name = cluster.eks_cluster.name
        kubeconfig = Output.secret(cluster.kubeconfig_json)
        access = EksAccess(
            f"{name}-access",
            EksAccessArgs(context=context, settings=settings, cluster_name=cluster_name, node_roles=args.node_roles),
            self._child,
        )
        self.ready = access.ready + self._node_access(cluster)
        # Objects that are deleted with their namespace leave the state before the namespace does. If a destroy is
        # interrupted in between, a deployment finds objects that the state has lost, and takes them over.
        self._kubernetes = kubernetes.Provider(
            f"{name}-kubernetes", kubeconfig=kubeconfig, upsert_existing_objects=True, opts=self._child
        )
        chart = HyperPodChart(
            f"{name}-chart",
            HyperPodChartArgs(
                region=context.region,
                accelerator=settings.accelerator,
                charts=settings.charts,
                groups=args.groups,
                image_registry=registry,
            ),
            ResourceOptions(parent=self, providers=[self._kubernetes]),
        )
        self.ready.append(chart.release)
        if settings.charts.strict_network_policies:
            after = ResourceOptions(parent=self, provider=self._kubernetes, depends_on=[chart.release])
            # The nodes wait for them: pods without a policy would have no connection, DNS among them.
            self.ready += [
                allow_all(f"{name}-open-{namespace}", namespace, after)
                for namespace in system_namespaces(settings.charts)
            ]
        NodeHealth(
            f"{name}-node-health",
            NodeHealthArgs(
                policy=args.health_policy,
                groups=args.groups,
                image_registry=registry,
                strict=settings.charts.strict_network_policies,
            ),
            ResourceOptions(parent=self, providers=[self._kubernetes]),
        )
        self._addons = EksAddons(
            f"{name}-addons",
            EksAddonsArgs(
                context=context,
                settings=settings,
                groups=args.groups,
                observability=args.observability,
                fsx=args.fsx,
                cluster_name=cluster_name,
                release=chart.release,
            ),
            ResourceOptions(parent=self),
        )
        if settings.charts.strict_network_policies:
            after = ResourceOptions(parent=self, provider=self._kubernetes, depends_on=[self._addons.s3_driver])
            allow_all(f"{name}-open-{S3_NAMESPACE}", S3_NAMESPACE, after)
        self.ready += self._addons.of_nodes
        self.volume_role = self._addons.ebs_role
        if context.prometheus and args.observability.scraper != "none":
            metrics_scraper.scraper(
                f"{name}-scraper",
                metrics_scraper.ScraperArgs(
                    cluster=context.names.cluster,
                    cluster_arn=cluster.eks_cluster.arn,
                    workspace_arn=context.prometheus.arn,
                    subnet_ids=args.network.eks_subnet_ids,
                    groups=args.node_groups,
                    everything=args.observability.scraper == "everything",
                    teams=[settings.namespace_of(team.name) for team in settings.namespaces],
                ),
                self._child,
            )
        self.orchestrator = aws_native.sagemaker.ClusterOrchestratorArgs(
            eks=aws_native.sagemaker.ClusterOrchestratorEksConfigArgs(cluster_arn=cluster.eks_cluster.arn)
        )
        images = ImageRepository(
            "images",
            ImageRepositoryArgs(cluster=context.names.cluster, key=context.key),
            ResourceOptions(parent=self, aliases=[_WITHOUT_PARENT]),
        )
        self.outputs = {
            "trainingRepository": images.url,
            "eksClusterName": cluster_name,
            "kubeconfig": kubeconfig,
            "connect": connect_command(context.names),
        }

    def group_config(self, group: InstanceGroup) -> GroupConfig:
        """Return a group's labels and taints."""
        return GroupConfig(kubernetes_config=_labels_and_taints(group))

    def prepare_training(self, cluster: Cluster, storage: Storage, groups: Sequence[Input[str]]) -> None:
        """Create storage classes, the teams' namespaces, their queues and SageMaker's add-ons, which need nodes. Return
        the last.
        """
        args, context = self._args, self._args.context
        self._addons.of_sagemaker(cluster)
        scaling, pools = args.settings.autoscaling, []
        if scaling and scaling.enabled:
            follow = [group for group in args.groups if group.follows_demand]
            pools = NodePools(
                "node-pools",
                NodePoolsArgs(autoscaling=scaling, groups=follow, cluster=cluster),
                ResourceOptions(parent=self, providers=[self._kubernetes]),
            ).ready
        Training(
            "training",
            TrainingArgs(
                settings=args.settings,
                groups=args.groups,
                network=args.network_keys,
                fsx=args.fsx,
                pod_security=args.pod_security,
                scraped=args.observability.scraper != "none",
                context=context,
                cluster_name=self.outputs["eksClusterName"],
                file_system=FileSystem(
                    file_system_id=storage.file_system_id,
                    dns_name=storage.dns_name,
                    mount_name=storage.mount_name,
                    capacity_gib=storage.capacity_gib,
                ),
                subnet_id=args.network.private_subnet_id,
                storage_groups=groups,
                cluster=cluster,
                # Jobs end before the pools, which drain every node as they go.
                empties=[*self._addons.empties, *pools],
            ),
            ResourceOptions(parent=self, providers=[self._kubernetes], aliases=[_WITHOUT_PARENT]),
        )
        self.register_outputs({"clusterName": self.outputs["eksClusterName"], "kubeconfig": self.outputs["kubeconfig"]})

    def _control_plane(self) -> eks.Cluster:
        context, settings = self._args.context, self._args.settings
        cluster_name = context.names.cluster
        logs = aws.cloudwatch.LogGroup(
            f"{self._name}-control-plane",
            name=f"/aws/eks/{cluster_name}/cluster",
            retention_in_days=LOG_DAYS,
            kms_key_id=context.key,
            opts=self._child,
        )
        if not settings.kubernetes_api_cidrs:
            pulumi.log.warn(
                "the Kubernetes API is private (hyperpod:kubernetesApiCidrs is empty): run pulumi from inside the VPC, "
                "or the charts cannot be installed",
                self,
            )
        if "0.0.0.0/0" in settings.kubernetes_api_cidrs:
            pulumi.log.warn(
                "the whole internet reaches the Kubernetes API (0.0.0.0/0 in hyperpod:kubernetesApiCidrs), and only "
                "credentials protect it: name the blocks of those who need it",
                self,
            )
        self._warn_about_version(settings.kubernetes_version)
        return eks.Cluster(
            f"{self._name}-cluster",
            eks.ClusterArgs(
                name=cluster_name,
                version=settings.kubernetes_version,
                vpc_id=self._args.network.vpc_id,
                private_subnet_ids=list(self._args.network.eks_subnet_ids),
                endpoint_private_access=True,
                endpoint_public_access=bool(settings.kubernetes_api_cidrs),
                public_access_cidrs=list(settings.kubernetes_api_cidrs) or None,
                authentication_mode=eks.AuthenticationMode(settings.authentication_mode),
                encryption_config_key_arn=self._secrets_key() if context.key is None else context.key,
                enabled_cluster_log_types=list(LOG_TYPES),
                skip_default_node_group=True,
                skip_default_security_groups=True,
                create_oidc_provider=False,
                # All add-ons come from one table, below.
                use_default_vpc_cni=True,
                kube_proxy_addon_options=eks.KubeProxyAddonOptionsArgs(enabled=False),
                tags=dict(context.tags),
            ),
            # EKS looks up a VPC's blocks when it creates a cluster, and again hours later (EKS User Guide, "VPC and
            # subnet requirements").
            opts=ResourceOptions(
                parent=self,
                depends_on=[logs, *self._args.network.blocks],
                transforms=[_adjust_pulumi_eks(context.boundary)],
            ),
        )

    def _warn_about_version(self, version: str) -> None:
        """Warn of the version's cost now or soon."""
        row = KUBERNETES_VERSIONS[version]
        if ends := extended_support_notice(version):
            pulumi.log.warn(f"{ends}: set hyperpod:kubernetesVersion to a newer one", self)
        if row.days_left(kubernetes_versions.today()) < WARNED_DAYS:
            pulumi.log.warn(
                f"EKS ends its support of Kubernetes {version} on {row.extended_support_until}, and upgrades the "
                "cluster by itself then: set hyperpod:kubernetesVersion to a newer one before",
                self,
            )
        if not row.hyperpod:
            pulumi.log.warn(
                f"Kubernetes {version} is EKS's, and SageMaker's documentation does not name it for HyperPod", self
            )

    def _secrets_key(self) -> Output[str]:
        """Create the key that encrypts Kubernetes secrets before they reach the control plane's store."""
        key = aws.kms.Key(
            f"{self._name}-secrets",
            description=f"Kubernetes secrets of {self._args.context.names.cluster}",
            enable_key_rotation=True,
            deletion_window_in_days=_KEY_WINDOW_DAYS,
            opts=self._child,
        )
        return key.arn

    def _node_access(self, cluster: eks.Cluster) -> list[pulumi.Resource]:
        """Open the control plane's own security group and the nodes' to each other."""
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
    """Return the command that gives kubectl access to the cluster."""
    return f"aws eks update-kubeconfig --region {names.region} --name {names.cluster}"


def _labels_and_taints(group: InstanceGroup) -> aws_native.sagemaker.ClusterKubernetesConfigArgs | None:
    labels = dict(group.worker.labels) if group.worker else {}
    if not (labels or group.taints):
        return None
    return aws_native.sagemaker.ClusterKubernetesConfigArgs(
        labels=labels or None,
        taints=[
            aws_native.sagemaker.ClusterKubernetesTaintArgs(
                key=taint.key,
                value=taint.value or None,
                effect=aws_native.sagemaker.ClusterKubernetesTaintEffect(taint.effect),
            )
            for taint in group.taints
        ]
        or None,
    )


def _adjust_pulumi_eks(boundary: str | None) -> pulumi.ResourceTransform:
    """Give the resources of pulumi-eks our time limits, and its role a permissions boundary. Its Cluster has arguments
    for neither, and another role would replace deployed control planes.
    """

    def transform(args: pulumi.ResourceTransformArgs) -> pulumi.ResourceTransformResult:
        bounded = boundary is not None and args.type_ == "aws:iam/role:Role"
        props = {**args.props, "permissionsBoundary": boundary} if bounded else args.props
        longer = timeouts.for_type(args.type_)
        return pulumi.ResourceTransformResult(props, ResourceOptions.merge(args.opts, longer) if longer else args.opts)

    return transform
